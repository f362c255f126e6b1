"""A recommendation as text: the answer, why, what happens at the edge, and what else there is."""

import math
from textwrap import wrap
from typing import TYPE_CHECKING

from fastsim.cli.tables import counted, number, table, wrapped
from fastsim.cli.tables import width as line_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastsim.analysis.recommend.answer import Recommendation
    from fastsim.analysis.recommend.hardware import Candidate
    from fastsim.analysis.recommend.slo import Interval, Outlook
    from fastsim.config import Config

SHORT = {"engine.max_num_seqs": "seqs", "engine.max_num_batched_tokens": "tokens"}
"""Names of the two batch limits in tables."""
MOST = 10.0
"""A gain beyond it is not told in digits: what is gained over serves next to nobody."""


def recommendation_text(found: "Recommendation", price: float | None = None) -> str:
    """Everything, in lines of at most 80 characters; `price` is what a replica's GPUs cost an hour."""
    if not found.best.outlook.serves:
        return f"{wrapped(_nothing(found))}\n\n{_notes(found)}"
    parts = [_answer(found), _price(found, price), _terms(found), _why(found), _edge(found), _beside(found)]
    parts += [_rate(found, price), _replicas(found, price), _notes(found)]
    return "\n\n".join(part for part in parts if part)


def hardware_text(candidates: "Sequence[Candidate]") -> str:
    """Which hardware, in a sentence and a table, the best first."""
    best = candidates[0]
    terms = best.found.terms if best.found is not None else ()
    priced = any(candidate.hour_price is not None for candidate in candidates)
    if best.total_gpus is None:
        text = "None of this hardware was found to carry the load within the SLO, however many replicas."
    elif terms:
        count = counted(best.total_gpus, "GPU")
        money = f", {number(best.total_hour_price)} an hour" if best.total_hour_price is not None else ""
        least = "the least money" if priced else "the fewest GPUs (--gpu-hour-price l40s=0.8,h100=2.5 weighs prices)"
        text = f"Take {best.name}: it carries this load within the SLO for {least}: {count}{money}{_as_replicas(best)}."
    else:
        most = "the cheapest tokens" if priced else "the highest throughput"
        text = f"Take {best.name}: {most} at this load (no SLO was given)."
    rows: list[list[object]] = []
    for candidate in candidates:
        found = candidate.found
        if found is None:
            rows.append([candidate.label, *[None] * 5, "does not start"])
            continue
        outlook = found.best.outlook
        margin, verdict = judged(outlook)
        rows.append(
            [
                candidate.label,
                candidate.total_gpus,
                candidate.total_hour_price,
                _config(candidate).engine.max_num_seqs,
                float(outlook.goodput.mean()),
                margin,
                verdict,
            ]
        )
    header = ["hardware", "GPUs needed", "an hour", "seqs", "goodput of one", "margin", "SLO"]
    kept = [k for k, name in enumerate(header) if priced or name != "an hour"]
    kept = [k for k in kept if terms or header[k] not in ("margin", "SLO")]
    lines = [wrapped(text, 2), table([header[k] for k in kept], [[row[k] for k in kept] for row in rows])]
    lines += [wrapped(f"note: {each.name}: {each.fault}") for each in candidates if each.fault is not None]
    if best.replicas is None or best.replicas > 1:
        lines.append(f"\nOne replica of {best.name} alone:")
    return "\n".join(lines)


def _config(candidate: "Candidate") -> "Config":
    """What each replica runs with: for its share of the load, where one alone does not carry it."""
    found = candidate.found
    assert found is not None
    return found.best.config if found.meets or found.replicas is None else found.replicas.config


def _as_replicas(best: "Candidate") -> str:
    """How many replicas, where it takes several, and what each runs with."""
    if best.replicas is None or best.replicas == 1:
        return ""
    engine = _config(best).engine
    return (
        f", as {best.replicas} replicas, each with max_num_seqs {engine.max_num_seqs}, max_num_batched_tokens "
        f"{engine.max_num_batched_tokens}"
    )


def _nothing(found: "Recommendation") -> str:
    """What ended the runs before anything completed."""
    run, means = found.best.config.run, found.best.outlook.means
    if means["unservable"] >= means["num_requests"]:
        return "Nothing completes with any setting: no request can ever fit (fastsim check says why)."
    if run.horizon_s is not None:
        return f"Nothing completes within run.horizon_s = {run.horizon_s:g} s: lengthen it."
    return "Nothing completes with any setting: fastsim run says what becomes of the requests."


def _answer(found: "Recommendation") -> str:
    from fastsim.analysis.recommend.flags import serve_flags

    best = found.best
    seqs, tokens = best.numbers
    numbers = f"max_num_seqs {seqs}, max_num_batched_tokens {tokens}"
    others = [f"{name.removeprefix('engine.')} {value}" for name, value in best.labels.items() if name not in SHORT]
    numbers = ", ".join([numbers, *others])
    slo = " and ".join(term.text for term in found.terms)
    if not found.meets:
        worst = best.outlook.worst_term
        assert worst is not None
        value = best.outlook.values_ms.mean(axis=0)[best.outlook.margins.mean(axis=0).argmin()]
        reached = f"is {number(float(value))} ms" if value == value else "falls among those that are never served"
        first = (
            f"No setting meets {slo}; nearest is {numbers}: {best.outlook.means['goodput_share']:.1%} of the requests "
            f"are within it, {worst.title} {reached}."
        )
    elif found.leave_alone:
        slo_met = f" and meets {slo}" if found.terms else ""
        first = f"Leave it alone: {numbers} is as good as anything tried{slo_met}."
    elif not found.terms:
        first = f"Set {numbers}: the most requests per second (no SLO was given)."
    else:
        doubt = "" if best.outlook.sure else ", though not in every seed"
        first = f"Set {numbers}: meets {slo}{doubt}."
    goodput = interval_text(best.outlook)
    offered = found.traffic.rate_per_s
    against = f" of {number(offered)} offered" if offered is not None else ""
    lines = [wrapped(first), shell_command(found.command)]
    _, remedies = serve_flags(best.settings, best.config.engine.name)
    if remedies:
        lines.append(wrapped(f"  which the server has no flag for here: {', '.join(remedies)}"))
    what = "goodput" if found.terms else "throughput"
    tokens_per_s = number(best.outlook.means["output_throughput_tok_per_s"])
    lines.append(wrapped(f"  {what} {goodput} requests/s{against}, {tokens_per_s} output tokens/s", 4))
    if not found.meets:
        lines.append(_needed(found))
    return "\n".join(lines)


def shell_command(command: str) -> str:
    """The command line, continued as a shell does where it is too long."""
    lines = wrap(command, line_width() - 6, break_on_hyphens=False)
    return "  " + " \\\n    ".join(lines)


def _needed(found: "Recommendation") -> str:
    """What it would take, where no setting will do."""
    lines = []
    if found.rate is not None:
        lines.append(f"it is met up to {number(found.rate.rate_per_s)} requests/s")
    elif found.traffic.rate_per_s is not None:
        lines.append("it is met at no rate: the SLO asks for more than a lone request gets, or for shorter prompts")
    enough = [relief.text for relief in found.reliefs if relief.outlook.meets]
    if enough:
        lines.append(f"it would be met with {' or '.join(enough)}")
    if found.replicas is not None:
        lines.append(f"{counted(found.replicas.count, 'replica')}{_each(found)} would carry this load")
    return "\n".join(wrapped(f"  needed: {line}", 4) for line in lines)


def _price(found: "Recommendation", price: float | None) -> str:
    from fastsim.analysis.recommend.answer import cost_per_million

    if price is None:
        return ""
    cost = cost_per_million(found.best.outlook, price)
    return "" if cost is None else f"Cost: {cost:.4g} per million output tokens, at {price:g} an hour for each replica."


def _terms(found: "Recommendation") -> str:
    outlook = found.best.outlook
    rows = []
    for k, (term, margin) in enumerate(zip(found.terms, outlook.margin_intervals, strict=True)):
        value = float(outlook.values_ms[:, k].mean())
        rows.append(
            [term.title, value, term.bound_ms, _percent(margin.mean), _percent(margin.low), _percent(margin.high)]
        )
    if not rows:
        return ""
    return table(["SLO", "ms", "bound ms", "margin", "95 % from", "to"], rows)


def _why(found: "Recommendation") -> str:
    means = found.best.outlook.means
    binding = found.binding
    if binding is None:
        text = "Why: nothing binds; a quarter more KV memory, compute, slots or budget would each change little."
    else:
        others = sorted((item for item in found.reliefs if item is not binding), key=lambda item: -item.gain)
        text = f"Why: bound by {binding.name}: {binding.text} would give {_gains(found, binding)}"
        text += f" ({others[0].text}: {_gains(found, others[0])})."
    seqs, tokens = found.best.numbers
    use = (
        f"Here {number(means['running_mean'])} requests run on average and at most {means['running_peak']:.0f} "
        f"of {seqs}, KV is {means['kv_use_mean']:.0%} used ({means['kv_use_peak']:.0%} at the peak), a step has "
        f"{number(means['batch_tokens_mean'])} of {tokens:,} tokens, {_preempted(means)}."
    )
    rows = [
        [
            f"{SHORT[item.key]} {item.value:,}",
            float(item.outlook.goodput.mean()),
            signed(item.gain),
            *judged(item.outlook),
        ]
        for item in found.alternatives
    ]
    header = ["instead", "goodput", "change (95 %)", "margin", "SLO"]
    return "\n".join([wrapped(text), wrapped(use), *([table_for(found, header, rows)] if rows else [])])


def table_for(found: "Recommendation", header: list[str], rows: list[list[object]]) -> str:
    """A table; without an SLO there is no margin, and goodput is throughput."""
    if not found.terms:
        kept = [k for k, name in enumerate(header) if name not in ("margin", "SLO")]
        header = ["throughput" if header[k] == "goodput" else header[k] for k in kept]
        rows = [[row[k] for k in kept] for row in rows]
    return table(header, rows)


def _preempted(means: dict[str, float]) -> str:
    if means["preemptions"] == 0:
        return "and nothing is preempted"
    return f"and {number(means['preemptions'])} preemptions recompute {means['recomputed_share']:.1%} of the tokens"


def _gains(found: "Recommendation", relief: object) -> str:
    goodput = f"{relief.goodput_gain:+.1%} goodput"  # type: ignore[attr-defined]
    if not found.terms:
        return goodput
    return f"{goodput} and {100 * relief.margin_gain:+.0f} points of margin"  # type: ignore[attr-defined]


def _edge(found: "Recommendation") -> str:
    rows = []
    for name, outlook in found.risks:
        overloaded = "-" if math.isnan(outlook.overloaded) else f"{outlook.overloaded:.0%}"
        rows.append([name, float(outlook.goodput.mean()), *judged(outlook), overloaded])
    lines = [table_for(found, ["load", "goodput", "margin", "SLO", "backlog grows"], rows)]
    if found.risks[0][1].overloaded >= 0.5:
        lines.append("The backlog grows already as given: a longer run would miss every bound.")
    return "\n".join(lines)


def _beside(found: "Recommendation") -> str:
    rows = []
    for name, option in (("runner-up", found.runner_up), ("current", found.current), ("KV-safe", found.kv_safe)):
        if option is not None:
            gain = found.best.gain_over(option)
            seqs, tokens = option.numbers
            outlook = option.outlook
            rows.append([name, seqs, tokens, float(outlook.goodput.mean()), signed(gain), *judged(outlook)])
    header = ["beside it", "seqs", "tokens", "goodput", "best gains (95 %)", "margin", "SLO"]
    lines = [table_for(found, header, rows)] if rows else []
    lines.append(wrapped(_kv_safe(found)))
    return "\n".join(lines)


def _kv_safe(found: "Recommendation") -> str:
    safe = found.kv_safe_num_seqs
    text = f"KV-safe: {safe} requests of mean length fit at full decode"
    if found.best.numbers[0] <= safe:
        return f"{text}, more than may run."
    if found.kv_safe is None:
        return f"{text}."
    gain = found.best.gain_over(found.kv_safe)
    if found.meets and not found.kv_safe.outlook.meets:
        return f"{text}, but keeping to it misses the SLO: not worth it."
    if gain.low is not None and gain.low > 0:
        lost = 1 - float(found.kv_safe.outlook.goodput.mean()) / float(found.best.outlook.goodput.mean())
        what = "goodput" if found.terms else "throughput"
        return f"{text}, but keeping to it costs {lost:.1%} of the {what}: not worth it."
    return f"{text}; no difference in goodput is shown: worth keeping if latency must be steady."


def _rate(found: "Recommendation", price: float | None) -> str:
    rate = found.rate
    if rate is None or not found.meets:
        return ""
    engine = rate.config.engine
    worst = rate.outlook.worst_term
    first = (
        f"{worst.name.upper()}{f' of {worst.class_name}' if worst.class_name else ''} gives way first." if worst else ""
    )
    text = (
        f"Highest rate: {number(rate.rate_per_s)} requests/s meets the SLO (95 % interval {number(rate.low_per_s)} to "
        f"{number(rate.high_per_s)}), with max_num_seqs {engine.max_num_seqs}, max_num_batched_tokens "
        f"{engine.max_num_batched_tokens}; {first}"
    )
    if rate.too_short:
        text += " The load is too short to tell: all its requests arrive while the first are served; offer more."
    return wrapped(text + _cost_there(rate.outlook, price))


def _replicas(found: "Recommendation", price: float | None) -> str:
    replicas = found.replicas
    if replicas is None or not found.meets:
        return ""
    engine = replicas.config.engine
    verb = "carries" if replicas.count == 1 else "carry"
    text = (
        f"Replicas: {replicas.count}{_each(found)} {verb} this load within the SLO (requests dealt in turn; worst "
        f"margin {_percent(replicas.outlook.worst_margin)}), each with max_num_seqs {engine.max_num_seqs}, "
        f"max_num_batched_tokens {engine.max_num_batched_tokens}"
    )
    if replicas.fewer is not None:
        verb = "misses" if replicas.count == 2 else "miss"
        text += f"; {replicas.count - 1} {verb} it ({_percent(replicas.fewer.worst_margin)})"
    return wrapped(text + "." + _cost_there(replicas.outlook, price))


def _each(found: "Recommendation") -> str:
    gpus = found.deployment.get("tensor_parallel", 1)
    return f" of {gpus} GPUs" if gpus > 1 else ""


def _cost_there(outlook: "Outlook", price: float | None) -> str:
    from fastsim.analysis.recommend.answer import cost_per_million

    cost = None if price is None else cost_per_million(outlook, price)
    return "" if cost is None else f" That is {cost:.4g} per million output tokens."


def _notes(found: "Recommendation") -> str:
    lines = [f"note: {note}" for note in found.notes]
    if found.meets and found.best.outlook.sure is False:
        lines.append("note: a margin's interval includes 0; --seeds 32 would tell, or a tighter SLO leave room")
    lines.append(
        f"{found.runs} simulations in {found.seconds:.1f} s: {found.search_runs} to search {found.grid_size:,} "
        f"settings, then {found.seeds} fresh seeds of {found.traffic.num_requests:,} requests each"
    )
    return "\n".join(wrapped(line) for line in lines)


def interval_text(outlook: "Outlook") -> str:
    """Goodput with its interval."""
    from fastsim.analysis.recommend.slo import Interval

    interval = Interval.of(outlook.goodput)
    if interval.low is None or interval.high is None:
        return number(interval.mean)
    return f"{number(interval.mean)} ({number(max(interval.low, 0.0))} to {number(interval.high)})"


def signed(interval: "Interval") -> str:
    """A relative change with its interval."""
    if interval.mean != interval.mean:
        return "-"
    if interval.low is None or interval.high is None:
        return _change(interval.mean)
    return f"{_change(interval.mean)} ({_change(interval.low)} to {_change(interval.high)})"


def _change(share: float) -> str:
    if share > MOST:
        return f">{MOST:.0f}x"
    return f"{share:+.0%}" if abs(share) >= 0.1 else f"{share:+.1%}"


def _percent(value: float | None) -> str:
    if value is None or value != value:
        return "-"
    return "< -99 %" if value <= -1 else f"{100 * value:.0f} %"


def judged(outlook: "Outlook") -> tuple[str, str]:
    """The worst margin, and whether the SLO is met."""
    if not outlook.terms:
        return "-", "-"
    verdict = "meets" if outlook.meets else "misses"
    return _percent(outlook.worst_margin), verdict if outlook.sure else f"{verdict}?"
