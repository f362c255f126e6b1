"""SGLang's admission: conservativeness, declared limits, and what ignore_eos hides."""

import polars as pl

from sweeps.answers.common import THROUGHPUT, Section, Setup, mean_of, paired, rows_of, section
from sweeps.answers.text import change, num, pct

SHARE, FACTOR, IGNORES = (
    "engine.sglang.schedule_conservativeness",
    "workload.max_tokens.factor",
    "workload.ignore_eos",
)
RETRACTIONS, LOST = "sglang_retractions", "recomputed_tokens"
DEFAULT = 1.0


def answer_sglang(setup: Setup) -> Section:
    """Conservativeness against its default, under exact and generous limits, and with the stop token ignored."""
    frame = rows_of("sglang", setup, [f"{SHARE}=0,0.3,1"])
    exact, generous = (frame.filter(pl.col(FACTOR) == factor, ~pl.col(IGNORES)) for factor in (1, 1.25))
    ignoring = frame.filter(pl.col(FACTOR) == 1, pl.col(IGNORES))
    shares = sorted(frame[SHARE].unique().to_list())
    served = {share: paired(exact, SHARE, share, THROUGHPUT, DEFAULT) for share in shares if share != DEFAULT}
    lowest = served[shares[0]]
    at_default = frame.filter(pl.col(SHARE) == DEFAULT, pl.col(FACTOR) == 1)
    hidden = paired(at_default, IGNORES, True, THROUGHPUT, False)
    generous_cost = paired(frame.filter(pl.col(SHARE) == DEFAULT, ~pl.col(IGNORES)), FACTOR, 1.25, THROUGHPUT, 1.0)
    retractions = {share: mean_of(exact.filter(pl.col(SHARE) == share), RETRACTIONS) for share in shares}
    seen = mean_of(ignoring.filter(pl.col(SHARE) == DEFAULT), RETRACTIONS)
    return section(
        "sglang",
        frame,
        question="What do SGLang's conservativeness and declared limits decide, and what does ignore_eos hide?",
        conclusion=(
            f"Lowering schedule_conservativeness from {DEFAULT:g} to {shares[0]:g} serves {change(lowest)}, with "
            f"{num(retractions[shares[0]])} instead of {num(retractions[DEFAULT])} retractions; a benchmark that "
            f"ignores the stop token serves {change(hidden)} and sees {num(seen)} retractions."
        ),
        sentences=[
            "After a retraction the reserved share jumps to an estimate, and falls again by a step proportional to the "
            "conservativeness: at 0 it never does until the server is idle, so admission stays shut.",
            f"Limits declared a quarter above the output serve {change(generous_cost)} at the default.",
            "With ignore_eos all that was declared is reserved, whatever the conservativeness.",
        ],
        header=["conservativeness", "requests/s", "less or more", "retractions", "recomputed tokens", "limits x 1.25"],
        rows=[
            [
                f"{share:g}",
                num(mean_of(exact.filter(pl.col(SHARE) == share), THROUGHPUT)),
                "" if share == DEFAULT else pct(served[share]),
                num(retractions[share]),
                num(mean_of(exact.filter(pl.col(SHARE) == share), LOST), 0),
                num(mean_of(generous.filter(pl.col(SHARE) == share), THROUGHPUT)),
            ]
            for share in shares
        ],
        notes=["requests/s of the last column: with limits declared a quarter above the output."],
    )
