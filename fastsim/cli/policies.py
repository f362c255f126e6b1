"""`fastsim policies`: every policy that a sweep can turn, what it is, where it comes from, and its knobs."""

from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fastsim.engines.declaration import Policy

VLLM, BLIS, RLT = "vLLM 0.33.0", "BLIS", "vllm-rlt"
DISCUSSION = "BLIS discussion"


def _policy(name: str, turn_on: str, what: str, origin: str, knobs: str) -> "Policy":
    from fastsim.engines.declaration import Policy

    keys = tuple(knob if "." in knob else f"engine.{knob}" for knob in knobs.split())
    return Policy(name, turn_on, what, origin, keys)


@cache
def policies() -> "tuple[Policy, ...]":
    """All of them, by what they decide."""
    from fastsim.engines import engines

    return (
        # --- what a preemption costs ---
        _policy(
            "recompute", "engine.preemption_mode=recompute",
            "Blocks are freed, generated tokens kept; all tokens are prefilled again, in chunks.",
            "vLLM 0.16.0, 0.33.0 (default)", "preemption_mode",
        ),
        _policy(
            "restart", "engine.preemption_mode=restart",
            "Output is thrown away too: every token is decoded again.",
            f"{BLIS}; {DISCUSSION}", "preemption_mode",
        ),
        _policy(
            "swap", "engine.preemption_mode=swap",
            "Blocks move to a pool on the host and back, for time per block; recompute when the pool is full.",
            f"vLLM v0; {BLIS}'s tiered cache", "preemption_mode swap_space_blocks swap_us_per_block",
        ),
        _policy(
            "prefix caching", "engine.enable_prefix_caching=true",
            "Full blocks stay findable after they are freed: a preempted request may find its own again (salvage).",
            f"vLLM 0.16.0, 0.33.0 (default); {DISCUSSION} (partial progress)", "enable_prefix_caching block_size",
        ),
        # --- who is preempted ---
        _policy(
            "victim", "engine.victim=least_computed",
            "Which running request gives up its blocks: the last (vLLM), the least urgent, or by progress, size or "
            "lot.",
            f"vLLM 0.33.0 (tail, priority); {DISCUSSION} (progress-aware)", "victim policy",
        ),
        _policy(
            "boost", "engine.boost_after=3",
            "After so many preemptions a request is protected and first in line.",
            DISCUSSION + " (anti-starvation)", "boost_after",
        ),
        # --- who is admitted ---
        _policy(
            "full-ISL gate", "engine.scheduler_reserve_full_isl=true",
            "Admit a request only if all its known tokens fit, not just the first chunk.",
            "vLLM 0.33.0 (default); not in 0.16.0", "scheduler_reserve_full_isl",
        ),
        _policy(
            "watermark", "engine.watermark=0.05",
            "An admission must leave this share of all blocks free.",
            "vLLM 0.33.0 (change 44594)", "watermark",
        ),
        _policy(
            "projected admission", "engine.admission=projected",
            "Expected final sizes of all running requests must fit: by true length, declared limit, or mean.",
            f"{DISCUSSION} (projected capacity)", "admission projection overcommit",
        ),
        _policy(
            "bypass", "engine.bypass=true",
            "Requests behind one that does not fit may go first, so many times.",
            f"{RLT} (both flags false: its accounting before the fix of a livelock)",
            "bypass admission_scan_limit max_admission_bypasses count_restores blocked_checks_limit",
        ),
        _policy(
            "slot preemption", "engine.slot_preempt=true",
            "With all slots taken, a more urgent request takes that of a less urgent one.",
            f"{RLT}; asked for in vLLM reports 11361, 40004", "slot_preempt slot_preempt_preflight",
        ),
        _policy(
            "queue order", "engine.queue_order=sjf",
            "Who is next: first come, most urgent, shortest prompt, or urgency that grows with the wait.",
            "vLLM 0.33.0 (fcfs, priority); literature (sjf, aging)", "queue_order policy aging_per_s",
        ),
        # --- how many run ---
        _policy(
            "fixed cap", "engine.running_cap=fixed",
            "At most max_num_seqs run.",
            "vLLM 0.16.0, 0.33.0 (default)", "running_cap max_num_seqs max_num_active_seqs",
        ),
        _policy(
            "automatic cap", "engine.running_cap=auto",
            "At most as many as fit at full length, by mean lengths.",
            f"{DISCUSSION} (right-sizing)", "running_cap",
        ),
        _policy(
            "feedback cap", "engine.running_cap=feedback",
            "The cap falls when preemptions are frequent and rises one by one when there are none.",
            f"{DISCUSSION} (adaptive batch size)",
            "running_cap feedback_rule feedback_window feedback_threshold feedback_recovery",
        ),
        # --- how tokens are shared out ---
        _policy(
            "token budget", "engine.max_num_batched_tokens=2048",
            "Most tokens of a step, decode before prefill.",
            "vLLM 0.16.0, 0.33.0", "max_num_batched_tokens max_num_scheduled_tokens",
        ),
        _policy(
            "chunked prefill", "engine.enable_chunked_prefill=true",
            "Prompts may be prefilled over several steps, long ones in small chunks, or only every so many steps.",
            "vLLM 0.16.0, 0.33.0",
            "enable_chunked_prefill long_prefill_token_threshold long_prefill_token_threshold_adaptive "
            "prefill_schedule_interval",
        ),
        # --- what is refused ---
        _policy(
            "backpressure", "engine.backpressure_threshold=0.1",
            "While preemptions are frequent, arrivals are refused, or held and let in one per completion.",
            f"{DISCUSSION} (admission backpressure)",
            "backpressure_threshold backpressure_window backpressure_action",
        ),
        _policy(
            "queue limits", "engine.max_num_queued_reqs=100",
            "An arrival that finds the queue full is refused.",
            "vLLM 0.33.0's front door", "max_num_queued_reqs max_num_queued_tokens",
        ),
        _policy(
            "client timeout", "workload.timeout_s=60",
            "Clients give up after a while, and refused ones of a closed loop come again.",
            "clients, not engines", "workload.timeout_s workload.retry_after_s",
        ),
        _policy(
            "unservable", "engine.unservable=reject",
            "A request that can never fit is named and counted, or spins for ever as in vLLM.",
            "fastsim (reject); vLLM 0.33.0 (spin)", "unservable",
        ),
        # --- what only another engine has ---
        *(policy for each in engines() for policy in each.own_policies()),
        # --- when a run is called broken ---
        _policy(
            "verdicts", "engine.thrash_threshold=0.1",
            "From when on a run is called livelocked, starved, or thrashing.",
            "fastsim", "livelock_steps starvation_window_s starvation_overtakes thrash_threshold",
        ),
        _policy(
            "engine", "engine.name=vllm-0.16.0",
            "Whose rules hold: two vLLM releases, one with asynchronous scheduling, or another engine.",
            f"vLLM 0.16.0, {VLLM}; {'; '.join(each.title for each in engines() if each.table)}", "name",
        ),
    )  # fmt: skip


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only policies whose name contains this.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects.")] = False,
) -> int:
    """List the policies: what each is, where it comes from, how to turn it on, and its knobs."""
    from fastsim.errors import InputError

    found = [policy for policy in policies() if name is None or name.lower() in policy.name.lower()]
    if not found:
        raise InputError(f"no policy contains {name!r}; known are {', '.join(policy.name for policy in policies())}")
    if as_json:
        import json

        typer.echo(json.dumps([policy_object(policy) for policy in found], indent=1))
    elif name is None:
        typer.echo(overview(found))
    else:
        typer.echo("\n\n".join(details(policy) for policy in found))
    return 0


def policy_object(policy: "Policy") -> dict[str, object]:
    """A policy with its knobs' types, defaults and meanings."""
    from fastsim.config import KEYS

    knobs = [
        {"key": knob, "default": KEYS[knob].default, "accepts": KEYS[knob].describe(), "meaning": KEYS[knob].summary}
        for knob in policy.knobs
    ]
    return asdict(policy) | {"knobs": knobs}


def overview(chosen: "list[Policy]") -> str:
    """One row a policy, its cells wrapped."""
    from textwrap import wrap

    widths = (19, 36, 21)
    lines = [_columns(("policy", "what it is", "from"), widths)]
    for policy in chosen:
        knobs = " ".join(knob.rpartition(".")[2] if knob.startswith("engine.") else knob for knob in policy.knobs)
        what = [*wrap(policy.what, widths[1]), *wrap("· " + knobs.replace(" ", ", "), widths[1])]
        cells = [wrap(policy.name, widths[0]), what, wrap(policy.origin, widths[2])]
        height = max(map(len, cells))
        rows = zip(*(cell + [""] * (height - len(cell)) for cell in cells), strict=True)
        lines += ["", *(_columns(row, widths) for row in rows)]
    lines += ["", "· knobs: keys below engine., each an axis of a sweep; `fastsim policies NAME`", "  explains them."]
    return "\n".join(lines)


def details(policy: "Policy") -> str:
    """One policy with what its knobs mean."""
    from fastsim.cli.tables import number, wrapped
    from fastsim.config import KEYS

    lines = [wrapped(f"{policy.name}: {policy.what}"), wrapped(f"  from     {policy.origin}", 11)]
    lines.append(f"  turn on  --set {policy.turn_on}")
    for knob in policy.knobs:
        key = KEYS[knob]
        lines.append(wrapped(f"  {knob} = {number(key.default) if key.default is not None else 'none'}", 4))
        lines.append(wrapped(f"      {key.summary} Accepts {key.describe()}.", 6))
    return "\n".join(lines)


def _columns(cells: "tuple[str, ...]", widths: tuple[int, ...]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
