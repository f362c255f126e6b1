"""Who gets which task: the same for processes on this machine and for Ray's workers."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

TASKS_PER_WORKER = 2
ALL_WORKERS_AFTER_S = 1.0
"""A sweep of few parts that takes longer than this gets all workers, which then share parts."""


@dataclass(frozen=True)
class Event:
    """Something a worker said, or its death.

    `kind` is that of the messages of `fastsim.sweeps.worker.main`, or `note`, a sentence for the user, or `died`: then
    `value` says how, `task` what it was doing, `at` which configuration it had announced, and `unstarted` what it had
    not begun.
    """

    kind: str
    value: Any = None
    task: Any = None
    at: int | None = None
    unstarted: tuple[Any, ...] = ()


@dataclass
class WorkerHandle:
    """A worker as whoever hands out work sees it: `tasks` it has, the first one under way; `asked` to share that."""

    tasks: deque[Any] = field(default_factory=deque, kw_only=True)
    ready: bool = field(default=False, kw_only=True)
    asked: bool = field(default=False, kw_only=True)

    def send(self, task: Any) -> None:
        """Let it do a task after those it has."""
        raise NotImplementedError

    def ask_to_share(self) -> None:
        """Ask it to hand in what it has of its first task."""
        raise NotImplementedError


@dataclass
class Dispatcher:
    """Tasks that wait, and how they are handed out.

    Parameters
    ----------
    next_task
        Gives the next task, or None when there is none at the moment.
    size
        How many workers.
    first
        How many of them when the sweep turns out to be short.
    """

    next_task: Callable[[], Any]
    size: int
    first: int
    upcoming: deque[Any] = field(default_factory=deque)
    all_workers_at: float = math.inf

    @property
    def workers_wanted(self) -> int:
        """How many workers there should be by now."""
        return self.size if time.monotonic() >= self.all_workers_at else min(self.first, self.size)

    def begin(self) -> None:
        """A worker is ready: from the first on, time counts."""
        if self.all_workers_at == math.inf:
            self.all_workers_at = time.monotonic() + ALL_WORKERS_AFTER_S

    def dispatch(self, workers: Sequence[WorkerHandle]) -> bool:
        """Give work to whoever needs it; False when everything is done.

        A second task is kept ready at a worker only while there is enough for all workers: at the end nobody waits
        behind a long one.
        """
        while len(self.upcoming) <= self.size and (task := self.next_task()) is not None:
            self.upcoming.append(task)
        for held in range(TASKS_PER_WORKER):
            for worker in workers:
                if len(worker.tasks) == held and len(self.upcoming) > held * self.size:
                    task = self.upcoming.popleft()
                    worker.tasks.append(task)
                    worker.send(task)
        self._share_out(workers)
        return bool(self.upcoming) or any(worker.tasks for worker in workers)

    def _share_out(self, workers: Sequence[WorkerHandle]) -> None:
        """When nothing is left to hand out, ask a busy worker for each idle one to share what it has."""
        idle = sum(worker.ready and not worker.tasks for worker in workers)
        if self.upcoming or not idle:
            return
        wanted = idle - sum(worker.asked for worker in workers)
        busy = [worker for worker in workers if worker.tasks and worker.ready and not worker.asked]
        for worker in busy[: max(wanted, 0)]:
            worker.asked = True
            worker.ask_to_share()
