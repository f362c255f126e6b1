"""From a search to one setting: fresh seeds for the best few, and of those that are alike the one that lasts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsim.analysis.recommend.answer import Option
from fastsim.analysis.recommend.search import Found, Search, same_outcomes
from fastsim.analysis.recommend.space import SEQS, TOKENS, Space
from fastsim.analysis.recommend.trials import Traffic, Trials
from fastsim.config import check_rules
from fastsim.errors import InputError

OUTCOMES = 2
"""So many of the best outcomes get the fresh seeds, and the winner with twice the slots, and the spec's own setting."""
ALIKE = 0.01
"""Settings worth so little less than the best are told apart by what they do under more traffic."""
MORE_TRAFFIC = 1.2


@dataclass(frozen=True)
class Choice:
    """The setting chosen, all that were confirmed (the chosen one first), the spec's own among them, the search.

    `alike` settings were worth within ALIKE of the best, the chosen one among them. `leave_alone`: the chosen one is
    what stands already (the spec's own setting, or vLLM's default), as nothing is shown to be better.
    """

    best: Option
    tried: list[Option]
    current: Option | None
    found: Found
    alike: int = 1
    leave_alone: bool = False


def choose(space: Space, trials: Trials, traffic: Traffic, fresh: Sequence[int]) -> Choice:
    """Search, confirm with fresh seeds, and choose.

    Raises
    ------
    InputError
        When no server would start with any setting.
    """
    found = Search(space, trials, traffic).run()
    if not found.points:
        raise InputError(f"no setting can be served: {space.fault(tuple(0 for _ in space.sizes))}")
    points = [group[0] for group in same_outcomes(found.points, found.outlooks)[:OUTCOMES]]
    candidates = [space.settings(point) for point in points]
    roomy = _roomy(space, candidates[0])
    if roomy is not None:
        candidates.append(roomy)
    own = {key: space.standing.value(key) for key in candidates[0]}
    options = [option(space, trials, traffic, fresh, settings) for settings in (*candidates, own)]
    current = options[-1]
    tried = list({each.config: each for each in options if each is not None}.values())
    tried.sort(key=lambda each: each.outlook.rank, reverse=True)
    alike = _alike(tried)
    if current is not None:
        current = next(each for each in tried if each.config == current.config)
    best = alike[0] if len(alike) == 1 else _most_lasting(trials, traffic, fresh, alike, current)
    leave_alone = len(alike) > 1 and best is current
    return Choice(best, [best, *(each for each in tried if each is not best)], current, found, len(alike), leave_alone)


def option(
    space: Space, trials: Trials, traffic: Traffic, seeds: Sequence[int], settings: Mapping[str, Any]
) -> Option | None:
    """A setting, which need not be one of the space, with its outlook; None when no server starts with it."""
    try:
        config = space.with_settings(settings)
        check_rules(config)
    except InputError:
        return None
    (outlook,) = trials.outlooks([config], traffic, seeds)
    point = space.nearest(settings)
    labels = dict(settings) if point is None else space.labels(point)
    return Option(dict(settings), labels, config, outlook)


def _roomy(space: Space, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The setting with about twice the slots: what is not reached in these seeds may be in others."""
    if SEQS not in settings:
        return None
    now = int(settings[SEQS])
    most = settings.get(TOKENS, space.standing.engine.max_num_batched_tokens)
    values = [value for knob in space.knobs for value in knob.settings.get(SEQS, ()) if now < value <= most]
    if not values:
        return None
    return {**settings, SEQS: min(values, key=lambda value: abs(float(np.log(value / (2 * now)))))}


def _alike(tried: Sequence[Option]) -> list[Option]:
    """The best and those that are worth as much; where nothing meets the SLO, the best alone."""
    best = tried[0].outlook
    if not best.meets:
        return [tried[0]]
    return [each for each in tried if each.outlook.meets and each.outlook.worth >= (1 - ALIKE) * best.worth]


def _most_lasting(
    trials: Trials, traffic: Traffic, fresh: Sequence[int], alike: Sequence[Option], current: Option | None
) -> Option:
    """Of settings that are worth the same, what stands already where nothing binds it, else the one that lasts.

    What lasts is worth most under more traffic; what stands gives way to it where that is shown to be worth more.
    """
    few = fresh[: max(len(fresh) // 2, 2)]
    more = trials.outlooks([each.config for each in alike], traffic.scaled(rate=MORE_TRAFFIC), few)
    best = max(range(len(alike)), key=lambda k: more[k].rank)
    stands = next((k for k, each in enumerate(alike) if each is current and not _binds(each)), None)
    if stands is None or (more[best].meets and not more[stands].meets):
        return alike[best]
    kept = more[stands].worth >= (1 - ALIKE) * more[best].worth
    return alike[stands] if kept else alike[best]


def _binds(option: Option) -> bool:
    """Whether a setting is felt: requests are preempted, or fill all slots."""
    means = option.outlook.means
    return means["preemptions"] > 0 or means["running_peak"] >= option.config.engine.max_num_seqs
