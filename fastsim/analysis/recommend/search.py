"""Successive halving over a grid of settings: a coarse look at all of it with one short run each, then fewer settings,
closer together, with more seeds and at full length.

1. A lattice of a few values a knob, each setting with one seed (of a long load, its first quarter).
2. The best few, and their neighbours half a lattice step away on either side; again until neighbours are next to each
   other.
3. The best of all are run at full length with two seeds, the better half of those with four.
4. The winner's neighbours get the same four seeds, and it moves while one of them is better.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from fastsim.analysis.recommend.slo import Outlook
from fastsim.analysis.recommend.space import Point, Space
from fastsim.analysis.recommend.trials import Traffic, Trials

LATTICE = (25, 5)
"""About so many settings in the first look, at most so many a knob."""
SURVIVORS = 3
"""So many settings are refined in each round."""
FINALISTS = 8
MOVES = 4
"""Most moves of the winner at the end; each is a better setting next to it."""


@dataclass(frozen=True)
class Effort:
    """How much a look at a setting costs: seeds, and the share of the load."""

    seeds: tuple[int, ...]
    share: float


@dataclass(frozen=True)
class Found:
    """What a search found: settings, the best first, with what they did in the last look that all of them had."""

    points: list[Point]
    outlooks: list[Outlook]
    runs: int


class Search:
    """One search.

    Parameters
    ----------
    space
        The settings.
    trials
        Runs them.
    traffic
        The load.
    """

    def __init__(self, space: Space, trials: Trials, traffic: Traffic) -> None:
        self.space = space
        self.trials = trials
        self.traffic = traffic
        self.seen: dict[Point, Outlook] = {}
        share = traffic.short_share
        self.first = Effort((0,), share)
        self.levels = (Effort((0, 1), 1.0), Effort((0, 1, 2, 3), 1.0))

    def run(self) -> Found:
        """Search; the best settings come first."""
        before = self.trials.runs
        stride = [max(-(-(size - 1) // (count - 1)), 1) if count > 1 else 1 for size, count in self._counts()]
        self._look(product(*(_spread(size, step) for size, step in zip(self.space.sizes, stride, strict=True))))
        while max(stride) > 1:
            stride = [max(-(-step // 2), 1) for step in stride]
            self._look(near for point in self._best(SURVIVORS) for near in self._neighbours(point, stride))
        points = self._best(FINALISTS)
        outlooks: list[Outlook] = []
        for level in self.levels:
            outlooks = self._outlooks(points, level)
            points, outlooks = _ranked(points, outlooks)
            keep = max(len(points) // 2, 2) if level is not self.levels[-1] else len(points)
            points, outlooks = points[:keep], outlooks[:keep]
        points, outlooks = self._climb(points, outlooks)
        return Found(points, outlooks, self.trials.runs - before)

    def _counts(self) -> list[tuple[int, int]]:
        """Size of each knob, and how many of its values the lattice has."""
        most, each = LATTICE
        knobs = len(self.space.sizes)
        count = max(min(each, int(most ** (1 / knobs) + 1e-9)), 2)
        return [(size, min(size, count)) for size in self.space.sizes]

    def _climb(self, points: list[Point], outlooks: list[Outlook]) -> tuple[list[Point], list[Outlook]]:
        """Move the winner while a neighbour is better in the last level."""
        level = self.levels[-1]
        for _ in range(MOVES):
            near = [point for point in self._neighbours(points[0], [1] * len(points[0])) if point not in points]
            # A first look tells most of them apart; what lies far behind the winner in it needs no more seeds
            self._look(near)
            near = sorted(near, key=lambda point: self.seen[point].rank, reverse=True)[:SURVIVORS]
            found = self._outlooks(near, level)
            winner = points[0]
            points, outlooks = _ranked([*points, *near], [*outlooks, *found])
            if points[0] == winner:
                break
        return points, outlooks

    def _look(self, points: Iterable[Point]) -> None:
        """A first look at settings that were not looked at yet."""
        new = [point for point in dict.fromkeys(points) if point not in self.seen and self.space.fault(point) is None]
        self.seen.update(zip(new, self._outlooks(new, self.first), strict=True))

    def _best(self, count: int) -> list[Point]:
        """The best after their first look, one of each outcome: a cap that is never reached is as good as the next."""
        groups = same_outcomes(*_ranked(list(self.seen), list(self.seen.values())))
        return [group[0] for group in groups[:count]]

    def _neighbours(self, point: Point, stride: Sequence[int]) -> list[Point]:
        """Settings one stride away on one knob or on several, those with which a server starts."""
        ranges = [
            [place for place in (at - step, at, at + step) if 0 <= place < size]
            for at, step, size in zip(point, stride, self.space.sizes, strict=True)
        ]
        near = (
            [other for other in product(*ranges) if other != point] if len(point) <= 2 else self._cross(point, ranges)
        )
        return [other for other in near if self.space.fault(other) is None]

    def _cross(self, point: Point, ranges: list[list[int]]) -> list[Point]:
        """With many knobs only one changes at a time: all corners would be 3**knobs."""
        return [
            (*point[:knob], place, *point[knob + 1 :])
            for knob, places in enumerate(ranges)
            for place in places
            if place != point[knob]
        ]

    def _outlooks(self, points: Sequence[Point], level: Effort) -> list[Outlook]:
        configs = [self.space.config(point) for point in points]
        return self.trials.outlooks(configs, self.traffic, level.seeds, level.share)


def same_outcomes(points: Sequence[Point], outlooks: Sequence[Outlook]) -> list[list[Point]]:
    """Settings in groups that did the very same in every seed, in the order given."""
    groups: dict[bytes, list[Point]] = {}
    for point, outlook in zip(points, outlooks, strict=True):
        groups.setdefault(outlook.goodput.tobytes() + outlook.margins.tobytes(), []).append(point)
    return list(groups.values())


def _spread(size: int, stride: int) -> list[int]:
    """Every stride-th position, and the last."""
    return sorted({*range(0, size, stride), size - 1})


def _ranked(points: list[Point], outlooks: list[Outlook]) -> tuple[list[Point], list[Outlook]]:
    """Both, the best first; of equals the one that stands first among the values."""
    order = sorted(range(len(points)), key=lambda k: (tuple(-part for part in outlooks[k].rank), points[k]))
    return [points[k] for k in order], [outlooks[k] for k in order]
