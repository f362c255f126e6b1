"""A map of classes from few of its cells: probe coarsely, bisect between probes that differ, follow the boundaries.

What is exact: every boundary that separates two probes (neighbours on a lattice of every few cells, or on one row and
one column that are probed throughout, which stripes across the map cannot hide from) is found and followed to its end,
cell by cell, with all boundaries that meet it; cells on either side of it are all evaluated. Beside a boundary, chance
makes islands of single cells: where a cell is nearly undecided, its neighbours are evaluated too. What can be missed:
an island that fits between the probes.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.int64]
"""Shape (count, 2): row and column of each cell."""
Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Evaluate = Callable[[Cells], tuple[Labels, Mask]]
"""Class (0 or more) of each of some cells, and which of them are nearly undecided."""

UNKNOWN = -1


def refine(shape: tuple[int, int], evaluate: Evaluate, strides: tuple[int, int]) -> tuple[Labels, Mask]:
    """Classes of all cells of a map, by evaluating those at its boundaries.

    Parameters
    ----------
    shape
        Rows and columns; a single row or column is a line, along which nothing but the probes is evaluated first.
    evaluate
        Asked for each cell once.
    strides
        Cells between the first probes, along rows and columns; (1, 1) evaluates every cell.

    Returns
    -------
    labels
        int64, shape `shape`: evaluated, or that of the nearest evaluated cell.
    known
        bool, shape `shape`: which were evaluated.
    """
    labels = np.full(shape, UNKNOWN, np.int64)
    undecided = np.zeros(shape, bool)

    def learn(wanted: Mask) -> bool:
        """Evaluate the cells of a mask that are not known yet; False: all were."""
        cells = np.argwhere(wanted & (labels == UNKNOWN))
        if len(cells):
            labels[cells[:, 0], cells[:, 1]], undecided[cells[:, 0], cells[:, 1]] = evaluate(cells)
        return len(cells) > 0

    rows, columns = (_probes(size, stride) for size, stride in zip(shape, strides, strict=True))
    probes = np.zeros(shape, bool)
    probes[np.ix_(rows, columns)] = True
    if min(shape) > 1:
        probes[rows[len(rows) // 2], :] = True
        probes[:, columns[len(columns) // 2]] = True
    learn(probes)
    segments = _segments(rows, columns)
    while len(segments):
        segments, middles = _halves(labels, segments)
        learn(middles)
    while True:
        beside = _touching(labels, labels == UNKNOWN)
        if learn(beside) or learn(_around(beside & undecided)):
            continue
        filled = _filled(labels)
        # Two classes meet where nothing was evaluated only if a boundary hid between probes of one class
        if not learn(_touching(filled, np.zeros(shape, bool))):
            return filled, labels != UNKNOWN


def _probes(size: int, stride: int) -> npt.NDArray[np.int64]:
    """Every `stride`-th place, and the last one."""
    return np.unique(np.append(np.arange(0, size, stride), size - 1))


def _segments(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Pairs of neighbouring probes; shape (count, 4): row and column of either end."""
    down = [(a, c, b, c) for a, b in pairwise(rows) for c in columns]
    across = [(r, a, r, b) for a, b in pairwise(columns) for r in rows]
    return np.array(down + across, np.int64).reshape(-1, 4)


def _halves(labels: Labels, segments: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Mask]:
    """Both halves of the segments whose ends differ and are not neighbours, and a mask of their middles."""
    differ = labels[segments[:, 0], segments[:, 1]] != labels[segments[:, 2], segments[:, 3]]
    long = np.abs(segments[:, :2] - segments[:, 2:]).sum(axis=1) > 1
    open_ = segments[differ & long]
    middle = (open_[:, :2] + open_[:, 2:]) // 2
    mask = np.zeros(labels.shape, bool)
    mask[middle[:, 0], middle[:, 1]] = True
    halves = [np.hstack([open_[:, :2], middle]), np.hstack([middle, open_[:, 2:]])]
    return np.concatenate(halves), mask


def _touching(labels: Labels, unknown: Mask) -> Mask:
    """All cells of the 2 x 2 blocks in which two neighbouring known cells differ: there a boundary goes on."""
    mask = np.zeros(labels.shape, bool)
    rows, columns = labels.shape
    down = (labels[:-1] != labels[1:]) & ~unknown[:-1] & ~unknown[1:]  # (rows - 1, columns)
    across = (labels[:, :-1] != labels[:, 1:]) & ~unknown[:, :-1] & ~unknown[:, 1:]
    if rows > 1 and columns > 1:
        block = down[:, :-1] | down[:, 1:] | across[:-1] | across[1:]
        for r in (0, 1):
            for c in (0, 1):
                mask[r : rows - 1 + r, c : columns - 1 + c] |= block
    elif rows > 1:
        mask[:-1] |= down
        mask[1:] |= down
    elif columns > 1:
        mask[:, :-1] |= across
        mask[:, 1:] |= across
    return mask


def _around(mask: Mask) -> Mask:
    """The neighbours of the cells of a mask."""
    padded = np.pad(mask, 1)
    found: Mask = padded[:-2, 1:-1] | padded[2:, 1:-1] | padded[1:-1, :-2] | padded[1:-1, 2:]
    return found


def _filled(labels: Labels) -> Labels:
    """Unknown cells get the class of the nearest known one, counted in steps to neighbours."""
    filled = labels.copy()
    while (filled == UNKNOWN).any():
        padded = np.pad(filled, 1, constant_values=UNKNOWN)
        around = [padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]]
        for neighbour in around:
            take = (filled == UNKNOWN) & (neighbour != UNKNOWN)
            filled[take] = neighbour[take]
    return filled
