"""Engines beside each other: asynchronous scheduling, BLIS beside vLLM, and vllm-rlt's livelock."""

import polars as pl

import fastsim
from sweeps.answers.common import (
    FOLDER,
    SEED,
    THROUGHPUT,
    Interval,
    Section,
    Setup,
    grid_of,
    mean_of,
    paired,
    rows_of,
    section,
)
from sweeps.answers.text import change, listed, num, pct

RATE, BLOCKS, CAP = "workload.arrival.rate_per_s", "engine.num_gpu_blocks", "engine.max_num_seqs"
NAME, ENGINE, ACCOUNTING = "engine.name", "choice.engine", "choice.accounting"
SYNC, ASYNC = "vllm-0.33.0", "vllm-0.33.0-async"
BLIS, VLLM, PLAIN = "BLIS", "vLLM", "vLLM, no caching"
BEFORE, AFTER = "before", "after"
TTFT, E2E = "ttft_served_p50_ms", "e2e_served_mean_ms"
MATTERS, TTFT_MATTERS = 0.01, 0.1
"""A planner cares about one percent of throughput, and about a tenth of the time to the first token."""


def best_cap(rows: pl.DataFrame) -> int:
    """The max_num_seqs that serves the most; of equals the one with the shorter E2E, then the smaller one."""
    means = rows.group_by(CAP).agg(pl.col(THROUGHPUT, E2E).mean())
    return int(means.sort([THROUGHPUT, E2E, CAP], descending=[True, False, False])[CAP][0])


def _cells(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """The rows of each load and pool, with their name."""
    return [
        (f"{rate:g}/s, {blocks:,} blocks", frame.filter(pl.col(RATE) == rate, pl.col(BLOCKS) == blocks))
        for rate in frame[RATE].unique().sort()
        for blocks in frame[BLOCKS].unique().sort()
    ]


def _farthest(named: dict[str, Interval]) -> tuple[str, Interval]:
    """The cell with the largest effect, shown ones first."""
    return max(named.items(), key=lambda item: (item[1].shown, abs(item[1].mean)))


# --- asynchronous scheduling ------------------------------------------------------------------------------------------


def answer_async(setup: Setup) -> Section:
    """Asynchronous against synchronous scheduling, over load and KV size."""
    frame = rows_of("async", setup, [f"{RATE}=1,10", f"{BLOCKS}=2500,15000"])
    cells = _cells(frame)
    open_cells = [(name, cell.filter(pl.col(CAP) == cell[CAP].max())) for name, cell in cells]
    served = {name: paired(cell, NAME, ASYNC, THROUGHPUT, SYNC) for name, cell in cells}
    evicted = {name: paired(cell, NAME, ASYNC, "preemptions", SYNC, relative=False) for name, cell in cells}
    later = {name: paired(cell, NAME, ASYNC, TTFT, SYNC) for name, cell in open_cells}
    later_ms = {name: paired(cell, NAME, ASYNC, TTFT, SYNC, relative=False) for name, cell in open_cells}
    first_ms = {name: mean_of(cell.filter(pl.col(NAME) == SYNC), TTFT) for name, cell in open_cells}
    cost = {name: cost for name, cell in cells if (cost := _cap_cost(cell)) is not None}
    apart = [name for name, each in served.items() if each.shown and abs(each.mean) >= MATTERS]
    slow = [name for name, each in later.items() if each.low > 0 and each.mean >= TTFT_MATTERS]
    far, farthest = _farthest(served)
    most = max(slow, key=lambda name: later[name].mean, default="")
    return section(
        "async",
        frame,
        question="Where does asynchronous scheduling change a planner's answer?",
        conclusion=(
            f"{'Nowhere in throughput' if not apart else f'In throughput in {len(apart)} of {len(cells)} cells'} "
            f"(farthest: {pct(farthest, 2)} requests/s, {far}), and in the time to the first token "
            + (
                f"only where nobody queues: by {num(later_ms[most])} ms, one step, which is "
                f"{pct(later[most], 0, signed=False)} of {num(first_ms[most])} ms ({most})."
                if slow
                else "nowhere by 10 % or more."
            )
        ),
        sentences=[
            f"TTFT p50 is 10 % later or more in {len(slow)} of {len(cells)} cells. A request that arrives during a "
            "step is seen when the next one is already scheduled, so it waits for one step more: a TTFT limit of a few "
            "steps feels it, one of a second does not.",
            "Over all cells preemptions differ by "
            f"{num(paired(frame, NAME, ASYNC, 'preemptions', SYNC, relative=False), 1, signed=True)} a run, "
            f"E2E by {pct(paired(frame, NAME, ASYNC, E2E, SYNC), 2)}.",
            _cap_sentence(cost, len(cells)),
        ],
        header=["load", "requests/s", "preemptions", "TTFT p50, ms", "later by, ms"],
        rows=[
            [
                name,
                pct(served[name], 2),
                num(evicted[name], 1, signed=True),
                f"{first_ms[name].mean:,.0f}",
                num(later_ms[name], 0, signed=True),
            ]
            for name, _ in cells
        ],
        notes=[
            f"Asynchronous less synchronous; means over max_num_seqs, TTFT at {frame[CAP].max()}. Both have the same "
            "step times: that the CPU's work overlaps with the GPU's would be a smaller b0_us, and is not in these "
            "figures."
        ],
    )


def _cap_cost(cell: pl.DataFrame) -> Interval | None:
    """Throughput that the synchronous engine's best cap costs the asynchronous one; None where they are the same."""
    mine = cell.filter(pl.col(NAME) == ASYNC)
    chosen, best = best_cap(cell.filter(pl.col(NAME) == SYNC)), best_cap(mine)
    return None if chosen == best else paired(mine, CAP, chosen, THROUGHPUT, best)


def _cap_sentence(cost: dict[str, Interval], cells: int) -> str:
    if not cost:
        return f"Both name the same best max_num_seqs in all {cells} cells."
    worst, most = _farthest(cost)
    return (
        f"They name the same best max_num_seqs in {cells - len(cost)} of {cells} cells; taking the synchronous one's "
        f"costs at most {pct(most)} ({worst})."
    )


# --- BLIS -------------------------------------------------------------------------------------------------------------


def answer_blis_vs_vllm(setup: Setup) -> Section:
    """Which max_num_seqs BLIS advises, and what following it costs on vLLM."""
    frame = rows_of("blis_vs_vllm", setup, [f"{RATE}=2,10", f"{BLOCKS}=3000,15000", f"{CAP}=16,64,256"])
    cells = _cells(frame)
    rows = []
    cost: dict[str, Interval] = {}
    forecast: dict[str, Interval] = {}
    largest: dict[str, Interval] = {}
    quiet = []
    for name, cell in cells:
        of = {engine: cell.filter(pl.col(ENGINE) == engine) for engine in (BLIS, VLLM)}
        chosen, best = best_cap(of[BLIS]), best_cap(of[VLLM])
        if chosen != best:
            cost[name] = paired(of[VLLM], CAP, chosen, THROUGHPUT, best)
        forecast[name] = paired(cell.filter(pl.col(CAP) == best), ENGINE, BLIS, THROUGHPUT, VLLM)
        largest[name] = paired(cell.filter(pl.col(CAP) == cell[CAP].max()), ENGINE, BLIS, THROUGHPUT, VLLM)
        if not cell.filter(pl.col(CAP) == best)["preemptions"].sum():
            quiet.append(name)
        lost = pct(cost[name]) if name in cost else "the same"
        rows.append([name, str(chosen), str(best), lost, pct(forecast[name])])
    misled = {name: each for name, each in cost.items() if each.high < 0 and each.mean <= -MATTERS}
    worst, most = _farthest(misled) if misled else ("", Interval(0.0, 0.0, 0.0))
    far, farthest = _farthest(forecast)
    deep, deepest = _farthest(largest)
    calm = [abs(forecast[name].mean) for name in quiet]
    return section(
        "blis_vs_vllm",
        frame,
        question="Where does BLIS mislead a planner of vLLM?",
        conclusion=(
            f"Where requests are preempted: in {len(misled)} of {len(cells)} cells the max_num_seqs that BLIS calls "
            f"best costs vLLM 1 % of its requests/s or more, at worst {pct(most)} ({worst})."
            if misled
            else f"In its choice nowhere: in none of {len(cells)} cells does BLIS's best max_num_seqs cost vLLM 1 %."
        ),
        sentences=[
            f"At vLLM's own best setting BLIS forecasts {change(farthest)} requests/s in the farthest cell ({far})"
            + (
                f", and is within {pct(max(calm), signed=False)} in the {len(quiet)} cells where neither preempts."
                if calm
                else "."
            ),
            f"With max_num_seqs {frame[CAP].max()} it forecasts {change(deepest)} in the farthest cell ({deep}).",
            "The reason is what a preemption keeps: BLIS starts the request again and generates its output anew, vLLM "
            "keeps the tokens and computes only their KV again, and admits a request only if all of it fits.",
            "Prefix caching, which is always on under BLIS's rules, is worth "
            f"{pct(paired(frame, ENGINE, VLLM, THROUGHPUT, PLAIN))} to vLLM here.",
        ],
        header=["load", "BLIS's best", "vLLM's", "costs vLLM", "forecast off by"],
        rows=rows,
        notes=[
            "The best max_num_seqs of 16, 32, 64, 128 and 256 by either engine; requests/s of vLLM at BLIS's best over "
            "those at its own; BLIS's requests/s over vLLM's, both at vLLM's best. The same requests and step times."
        ],
    )


# --- vllm-rlt ---------------------------------------------------------------------------------------------------------


def answer_livelock(setup: Setup) -> Section:
    """How often vllm-rlt's admission locks itself up, before and after its accounting was fixed."""
    frame = rows_of("livelock", setup)
    keys = [SEED, RATE, BLOCKS, CAP]
    both = frame.filter(pl.col(ACCOUNTING) == BEFORE).join(
        frame.filter(pl.col(ACCOUNTING) == AFTER), on=keys, suffix="_after", validate="1:1"
    )
    both = both.with_columns(
        (~pl.col("livelock") & pl.col("livelock_after")).alias("only_after"),
        (pl.col("num_requests") - pl.col("unservable") - pl.col("completed")).alias("left"),
        (pl.col("num_requests") - pl.col("unservable") - pl.col("completed_after")).alias("left_after"),
    )
    locked, remaining = both.filter("livelock"), both.filter("livelock_after")
    periods = _periods(setup, remaining["config_id_after"].to_list())

    def shares(part: pl.DataFrame) -> list[str]:
        return [pct(mean_of(part, name), 2, signed=False) for name in ("livelock", "livelock_after", "only_after")]

    def by(axis: str, text: str) -> list[list[str]]:
        levels = both[axis].unique().sort()
        return [[text.format(level), *shares(both.filter(pl.col(axis) == level))] for level in levels]

    low, high = both[RATE].min(), both[RATE].max()
    factors = (("arrival rate", RATE), ("pool", BLOCKS), ("max_num_seqs", CAP))
    spread = [(name, _spread(both, axis)) for name, axis in factors]
    figures = {accounting: _seed_figures(accounting == AFTER) for accounting in (BEFORE, AFTER)}
    return section(
        "livelock",
        frame,
        drawn=("before", "after"),
        question="How often does vllm-rlt's bounded bypass lock itself up on a tight cache, and after its fix?",
        conclusion=(
            f"Before the fix {pct(mean_of(both, 'livelock'), 2, signed=False)} of {both.height:,} tight-cache "
            f"workloads end in a livelock, after it {pct(mean_of(both, 'livelock_after'), 3, signed=False)}: "
            + (
                f"{remaining.height:,} instead of {locked.height:,}, so the fix is no cure."
                if remaining.height
                else "none is left."
            )
        ),
        sentences=[
            f"It cures {locked.filter(~pl.col('livelock_after')).height:,}, leaves "
            f"{locked.filter('livelock_after').height:,}, and locks up {both['only_after'].sum():,} that ran before.",
            "What makes it likely: before the fix it is "
            + listed([f"{times:.1f} times as frequent at the worst {name} as at the best" for name, times in spread])
            + f"; {_share(both, low)} when a request comes every {1e6 / low:.0f} steps, {_share(both, high)} when one "
            "comes every step.",
            f"A locked run leaves {_mean(locked, 'left')} of 10 requests unserved before the fix"
            + (f", {_mean(remaining, 'left_after')} after it." if remaining.height else "."),
            f"After the fix the cycle has {_period_text(periods)}." if periods else "",
        ],
        header=["workloads", "before", "after", "only after"],
        rows=[
            ["seedfigures_nowave", *figures.values(), "-"],
            ["all", *shares(both)],
            *by(RATE, "{:,.0f} requests/s"),
            *by(BLOCKS, "{:,} blocks"),
            *by(CAP, "max_num_seqs {}"),
        ],
        notes=[
            "First row: completed of 10 / preemptions / steps, with 500 steps at most, of the workload that gives the "
            "figures of upstream's own test (3 and 10 completed, 460 and 11 preemptions). A step takes one microsecond."
        ],
    )


def _share(both: pl.DataFrame, rate: float) -> str:
    return pct(mean_of(both.filter(pl.col(RATE) == rate), "livelock"), 2, signed=False)


def _spread(both: pl.DataFrame, axis: str) -> float:
    """The share of livelocks at the axis's worst value over that at its best one; 1 where there are none at all."""
    shares = both.group_by(axis).agg(pl.col("livelock").mean())["livelock"].sort()
    return shares[-1] / shares[0] if shares[0] else float("inf") if shares[-1] else 1.0


def _mean(rows: pl.DataFrame, column: str) -> str:
    return f"{rows[column].mean():.1f}" if rows.height else "none"


def _periods(setup: Setup, indices: list[int]) -> dict[int, int]:
    """How many of these configurations cycle with which period."""
    grid = grid_of("livelock", setup)
    found: dict[int, int] = {}
    for index in indices:
        period = fastsim.simulate(grid.config(index)).metrics["rlt_livelock_period"]
        found[period] = found.get(period, 0) + 1
    return dict(sorted(found.items()))


def _period_text(periods: dict[int, int]) -> str:
    return listed([f"{period} step{'s' * (period > 1)} in {count} runs" for period, count in periods.items()])


def _seed_figures(fixed: bool) -> str:
    """Completed, preemptions and steps of the known workload under either accounting."""
    flags = [f"engine.{key}={str(fixed).lower()}" for key in ("count_restores", "blocked_checks_limit")]
    metrics = fastsim.simulate(fastsim.load_config(FOLDER / "data" / "seedfigures_nowave.toml", flags)).metrics
    steps = round(metrics["simulated_s"] * 1e6)
    return f"{metrics['completed']} / {metrics['preemptions']} / {steps}"
