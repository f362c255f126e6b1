"""A sample of a grid: so many configurations, of every value of every axis as many as of any other, give or take one.

The sample is dealt out digit by digit, from the most significant one on. At each step every group of configurations
that agree so far gives each of its positions the same number; what does not divide goes to positions in turn, and where
one group stops the next goes on. Groups take their turns nested, as the digits are: so each value of each axis has its
share up to one, in the whole grid, in each workload, and in each other group. Within a group the order of turns begins
anywhere, by a hash: otherwise two axes could go round in step, and their effects could not be told apart.
"""

from collections.abc import Sequence
from math import gcd, prod

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

GOLDEN_SHARE = 0.6180339887498949


def sample_indices(sizes: Sequence[int], count: int, seed: int) -> Int64Array:
    """`count` distinct configurations of a grid, ascending.

    Parameters
    ----------
    sizes
        How many positions each digit has, the most significant first; their product is at most 2**62.
    count
        From 1 to their product.
    seed
        Chooses which; the same seed always the same.

    Returns
    -------
    int64 array, shape (count,)
        Indices of the mixed-radix numbers. Every position of every digit is in `count / size` of them, rounded up or
        down; the same holds among those that agree in their first digits, however many.
    """
    if not 1 <= count <= prod(sizes):
        raise ValueError(f"{count} of {prod(sizes)} configurations")
    index = np.zeros(1, np.int64)  # of each group: its digits so far, as a number,
    members = np.array([count], np.int64)  # and how many of its configurations are in the sample
    for level, size in enumerate(sizes):
        salt = int(_mixed(np.array([((seed ^ seed >> 64) + level) % 2**64], np.uint64))[0])
        turn = np.argsort(_turns(index, sizes[:level], salt))
        index, members = index[turn], members[turn]
        each, rest = members // size, members % size
        first = (salt % size + np.cumsum(rest) - rest) % size  # the first turn of each group's rest
        positions = np.where(each > 0, size, rest)  # of each group, those that are in the sample at all
        group = np.repeat(np.arange(len(index)), positions)
        place = np.arange(len(group)) - np.repeat(np.cumsum(positions) - positions, positions)
        index = index[group] * size + (first[group] + place) % size * _stride(size) % size
        members = each[group] + (place < rest[group])
    return np.sort(index)


def _turns(index: Int64Array, sizes: Sequence[int], salt: int) -> Int64Array:
    """A number for each group, by which they take their turns: as their digits, but where each begins, and whether it
    goes up or down, is drawn.
    """
    order = np.zeros(len(index), np.int64)
    below = prod(sizes)
    for size in sizes:
        prefix = index // below
        below //= size
        drawn = (_mixed(prefix.astype(np.uint64) ^ np.uint64(salt)) >> np.uint64(1)).astype(np.int64)
        way = drawn % 2 * 2 - 1
        order = order * size + (index // below % size * way + drawn // 2 % size) % size
    return order


def _stride(size: int) -> int:
    """A step that visits every position once, neighbours in time far apart: near the golden share of the way round."""
    step = max(1, round(size * GOLDEN_SHARE))
    while gcd(step, size) != 1:
        step -= 1
    return step


def _mixed(words: UInt64Array) -> UInt64Array:
    """SplitMix64 of each word."""
    with np.errstate(over="ignore"):
        z = (words + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: UInt64Array = z ^ (z >> np.uint64(31))
    return mixed
