"""What a service level asks for, term by term: `slo.*`, and the bounds of classes of requests."""

from dataclasses import dataclass

from fastsim.config import Config, SloConfig
from fastsim.errors import InputError
from fastsim.metrics.columns import SLO_NAMES

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True)
class Term:
    """One demand: `percentile` of `name` (ttft, tpot, e2e) at most `bound_ms`, of all requests or of one class."""

    name: str
    percentile: int
    bound_ms: float
    class_name: str = ""

    @property
    def column(self) -> str:
        """The result column that it looks at."""
        return self._of(f"{self.name}_p{self.percentile}_ms")

    @property
    def censored(self) -> str:
        """The result column that says how many have no such latency."""
        return self._of(f"{self.name}_censored_share")

    @property
    def title(self) -> str:
        """`TTFT p99`, or `TTFT p99 of chat`."""
        of = f" of {self.class_name}" if self.class_name else ""
        return f"{self.name.upper()} p{self.percentile}{of}"

    @property
    def text(self) -> str:
        """`TTFT p99 <= 2000 ms`."""
        return f"{self.title} <= {self.bound_ms:g} ms"

    def _of(self, column: str) -> str:
        return f"{column}[{self.class_name}]" if self.class_name else column


def slo_terms(config: Config, percentile: int = 99) -> tuple[Term, ...]:
    """The terms of a configuration's `slo.*` keys; none: whatever serves the most requests is best.

    Where a class of requests has bounds of its own, each class has its terms, and what it does not say it has from
    `slo.*`.

    Raises
    ------
    InputError
        When rows have no such percentile.
    """
    if percentile not in PERCENTILES:
        raise InputError(f"--percentile {percentile}, but one of 50, 90, 95, 99 was expected")
    common = _bounds(config.slo)
    own = {name: _bounds(config.workload.classes.part(name).slo) for name in config.workload.classes.names}
    asked = {name: common | bounds for name, bounds in own.items()} if any(own.values()) else {"": common}
    return tuple(Term(name, percentile, bound, of) for of, bounds in asked.items() for name, bound in bounds.items())


def _bounds(slo: SloConfig) -> dict[str, float]:
    """The bounds there are, by latency."""
    bounds = {name: getattr(slo, f"{name}_ms") for name in SLO_NAMES}
    return {name: bound for name, bound in bounds.items() if bound is not None}
