"""Base draws: what is random in a workload before rates, lengths and shares scale it.

Configurations of one seed that differ in rate or length see the same base draws (common random numbers), so that
their difference is not drowned in noise. The recipe of the main stream is fixed: with `rng = default_rng(seed)`,
first the gaps (only if arrivals are random), then the prompts, then the outputs. Whatever else is random has a
stream of its own, so that adding it changes nothing.
"""

from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STREAMS = {
    "gamma_gaps": 1,
    "prompt": 2,
    "output": 3,
    "max_tokens": 4,
    "priority": 5,
    "prefix_member": 6,
    "prefix_group": 7,
    "think": 8,
    "sample": 9,
    "session_gap": 13,
    "router": 14,
}
"""Second word of the seed of each further stream. Never renumber: a workload's identity depends on it."""


class MainStream(NamedTuple):
    """Standard draws of the main stream, each of shape (count,); `gaps` is empty when arrivals are not random."""

    gaps: Floats
    prompt: Floats
    output: Floats


class Draws:
    """All base draws of one seed and number of requests, made when first asked for and shared from then on."""

    def __init__(self, seed: int, count: int) -> None:
        self.seed = seed
        self.count = count
        self._stream = cache(self._draw)

    @cached_property
    def with_gaps(self) -> MainStream:
        """The main stream when gaps are drawn first: standard exponentials, then standard normals twice."""
        rng = np.random.default_rng(self.seed)
        gaps = rng.standard_exponential(self.count)
        return MainStream(gaps, rng.standard_normal(self.count), rng.standard_normal(self.count))

    @cached_property
    def without_gaps(self) -> MainStream:
        """The main stream when arrivals are not random: standard normals twice."""
        rng = np.random.default_rng(self.seed)
        return MainStream(np.empty(0), rng.standard_normal(self.count), rng.standard_normal(self.count))

    def uniform(self, stream: str) -> Floats:
        """Uniform draws in [0, 1) from a stream of their own."""
        return self._stream(stream, "random")

    def normal(self, stream: str) -> Floats:
        """Standard normal draws from a stream of their own."""
        return self._stream(stream, "standard_normal")

    def exponential(self, stream: str) -> Floats:
        """Standard exponential draws from a stream of their own."""
        return self._stream(stream, "standard_exponential")

    def gamma(self, stream: str, shape: float) -> Floats:
        """Gamma draws of scale 1 from a stream of their own."""
        return np.random.default_rng([self.seed, STREAMS[stream]]).standard_gamma(shape, self.count)

    def _draw(self, stream: str, kind: str) -> Floats:
        rng = np.random.default_rng([self.seed, STREAMS[stream]])
        draws: Floats = getattr(rng, kind)(self.count)
        return draws
