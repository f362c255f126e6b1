"""What becomes of a million settings of one overloaded server: verdicts of a sample of million.toml."""

import polars as pl

import fastsim
from sweeps.answers.common import Section, Setup, grid_of, section
from sweeps.answers.text import pct

SAMPLE, TINY_SAMPLE = 4096, 64
FEW = 0.05
RATE, LOAD, LATE = "workload.arrival.rate_per_s", "offered_load", "late_share"
SLOTS = "engine.max_num_seqs"


def answer_million(setup: Setup) -> Section:
    """Shares of the verdicts by rate, and what stands behind the ok ones."""
    size = TINY_SAMPLE if setup.tiny else SAMPLE
    out = setup.out / ("million-tiny" if setup.tiny else "million")
    fastsim.sweep(grid_of("million", setup), out, workers=setup.workers, fresh=setup.fresh, sample=size)
    frame = fastsim.scan(out).collect().with_columns(pl.col(pl.Enum).cast(pl.String))
    shares = frame["verdict"].value_counts(sort=True, normalize=True)
    share = dict(shares.iter_rows())
    ok = frame.filter(pl.col("verdict") == "ok")
    heavy = ok.filter((pl.col(LOAD) > 1) & (pl.col("completed") < 0.9 * pl.col("num_requests")))
    worst = (
        frame.sort("request_throughput_req_per_s")
        .group_by(RATE, SLOTS, maintain_order=True)
        .agg(pl.col("verdict").first())
    )
    names = list(share)

    def of(verdict: str) -> str:
        return pct(share.get(verdict, 0.0), signed=False)

    rows = []
    for (rate,), mine in sorted(frame.group_by([RATE]), key=lambda pair: pair[0]):
        found = dict(mine["verdict"].value_counts(normalize=True).iter_rows())
        load = float(mine[LOAD].median() or 0.0)
        rows.append([f"{rate:g}", f"{load:.1f}", *(pct(found.get(name, 0.0), signed=False) for name in names)])
    least, most = float(frame[LOAD].min() or 0.0), float(frame[LOAD].max() or 0.0)
    return section(
        "million",
        frame,
        drawn=("overloaded", "thrash", "ok"),
        question="Of a million settings of an overloaded server, how many would one sign?",
        conclusion=(
            f"{'Few' if share.get('ok', 0.0) < FEW else 'Some'}: {of('overloaded')} are overloaded, {of('thrash')} "
            f"thrash, {of('ok')} are ok, under loads of {least:.2g} to {most:.3g} times what there is."
        ),
        sentences=[
            f"Of {ok.height} ok settings {heavy.height} leave more than a tenth unfinished at an offered load above 1, "
            f"and of {worst.height} groups of a rate and a number of slots the row of least throughput is ok in "
            f"{worst.filter(pl.col('verdict') == 'ok').height}.",
        ],
        header=["offered a second", "offered load, median", *names],
        rows=rows,
        options=f" --sample {size}",
        notes=["A sample: every value of every axis in its share."],
    )
