# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Recorded decisions of vLLM's data-parallel balancer: the kernel's rule takes them one after another."""

from typing import Any

import numpy as np

from fastsim._jit import borrow, entry
from fastsim.engines.outputs import NEVER
from fastsim.engines.vllm.router import ROUTER_DTYPE, balance, new_known

ROUTE, FINISH, SNAPSHOT = range(3)


def verify_case(case: dict[str, Any]) -> str | None:
    """Replay a recorded case: None when every choice is the same, else the first that is not."""
    engines, clients = case["config"]["engines"], case["config"]["clients"]
    router = np.zeros(1, ROUTER_DTYPE)
    router["turn"] = engines * case["config"]["client_index"] // clients
    ops: list[tuple[int, int]] = []
    snapshots: list[Any] = []
    number: dict[int, int] = {}
    for kind, *rest in case["ops"]:
        if kind == "route":
            request, rank, _ = rest
            number[request] = len(ops)
            ops.append((ROUTE, NEVER if rank is None else rank))
        elif kind == "finish":
            ops += [(FINISH, number[request]) for request in rest[0]]
        else:
            ops.append((SNAPSHOT, len(snapshots)))
            snapshots.append(rest[0])
    looks = np.array(snapshots, np.float64).reshape(-1)
    chosen = np.full(len(ops), NEVER)
    replay(np.array(ops).reshape(-1), looks, new_known(engines), router, clients, chosen)
    want = [op[3] for op in case["ops"] if op[0] == "route"]
    got = [int(chosen[place]) for place in number.values()]
    for k, (a, b) in enumerate(zip(want, got, strict=True)):
        if a != b:
            return f"decision {k}: expected engine {a}, got {b}"
    return None


@entry
def replay(ops, looks, known, router, clients, chosen):
    """Fill who is chosen at each operation that routes.

    Parameters
    ----------
    ops
        int64, two an operation: ROUTE and the engine asked for (NEVER: none), FINISH and the operation that routed it,
        or SNAPSHOT and which.
    looks
        float64: waiting, running and KV use of every engine, snapshot by snapshot.
    known, router
        Known, and ROUTER_DTYPE of shape (1,).
    clients
        How many API servers share the engines.
    chosen
        int64, one an operation, modified in place.
    """
    known = borrow(known)
    r = borrow(router[0])
    engines = known.sent.shape[0]
    for place in range(chosen.shape[0]):
        kind, what = ops[2 * place], ops[2 * place + 1]
        if kind == SNAPSHOT:
            for k in range(engines):
                at = 3 * (what * engines + k)
                known.waiting[k] = int(looks[at])
                known.running[k] = int(looks[at + 1])
                known.kv_use[k] = looks[at + 2]
        elif kind == FINISH:
            known.in_flight[chosen[what]] -= 1
        else:
            chosen[place] = what if what != NEVER else balance(r, known, engines, clients)
            known.in_flight[chosen[place]] += 1
    return 0
