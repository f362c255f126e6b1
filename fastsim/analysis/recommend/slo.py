"""What a service level asks of a run, and how much a setting is worth under it.

A setting meets the SLO when, for each of its terms, the mean over seeds of the margin is not negative. The margin of a
run is 1 - percentile / bound: 0.2 says that a fifth of the bound is left. Requests that were not served count as
infinitely late, and no margin is taken for less than -1, twice the bound: means over seeds of what has no limit would
hang on the worst seed there happens to be, and no interval could be stated.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.analysis.compare.bootstrap import few_seeds_note, mean_intervals, two_groups
from fastsim.analysis.evaluate.evaluate import MetricTable
from fastsim.analysis.terms import Term

Floats = npt.NDArray[np.float64]

WORST_MARGIN = -1.0
MARGIN_WEIGHT = 0.02
"""What the whole margin is worth against all the goodput: of two settings with goodput alike to a percent, the one
with more room left wins."""


def margins(table: MetricTable, terms: tuple[Term, ...]) -> Floats:
    """Margin of each row and term, at least WORST_MARGIN; float64, shape (rows, terms).

    Without terms there is one column: minus the recomputed share, so that of equals the less wasteful wins.
    """
    if not terms:
        return np.asarray(-np.nan_to_num(table["recomputed_share"])[:, None])
    columns = []
    for term in terms:
        margin = 1.0 - table[term.column] / term.bound_ms
        # Null where the censored begin; but also where no request has a value, as TPOT when all outputs are one token
        nobody = ~(table[term.censored] > 0)
        columns.append(np.where(np.isnan(margin), np.where(nobody, 1.0, WORST_MARGIN), margin))
    return np.asarray(np.maximum(np.stack(columns, axis=1), WORST_MARGIN))


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95 % interval; without one (one seed) `low` and `high` are None."""

    mean: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Floats) -> "Interval":
        """The interval of values by seed, shape (seeds,); all NaN gives a mean of NaN."""
        mean, low, high = (float(part[0]) for part in mean_intervals(values[:, None]))
        return cls(mean, _finite(low), _finite(high))

    def to_json(self) -> list[float | None]:
        """Mean, low, high."""
        return [_finite(self.mean), self.low, self.high]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


SHOWN = (
    "output_throughput_tok_per_s",
    "request_throughput_req_per_s",
    "kv_use_mean",
    "kv_use_peak",
    "running_mean",
    "running_peak",
    "waiting_peak",
    "batch_tokens_mean",
    "batch_tokens_peak",
    "busy_share",
    "recomputed_share",
    "preemptions",
    "goodput_share",
    "num_requests",
    "unservable",
    "completed",
    "unloaded_e2e_mean_ms",
)


@dataclass(frozen=True)
class Outlook:
    """What one setting does under one load, over seeds.

    Attributes
    ----------
    terms
        Of the SLO.
    goodput
        Requests per second within the SLO, float64, shape (seeds,).
    margins
        Float64, shape (seeds, terms); see `margins`.
    values_ms
        The percentiles themselves, NaN where they fall among the unserved; shape (seeds, terms).
    means
        Means over seeds of what explains a run (`SHOWN`); NaN where null.
    overloaded
        Share of the seeds in which the backlog kept growing, of those that tell; NaN where none does: a closed loop,
        or arrivals that are too short.
    """

    terms: tuple[Term, ...]
    goodput: Floats
    margins: Floats
    values_ms: Floats
    means: dict[str, float]
    overloaded: float

    @classmethod
    def of(cls, table: MetricTable, rows: slice | npt.NDArray[np.intp], terms: tuple[Term, ...]) -> "Outlook":
        """The outlook of some rows of a table: one a seed."""
        part = MetricTable(table.workload_ids, table.floats[rows], table.ints[rows], table.class_names)
        values = [part[term.column] for term in terms]
        means = {name: float(part[name].mean()) for name in SHOWN}
        grew = part["overloaded"][~np.isnan(part["overloaded"])]
        return cls(
            terms,
            np.nan_to_num(part["goodput_req_per_s"]),
            margins(part, terms),
            np.stack(values, axis=1) if values else np.empty((len(part.floats), 0)),
            means,
            float(grew.mean()) if grew.size else math.nan,
        )

    @property
    def worst_margin(self) -> float:
        """The least of the terms' mean margins."""
        return float(self.margins.mean(axis=0).min())

    @property
    def worst_term(self) -> Term | None:
        """The term with the least margin; None without an SLO."""
        return self.terms[int(self.margins.mean(axis=0).argmin())] if self.terms else None

    @property
    def meets(self) -> bool:
        """Whether the SLO is met: something completes, and no mean margin is negative."""
        return self.serves and (not self.terms or self.worst_margin >= 0)

    @property
    def serves(self) -> bool:
        """Whether any request completes in any seed."""
        return self.means["completed"] > 0

    @property
    def sure(self) -> bool:
        """Whether the margin of every term has an interval that leaves no doubt, either way."""
        if not self.terms:
            return True
        lows, highs = zip(*((each.low, each.high) for each in self.margin_intervals), strict=True)
        if self.meets:
            return all(low is not None and low >= 0 for low in lows)
        return any(high is not None and high < 0 for high in highs)

    @property
    def margin_intervals(self) -> list[Interval]:
        """Of each term, over seeds."""
        return [Interval.of(self.margins[:, k]) for k in range(len(self.terms))]

    @property
    def few_seeds(self) -> str:
        """What so few seeds cannot tell, as a sentence; empty: there are enough."""
        values = {"goodput": self.goodput, "the margin of the SLO": self.margins.min(axis=1)}
        grouped = [name for name, column in values.items() if two_groups(column[:, None])[0]]
        return few_seeds_note(len(self.goodput), " and ".join(grouped))

    @property
    def by_seed(self) -> Floats:
        """What the setting is worth in each seed: goodput, and a little for the margin; shape (seeds,)."""
        worst = np.clip(self.margins.min(axis=1), -1.0, 1.0)
        return np.asarray(self.goodput * (1.0 + MARGIN_WEIGHT * worst))

    @property
    def worth(self) -> float:
        """Mean over seeds of `by_seed`."""
        return float(self.by_seed.mean())

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Greater is better: what meets the SLO before what does not, then by worth; where all is lost, by margin."""
        return (self.meets, self.worth, self.worst_margin)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON; null where a percentile falls among the unserved."""
        return {
            "meets": self.meets,
            "goodput_req_per_s": Interval.of(self.goodput).to_json(),
            "terms": {
                term.column: {
                    "bound_ms": term.bound_ms,
                    "mean_ms": _finite(float(self.values_ms[:, k].mean())),
                    "margin": interval.to_json(),
                }
                for k, (term, interval) in enumerate(zip(self.terms, self.margin_intervals, strict=True))
            },
            "means": {name: _finite(value) for name, value in self.means.items()},
            "overloaded_share": _finite(self.overloaded),
        }
