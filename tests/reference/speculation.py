"""Speculative decoding: what a method changes in the scheduler, and a rule for which drafts are accepted."""

from types import SimpleNamespace

METHODS = (None, "ngram", "draft_model", "eagle")


class Speculation:
    """The rules by method, with k drafts for each decode.

    lookahead
        Tokens beyond the scheduled ones for which the drafter needs room.
    draft_slots
        Input slots it takes for each scheduled request.
    hash_lookahead
        Tokens behind a block that its hash covers.
    drops_block
        Whether a prefix hit loses its last block.
    """

    def __init__(self, config: SimpleNamespace) -> None:
        self.config = config
        method = config.spec_method
        self.k: int = config.num_speculative_tokens if method else 0
        self.lookahead = self.k if method in ("draft_model", "eagle") else 0
        self.draft_slots = 1 if method == "draft_model" else 0
        self.hash_lookahead = 1 if method == "eagle" and config.spec_lookahead_hashes else 0
        self.drops_block = method == "eagle" and not config.spec_lookahead_hashes
        self.always_full = config.spec_draft == "fixed"

    def accepted(self, index: int, length: int, drafts: int) -> int:
        """How many leading ones of `drafts` are right for request `index` with `length` known tokens."""
        for j in range(drafts):
            if mix(self.config.spec_seed, index, length + j) % 1000 >= self.config.spec_accept_permille[j]:
                return j
        return drafts

    def drafts(self, index: int, length: int) -> int:
        """How many drafts a request gets that is `length` tokens long now."""
        if self.k == 0 or self.always_full:
            return self.k
        return mix(self.config.spec_seed + 1, index, length) % (self.k + 1)


def mix(seed: int, index: int, position: int) -> int:
    """A hash of 32 bits (the finaliser of lowbias32 by Wellons over a linear combination)."""
    mask = 2**32 - 1
    v = (seed * 0x9E3779B1 + index * 0x85EBCA77 + position * 0xC2B2AE3D) & mask
    v ^= v >> 15
    v = (v * 0x2C1B3C6D) & mask
    v ^= v >> 12
    v = (v * 0x297A2D39) & mask
    return v ^ (v >> 15)
