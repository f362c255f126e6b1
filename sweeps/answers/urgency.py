"""What urgent requests gain and what the others pay: priority.toml, class by class."""

import polars as pl

import fastsim
from sweeps.answers.common import Interval, Section, Setup, grid_of, mean_of, paired, rows_of, section
from sweeps.answers.text import change, listed, num

SCENARIO, RULE = "choice.scenario", "choice.rule"
URGENT, OTHERS = "urgent", "others"
_TTFT, _E2E = "ttft_served_mean_ms", "e2e_served_mean_ms"


def answer_priority(setup: Setup) -> Section:
    """Rules against first come, first served: for the urgent class and for the rest."""
    whole = rows_of("priority", setup)
    frame = _by_class(setup)
    rules = [rule for rule in frame[RULE].unique(maintain_order=True) if rule != "fcfs"]
    scenarios = frame[SCENARIO].unique(maintain_order=True).to_list()

    def effect(scenario: str, rule: str, kind: str, metric: str) -> Interval:
        cell = frame.filter(pl.col(SCENARIO) == scenario, pl.col("choice.class") == kind)
        return paired(cell, RULE, rule, metric, "fcfs", relative=False)

    rows = []
    for scenario in scenarios:
        for rule in ("fcfs", *rules):
            mine = whole.filter(pl.col(SCENARIO) == scenario, pl.col(RULE) == rule)
            shown = [
                num(mean_of(_class(frame, scenario, rule, kind), metric))
                if rule == "fcfs"
                else num(effect(scenario, rule, kind, metric), 0, signed=True)
                for kind in (URGENT, OTHERS)
                for metric in (_TTFT, _E2E)
            ]
            jain, wait = mean_of(mine, "jain_slowdown").mean, mean_of(mine, "longest_admission_wait_ms").mean / 1000
            rows.append([f"{scenario}: {rule}", *shown, f"{jain:.3f}", f"{wait:.1f}"])
    free, full, many, short = scenarios
    plain, slot = "priority", "priority, slot_preempt"
    idle = [
        rule for rule in rules if effect(free, rule, URGENT, _TTFT).shown or effect(free, rule, OTHERS, _TTFT).shown
    ]
    vain = {
        rule: mean_of(whole.filter(pl.col(SCENARIO) == short, pl.col(RULE) == rule), "ineffective_preemptions")
        for rule in (slot, "slot_preempt, no preflight")
    }

    def left(scenario: str, rule: str) -> str:
        return num(mean_of(_class(frame, scenario, rule, URGENT), _TTFT), 0)

    def paid(scenario: str, rule: str) -> str:
        cell = frame.filter(pl.col(SCENARIO) == scenario, pl.col("choice.class") == OTHERS)
        return change(paired(cell, RULE, rule, _E2E, "fcfs"), "longer", "shorter")

    gap = paired(
        frame.filter(pl.col(SCENARIO) == full, pl.col("choice.class") == URGENT),
        RULE,
        slot,
        _TTFT,
        plain,
        relative=False,
    )
    return section(
        "priority",
        whole,
        question="Does an urgent request get in at once, and what do the others pay?",
        conclusion=(
            "While slots are free, "
            f"{'no rule changes anything' if not idle else f'only {listed(idle)} change anything'}. "
            f"With slots full, an urgent request waits {left(full, 'fcfs')} ms for its first token under fcfs, "
            f"{left(full, plain)} ms under priority (it needs a completion), and {left(full, slot)} ms with "
            "slot_preempt" + (", which fixes it." if gap.high < 0 else ", which is not shown to help.")
        ),
        sentences=[
            f"In a steady overload with one in ten urgent, its first token comes after {left(many, 'fcfs')}, "
            f"{left(many, plain)} and {left(many, slot)} ms; the others' E2E is {paid(many, plain)} under priority "
            f"and {paid(many, slot)} with slot_preempt.",
            f"With KV memory short as well: {left(short, 'fcfs')}, {left(short, plain)} and {left(short, slot)} ms, "
            f"others' E2E {paid(short, plain)} and {paid(short, slot)}; without preflight "
            f"{num(vain['slot_preempt, no preflight'])} preemptions a run let nobody in ({num(vain[slot])} with it).",
            f"Aging (one level a second) leaves the urgent {left(many, 'aging')} ms in the steady overload, with "
            f"slot_preempt {left(many, 'aging, slot_preempt')} ms; boost after one preemption "
            f"{left(many, 'slot_preempt, boost 1')} ms.",
            f"Shortest prompt first makes the longest wait {_wait(whole, many, 'shortest first')} s instead of "
            f"{_wait(whole, many, 'fcfs')} s.",
        ],
        header=[
            "scenario: rule",
            "urgent TTFT",
            "urgent E2E",
            "others TTFT",
            "others E2E",
            "Jain's index",
            "longest wait, s",
        ],
        rows=rows,
        notes=[
            "Means in ms; in the rows of rules, differences to fcfs. Jain's index is of slowdown over all requests."
        ],
    )


def _wait(whole: pl.DataFrame, scenario: str, rule: str) -> str:
    mine = whole.filter(pl.col(SCENARIO) == scenario, pl.col(RULE) == rule)
    mean = mean_of(mine, "longest_admission_wait_ms")
    return num(Interval(mean.mean / 1000, mean.low / 1000, mean.high / 1000), 1)


def _class(frame: pl.DataFrame, scenario: str, rule: str, kind: str) -> pl.DataFrame:
    return frame.filter(pl.col(SCENARIO) == scenario, pl.col(RULE) == rule, pl.col("choice.class") == kind)


def _by_class(setup: Setup) -> pl.DataFrame:
    """Mean TTFT and E2E of the urgent and of the others, one row a run and class: result columns know no classes."""
    grid = grid_of("priority", setup)
    frames = []
    for index in range(grid.size):
        requests = fastsim.simulate(grid.config(index)).to_polars()
        labels = [pl.lit(value).alias(name) for name, value in grid.values(index).items()]
        frames.append(
            requests.group_by(
                pl.when(pl.col("priority") < 0).then(pl.lit(URGENT)).otherwise(pl.lit(OTHERS)).alias("choice.class")
            )
            .agg(
                ((pl.col("first_token_us") - pl.col("arrival_us")).mean() / 1000).alias(_TTFT),
                ((pl.col("finish_us") - pl.col("arrival_us")).mean() / 1000).alias(_E2E),
            )
            .with_columns(labels)
        )
    return pl.concat(frames).sort("workload.seed", maintain_order=True)
