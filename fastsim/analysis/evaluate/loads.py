"""Loads: a workload as it is described, or changed in the ways that ask "what if": longer outputs, one replica's share.

A load is a small description, equal ones are equal, and it travels to worker processes instead of the arrays.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np

from fastsim.config import Spec, WorkloadConfig
from fastsim.workload import Workload, WorkloadPlan, build_workload

WINDOW_REQUESTS = 64
"""Lengths are exchanged among so many neighbours in order of arrival, so that trends and shared prefixes stay."""
_EXCHANGE = 17
"""Second word of the seed of exchanges: a stream of their own."""


@dataclass(frozen=True)
class Load:
    """What requests a run is given.

    Attributes
    ----------
    workload
        The description of the requests.
    output_factor
        Outputs are this many times as long, rounded to at least one token; declared limits grow with them.
    replicas, replica
        Requests are dealt in turn, in order of arrival, to so many servers; this is what one of them gets. Clients of
        a closed loop are divided among them.
    exchange
        Above 0: requests exchange their lengths (and prefixes and priorities) with neighbours at random, this being
        the seed; arrival times stay. How a trace, which happened once, could have come out otherwise.
    """

    workload: WorkloadConfig
    output_factor: float = 1.0
    replicas: int = 1
    replica: int = 0
    exchange: int = 0


class LoadPlan:
    """Builds loads and keeps the last few, as `WorkloadPlan` does; both are bounded.

    Parameters
    ----------
    kept
        How many are kept.
    """

    def __init__(self, kept: int = 4) -> None:
        self._kept = kept
        self._workloads = WorkloadPlan(kept)
        self._loads: OrderedDict[Load, Workload] = OrderedDict()

    def build(self, load: Load) -> Workload:
        """The requests of a load."""
        if load not in self._loads:
            self._loads[load] = changed(self._workloads.build(load.workload), load)
            if len(self._loads) > self._kept:
                self._loads.popitem(last=False)
        self._loads.move_to_end(load)
        return self._loads[load]


def default_load_note(spec: Spec) -> str | None:
    """What the requests are where a spec says nothing of them, in a sentence; None where it does."""
    if any(key.startswith("workload.") for key in spec.settings):
        return None
    workload = build_workload(spec.base.workload)
    prompt, output = (float(f"{lengths.mean():.2g}") for lengths in (workload.prompt_tokens, workload.output_tokens))
    return (
        f"no load given: {workload.num_requests:,} requests at {spec.base.workload.arrival.rate_per_s:g}/s, "
        f"prompts of ~{prompt:,.0f}, outputs of ~{output:,.0f} tokens (the defaults)"
    )


def changed(workload: Workload, load: Load) -> Workload:
    """The workload with a load's changes; the very same one when there are none."""
    if load.exchange:
        workload = _exchanged(workload, load.exchange)
    if load.replicas > 1:
        workload = _taken(workload, workload.arrival_order()[load.replica :: load.replicas], workload.arrival_us)
        if workload.concurrency:
            workload = replace(workload, concurrency=max(workload.concurrency // load.replicas, 1))
    if load.output_factor != 1.0:
        longer = np.maximum(np.rint(workload.output_tokens * load.output_factor), 1).astype(np.int32)
        limits = np.ceil(workload.max_tokens * load.output_factor).astype(np.int32)
        workload = replace(workload, output_tokens=longer, max_tokens=limits)
    return workload


def _exchanged(workload: Workload, seed: int) -> Workload:
    rng = np.random.default_rng([seed, _EXCHANGE])
    order = workload.arrival_order().astype(np.int64)
    shuffled = order.copy()
    for start in range(0, len(order), WINDOW_REQUESTS):
        shuffled[start : start + WINDOW_REQUESTS] = rng.permutation(order[start : start + WINDOW_REQUESTS])
    takes = np.empty_like(order)
    takes[order] = shuffled
    return _taken(workload, takes, workload.arrival_us, keep_arrivals=True)


def _taken(workload: Workload, rows: np.ndarray, arrival_us: np.ndarray, *, keep_arrivals: bool = False) -> Workload:
    """The workload of some rows, whose arrivals come along unless they are kept."""
    return replace(
        workload,
        arrival_us=arrival_us if keep_arrivals else arrival_us[rows],
        prompt_tokens=workload.prompt_tokens[rows],
        output_tokens=workload.output_tokens[rows],
        max_tokens=workload.max_tokens[rows],
        priority=workload.priority[rows],
        prefix_group=workload.prefix_group[rows],
        prefix_tokens=workload.prefix_tokens[rows],
        think_us=workload.think_us[rows],
        request_class=None if workload.request_class is None else workload.request_class[rows],
    )
