"""One run in words and tables: the verdict first, with the reason and the moment."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastsim.analysis.terms import slo_terms
from fastsim.cli.tables import number, table, wrapped
from fastsim.metrics.columns import LATE_SHARE

if TYPE_CHECKING:
    from fastsim.analysis.terms import Term
    from fastsim.config import Config

LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E", "queue_time": "queue time"}


def run_text(
    config: "Config", metrics: dict[str, Any], kernel_ms: float, seconds: float, cut: int = 0, unservable: str = ""
) -> str:
    """Everything `fastsim run` prints; `cut` outputs end at max_model_len; `unservable`: why some never run."""
    lines = [
        wrapped(f"{metrics['verdict']}: {reason(metrics, unservable, slo_terms(config))}"),
        *warnings(config, metrics, cut),
        "",
        _latencies(metrics),
        "",
    ]
    lines += _pairs(metrics)
    lines += ["", f"{config.engine.name}: kernel {number(kernel_ms)} ms, {seconds:.2f} s in all"]
    return "\n".join(lines)


def reason(metrics: dict[str, Any], unservable: str = "", slo: Sequence["Term"] = ()) -> str:
    """Why the verdict is what it is: one clause with numbers. `slo`: what is demanded."""
    m = metrics
    if m["status"] == "max_steps":
        return f"the run was cut after {number(m['steps'])} steps (run.max_steps)"
    match m["verdict"]:
        case "unservable":
            return f"{number(m['unservable'])} of {number(m['num_requests'])} requests can never be served" + (
                f": {unservable}" if unservable else ""
            )
        case "livelock":
            what = "a state came back" if m["livelock_kind"] == "repeated_state" else "nobody made progress"
            return f"{what} at step {number(m['livelock_step'])}, {number(m['livelock_s'])} s"
        case "out_of_memory":
            return f"the engine gave away more KV than there is, and died at {number(m['simulated_s'])} s"
        case "starved":
            return _why_starved(m)
        case "thrash":
            return _why_thrash(m)
        case "overloaded":
            return _why_overloaded(m)
        case "misses_slo":
            return _why_missed(m, slo)
        case "not_judged":
            return _WHY_NOT[m["not_judged"]].format(late=percent(m["late_share"]))
        case "drained":
            return (
                f"{_done(m)} of a burst completed, the last at {number(m['simulated_s'])} s; whether that is soon "
                "enough only an SLO can say"
            )
    closed = _CLOSED if m["not_judged"] else ""
    return f"{_done(m)} completed, {percent(m['recomputed_share'])} of tokens recomputed{closed}"


_CLOSED = " (a closed loop offers no load, so that there is none to be too much)"
_WHY_NOT = {
    "nothing_offered": "no request that can be served arrived",
    "ended_too_soon": "nobody was done before the run ended, and hardly anybody could have been: give it time",
    "cut_in_flight": (
        "{late} of those that alone would have been done were still in flight when the run was cut, which a steady "
        "state can explain: give it time"
    ),
    "all_at_once": "everybody arrives at once and the run was cut: give it time",
    "arrivals_too_short": "the arrivals last less than twice an unloaded request and the run was cut: give it time",
}


def _done(m: dict[str, Any]) -> str:
    return f"{number(m['completed'])} of {number(m['num_requests'])} requests"


def _why_starved(m: dict[str, Any]) -> str:
    if m["overtaken"]:
        return (
            f"{number(m['overtaken'])} of {number(m['offered'])} requests got no token for up to "
            f"{number(m['overtaken_wait_s'])} s while many later ones came and were done"
        )
    return (
        f"no request completed for {number(m['starved_gap_s'])} s until {number(m['starved_at_s'])} s, "
        "while the engine computed again what it had dropped"
    )


def _why_thrash(m: dict[str, Any]) -> str:
    moved = f" and {percent(m['swapped_time_share'])} into moving blocks" if m["swapped_time_share"] else ""
    return (
        f"{percent(m['recomputed_time_share'])} of the busy time went into computing tokens again{moved} "
        f"({percent(m['recomputed_share'])} of all scheduled tokens, {number(m['preemptions'])} preemptions)"
    )


def _why_overloaded(m: dict[str, Any]) -> str:
    parts = []
    if m["late_share"] is not None and m["late_share"] > LATE_SHARE:
        parts.append(f"{percent(m['late_share'])} of those that alone would have been done were not when the run ended")
    if m["backlog_slope_req_per_s"] is not None and m["backlog_slope_req_per_s"] > 0:
        parts.append(f"the backlog grew by {number(m['backlog_slope_req_per_s'])} requests/s")
    if m["offered_load"] is not None and m["offered_load"] > 1:
        parts.append(f"{number(m['offered_load'])} times what there is was offered")
    return ", ".join(parts)


def _why_missed(m: dict[str, Any], slo: Sequence["Term"]) -> str:
    parts = []
    for term in slo:
        value_ms = m[term.column]
        if value_ms is None and m[term.censored]:
            parts.append(f"{term.title} is not reached by all (SLO {number(term.bound_ms)} ms)")
        elif value_ms is not None and value_ms > term.bound_ms:
            parts.append(f"{term.title} is {number(value_ms)} ms (SLO {number(term.bound_ms)} ms)")
    return ", ".join(parts)


def warnings(config: "Config", metrics: dict[str, Any], cut: int = 0) -> list[str]:
    """What else to know: a run that ended too soon, outputs that are cut, more requests than the KV cache holds."""
    lines = []
    horizon_s = config.run.horizon_s
    if metrics["completed"] == 0 and metrics["stop"] == "horizon" and horizon_s is not None:
        text = f"note: no request completed before the end of the run (run.horizon_s = {horizon_s:g})"
        lines.append(wrapped(text, indent=6))
    if cut:
        text = (
            f"note: {number(cut)} of {number(metrics['num_requests'])} outputs end at engine.max_model_len = "
            f"{config.engine.max_model_len:,} tokens, prompt included, before their own length"
        )
        lines.append(wrapped(text, indent=6))
    if groups := groups_text(config):
        lines.append(wrapped(f"note: {groups}", indent=6))
    safe, seqs = metrics["kv_safe_num_seqs"], config.engine.max_num_seqs
    if safe is not None and seqs > safe:
        blocks = number(metrics["usable_blocks"] // metrics["replicas"])
        text = (
            f"note: max_num_seqs {seqs} is more than the {safe} requests that fit at full length ({blocks} blocks); "
            f"the price here: {number(metrics['preemptions'])} preemptions, "
            f"{percent(metrics['recomputed_share'])} of tokens recomputed"
        )
        lines.append(wrapped(text, indent=6))
    return lines


def groups_text(config: "Config") -> str:
    """The KV cache groups, and what a request of full length holds in each; nothing where one has all layers."""
    from itertools import groupby

    from fastsim.engines import engine_of

    engine = config.engine
    held = engine_of(engine.name).groups_held(config.value, engine.max_model_len)
    if not held:
        return ""
    alike = [(pair, len(list(each))) for pair, each in groupby(held)]
    parts = [
        f"{name} {blocks:,} block{'s' if blocks > 1 else ''}{f' in each of {count}' if count > 1 else ''}"
        for (name, blocks), count in alike
    ]
    total = sum(blocks for _, blocks in held)
    plural = "s" if len(held) > 1 else ""
    return (
        f"{len(held)} KV cache group{plural}: a request of max_model_len {engine.max_model_len:,} tokens holds "
        f"{', '.join(parts)} while it decodes, {total:,} in all of {engine.usable_blocks:,}"
    )


def percent(share: float | None) -> str:
    """A share in percent."""
    return "-" if share is None else f"{number(round(100 * share, 2 if share < 0.1 else 1))} %"


def _latencies(m: dict[str, Any]) -> str:
    rows = []
    for key, name in LATENCIES.items():
        figures = [m[f"{key}_{part}_ms"] for part in ("served_mean", "p50", "p90", "p95", "p99")]
        rows.append([name, *figures, percent(m[f"{key}_censored_share"])])
    rows.insert(2, ["ITL", *(m[f"itl_{part}_ms"] for part in ("mean", "p50", "p90", "p95", "p99")), ""])
    return table(["ms", "mean of served", "p50", "p90", "p95", "p99", "not reached"], rows)


def _pairs(m: dict[str, Any]) -> list[str]:
    counts = [f"{number(m[name])} {name.replace('_', ' ')}" for name in _ENDS if m[name]]
    tokens = [f"{name} {number(m[f'{name}_tokens'])}" for name in _TOKENS if m[f"{name}_tokens"]]
    lines = [
        f"requests    {', '.join(counts) or 'none'}",
        f"throughput  {number(m['request_throughput_req_per_s'])} requests/s, "
        f"{number(m['output_throughput_tok_per_s'])} output tokens/s, "
        f"goodput {number(m['goodput_req_per_s'])} requests/s",
        *_hits(m),
        f"KV          {percent(m['kv_use_mean'])} used on average, {percent(m['kv_use_peak'])} at the peak",
        f"batch       {number(m['running_mean'])} running on average, {number(m['running_peak'])} at the peak, "
        f"queue at most {number(m['waiting_peak'])}",
        f"preemption  {number(m['preemptions'])}, of {number(m['preempted_requests'])} requests, "
        f"at most {number(m['max_preemptions'])} of one",
        f"tokens      {', '.join(tokens) or 'none'}",
        f"load        {_load(m)}",
        f"time        {number(m['simulated_s'])} s simulated in {number(m['steps'])} steps ({m['stop']})",
    ]
    return [wrapped(line, indent=12) for line in lines]


def _hits(m: dict[str, Any]) -> list[str]:
    """What of the prompts the prefix cache had, where it had anything."""
    if not m["prefix_hit_tokens"]:
        return []
    again = f", {number(m['salvaged_tokens'])} more tokens when readmitted" if m["salvaged_tokens"] else ""
    return [f"prefixes    {percent(m['prefix_hit_share'])} of prompt tokens hit at first admission{again}"]


def _load(m: dict[str, Any]) -> str:
    if m["offered_load"] is None:
        return "none is offered: requests come all at once, or as others complete"
    return (
        f"{number(m['offered_load'])} offered of what there is "
        f"(KV {number(m['offered_kv_load'])}, tokens {number(m['offered_token_load'])})"
    )


_ENDS = ("completed", "running", "waiting", "held", "pending", "rejected", "timed_out", "unservable")
_TOKENS = ("prefill", "decode", "recomputed", "discarded", "salvaged", "swapped")
