"""What is demanded of requests: the keys below `slo.`, and below a class's own."""

from fastsim.model import Duration, Model


class SloConfig(Model):
    """What a request must meet to count as good; none: no demand."""

    ttft_ms: Duration | None = None
    """Time to first token."""
    tpot_ms: Duration | None = None
    """Time per output token after the first."""
    e2e_ms: Duration | None = None
    """From arrival to last token."""
