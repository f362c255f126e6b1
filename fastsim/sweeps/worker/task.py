"""What is said between workers and whoever hands out work: jobs, tasks, and what came of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.sweeps.grid import Part
from fastsim.sweeps.store import PartRecord

TaskRunner = Callable[[Any, Callable[[int], None], Callable[[], bool]], Any]
"""Runs a task, given how to announce what could kill the worker, and whether somebody waits for a share of it."""


class Job(ABC):
    """What workers are started for: sent to each of them, which then gets tasks of its kind."""

    @property
    @abstractmethod
    def modules(self) -> list[str]:
        """What the fork server imports, so that its workers share it."""

    @abstractmethod
    def prepare(self) -> None:
        """Load or compile the kernels, in the worker."""

    @abstractmethod
    def start(self) -> TaskRunner:
        """What runs the tasks of one worker, with whatever it keeps from one to the next."""


@dataclass(frozen=True)
class Task:
    """A part of a sweep to compute, or its rows from `first` to before `stop`.

    `alone`: build one workload and run one configuration at a time, and announce each, to find out which one kills
    workers. `skip`: those that are known to, and become rows of status `error` unrun (see `building`).
    """

    part: Part
    alone: bool = False
    skip: frozenset[int] = frozenset()
    first: int = 0
    stop: int | None = None

    @property
    def end(self) -> int:
        """The row of the part before which this task ends."""
        return self.part.rows if self.stop is None else self.stop


def building(workload_index: int) -> int:
    """What stands for the building of a workload, where the number of a configuration stands for its run."""
    return -1 - workload_index


@dataclass(frozen=True)
class Piece:
    """Rows of a part, from `first` on, that are computed and not stored; arrays as in `fastsim.sweeps.store.schema`."""

    first: int
    workload_ids: list[str | None]
    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]

    @property
    def stop(self) -> int:
        """The row of the part before which this piece ends."""
        return self.first + len(self.workload_ids)


@dataclass
class Outcome:
    """What came of a part, or of some rows of it.

    A whole part is stored (`record`) or handed in (`data`, the file's bytes). Otherwise `piece` has the rows that were
    computed: all of the task, or fewer when the worker was asked to share; a row took about `seconds_per_row`. `errors`
    says of each configuration that failed why.
    """

    task: Task
    record: PartRecord | None = None
    data: bytes | None = None
    piece: Piece | None = None
    seconds_per_row: float = 0.0
    errors: dict[int, str] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)
