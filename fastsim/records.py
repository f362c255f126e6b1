"""Configurations as engines read them: from a grid's columns, from some of its indices, or from configurations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.config import Config
from fastsim.engines import FOLDERS, engine_of
from fastsim.engines.contract import runtime_of
from fastsim.engines.encode import Take, take_of
from fastsim.engines.fleets import fleet_records
from fastsim.metrics.params import ClassBounds, class_slos, params_records

Places = npt.NDArray[np.intp]


class Share(NamedTuple):
    """One engine's part: its folder, which configurations are its own, and their records."""

    engine: str
    places: Places
    records: npt.NDArray[np.void]


@dataclass(frozen=True)
class Records:
    """Configurations as kernels read them.

    `params` (PARAMS_DTYPE, shape (count,)) is what metrics know of each, `fleet` (FLEET_DTYPE) its replicas and router;
    `shares` has one entry for each engine; `class_slos` are the bounds of classes of requests by name
    (`fastsim.metrics.params.class_slos`).
    """

    params: npt.NDArray[np.void]
    fleet: npt.NDArray[np.void]
    shares: tuple[Share, ...]
    class_slos: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.params)

    @property
    def engine(self) -> npt.NDArray[np.void]:
        """The records of the only engine there is."""
        (share,) = self.shares
        return share.records

    def part(self, start: int, stop: int) -> "Records":
        """Configurations start .. stop - 1."""
        shares = []
        for share in self.shares:
            mine = (share.places >= start) & (share.places < stop)
            if mine.any():
                shares.append(Share(share.engine, share.places[mine] - start, share.records[mine]))
        slos = {name: each[start:stop] for name, each in self.class_slos.items()}
        return Records(self.params[start:stop], self.fleet[start:stop], tuple(shares), slos)

    def bounds(self, class_names: Sequence[str]) -> ClassBounds:
        """What the classes of a workload must meet; a class that no configuration knows has no bound of its own."""
        none = np.full((len(self), 3), np.nan)
        return ClassBounds(np.stack([self.class_slos.get(name, none) for name in class_names], axis=1))


def engine_records(grid: Any, start: int, stop: int) -> Records:
    """Records of the grid's configurations start .. stop - 1."""
    return records_at(grid, np.arange(start, stop))


def records_at(grid: Any, indices: npt.NDArray[np.int64]) -> Records:
    """Records of some of the grid's configurations, in the order of `indices` (int64, shape (count,))."""

    def take_at(places: Places) -> Take:
        mine = indices[places]

        def take(key: str, encode: Callable[[Any], Any]) -> npt.NDArray[Any]:
            return np.asarray(grid.take(key, mine, encode))

        return take

    return _records(take_at, len(indices), grid.class_names)


def records_of(configs: Sequence[Config]) -> Records:
    """Records of configurations, in their order."""
    names = sorted({name for config in configs for name in config.workload.classes.names})
    return _records(lambda places: take_of([configs[place] for place in places]), len(configs), names)


def record_of(config: Config) -> Records:
    """Records of one configuration."""
    return records_of([config])


def _folder_number(name: str) -> int:
    return FOLDERS.index(engine_of(name).folder)


def _records(take_at: Callable[[Places], Take], count: int, class_names: Sequence[str]) -> Records:
    """`take_at(places)` gives the values of keys for some of `count` configurations with these classes."""
    everything = np.arange(count)
    take = take_at(everything)
    numbers = take("engine.name", _folder_number)
    present = np.unique(numbers).tolist()
    params = params_records(take, count)
    shares = []
    for number in present:
        places = everything if len(present) == 1 else np.flatnonzero(numbers == number)
        mine = params[places]
        theirs = take if len(present) == 1 else take_at(places)
        records = runtime_of(FOLDERS[number]).config_records(theirs, len(places), mine)
        params[places] = mine
        shares.append(Share(FOLDERS[number], places, records))
    return Records(params, fleet_records(take, count), tuple(shares), class_slos(take, class_names))
