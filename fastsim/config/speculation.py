"""The `spec` table: speculative decoding."""

from typing import Annotated, Literal

from pydantic import Field

from fastsim.model import Coefficient, Model, Natural, Share, a_list, type_integer

Method = Literal["ngram", "draft_model", "eagle", "eagle3", "mtp"]


class SpecConfig(Model):
    """Speculative decoding: who drafts, how much, how much of it is right, and what it costs."""

    method: Method | None = None
    """Who drafts, by vLLM's names (mtp: of one module); none: nobody."""
    num_speculative_tokens: Annotated[int, type_integer, Field(ge=1, le=64)] = 3
    """Drafts that each decode verifies: k."""
    acceptance: Annotated[tuple[Share, ...], a_list, Field(min_length=1, max_length=64)] | None = None
    """Share of drafts at each position that are right where all before it were; one number stands for all positions."""
    mean_acceptance_length: Annotated[float, Field(ge=1, le=65, allow_inf_nan=False)] | None = None
    """Tokens a decode delivers on the mean, as vLLM logs it (1 to 1 + k): acceptance of each position follows."""
    seed: Natural = 0
    """Seed of what is right: it depends on request and position only."""
    draft_us: Coefficient = 0.0
    """Microseconds that drafting adds to a step in which a token is sampled."""
    draft_us_per_token: Coefficient = 0.0
    """Microseconds more per draft made in the step."""
    lookahead_hashes: bool = True
    """EAGLE with prefix caching: block hashes cover the next token (vLLM), or a hit loses its last block."""
    num_drafts: Literal["fixed", "hashed"] = "fixed"
    """Always k drafts, or as many as a hash of request and position says (ngram finds fewer): synchronous only."""


DEFAULT_ACCEPTANCE = 0.7
"""Of every position, where a spec says nothing: what EAGLE drafts of chat are about right in."""


def accept_permille(k: int, acceptance: tuple[float, ...] | None, mean_length: float | None) -> tuple[int, ...]:
    """Of a thousand drafts at each position, how many are right where all before it were.

    A mean length stands for the same share at every position: 1 + p + p^2 + ... + p^k is that length.
    """
    if acceptance is not None:
        shares = acceptance * k if len(acceptance) == 1 else acceptance
        return tuple(round(1000 * share) for share in shares[:k])
    share = DEFAULT_ACCEPTANCE
    if mean_length is not None:
        low, high = 0.0, 1.0
        for _ in range(60):
            share = (low + high) / 2
            length = sum(share**j for j in range(k + 1))
            low, high = (share, high) if length < mean_length else (low, share)
    return (round(1000 * share),) * k
