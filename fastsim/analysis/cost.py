"""What output tokens cost, from the price of an hour of a GPU."""

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from fastsim.errors import InputError

if TYPE_CHECKING:
    import polars as pl

COST = "cost_per_million_output_tokens"
"""A derived metric, in the currency of the price: GPU hours of the run per million delivered output tokens, priced."""
THROUGHPUT = "output_throughput_tok_per_s"


@dataclass(frozen=True)
class Price:
    """Price of an hour of one GPU, in any currency, and how many GPUs one engine runs on (its tensor parallel size).

    Raises
    ------
    InputError
        When the price is not above 0 or there is no GPU.
    """

    gpu_hour: float
    gpus: int = 1

    def __post_init__(self) -> None:
        if not (isfinite(self.gpu_hour) and self.gpu_hour > 0):
            raise InputError(f"GPU hour price {self.gpu_hour:g}, but a number above 0 was expected")
        if self.gpus < 1:
            raise InputError(f"GPUs {self.gpus}, but an integer of at least 1 was expected")

    @property
    def _per_million_seconds(self) -> float:
        return self.gpu_hour * self.gpus / 3600 * 1e6

    def per_million_output_tokens(self, throughput_tok_per_s: float | None) -> float | None:
        """Cost of a million output tokens at a throughput; None where nothing is delivered, which no price buys."""
        if throughput_tok_per_s is None or not throughput_tok_per_s > 0:
            return None
        return self._per_million_seconds / throughput_tok_per_s

    def expression(self) -> "pl.Expr":
        """The column COST from the column of the throughput; null where nothing is delivered."""
        import polars as pl

        throughput = pl.col(THROUGHPUT).cast(pl.Float64)
        return pl.when(throughput > 0).then(self._per_million_seconds / throughput).alias(COST)

    def __str__(self) -> str:
        """What the cost assumes."""
        return (
            f"{COST}: {self.gpu_hour:g} an hour x {self.gpus} GPU{'s' * (self.gpus != 1)} over {THROUGHPUT}, from the "
            "first arrival to the end of the run"
        )
