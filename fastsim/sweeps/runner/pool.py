"""Worker processes that may die: each has a pipe, at most two tasks, and a successor.

Workers are forked from a fork server that has imported the package, so one starts in milliseconds and they share its
memory. The fork server keeps clear of polars and of thread pools, which do not survive a fork.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from fastsim.errors import WorkError
from fastsim.sweeps.runner.dispatch import Dispatcher, Event, WorkerHandle
from fastsim.sweeps.worker import OUT_OF_MEMORY, Job, limit_threads, main

START_AGAIN_AFTER_S = (0.05, 0.2, 1.0)


@dataclass
class _LocalWorker(WorkerHandle):
    process: BaseProcess
    connection: Connection
    started: bool = False
    at: int | None = None
    finished: int = 0

    def understand(self, message: tuple[Any, ...]) -> Event:
        """Keep track of what this worker is doing."""
        kind, value = message
        if kind == "ready":
            self.ready = True
        elif kind == "started":
            self.started, self.at = True, None
        elif kind == "at":
            self.at = value
        elif kind != "note":
            self.tasks.popleft()
            self.finished += 1
            self.started, self.at, self.asked = False, None, False
        return Event(kind, value)

    def send(self, task: Any) -> None:
        """Put a task into its pipe."""
        with suppress(OSError):  # its death shows in its process
            self.connection.send(task)

    def ask_to_share(self) -> None:
        """Name the task that others wait to share."""
        with suppress(OSError):
            self.connection.send(self.finished + 1)

    def death_event(self) -> Event:
        """The event of this worker's death."""
        current = self.tasks.popleft() if self.started else None
        return Event("died", _cause(self.process.exitcode), current, self.at, tuple(self.tasks))


class WorkerPool:
    """Worker processes from `start`, or `__enter__`, to `close`, or `__exit__`, which kills those that are busy.

    Once its events have ended there can be more tasks, and more events.

    Parameters
    ----------
    job
        What every worker needs to know.
    next_task, size, first
        See `Dispatcher`.
    """

    def __init__(self, job: Job, next_task: Callable[[], Any], size: int, first: int) -> None:
        self.job = job
        self.dispatcher = Dispatcher(next_task, size, first)
        self.workers: list[_LocalWorker] = []
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(job.modules)

    def start(self) -> None:
        """Start the first worker; others follow when it is ready."""
        self._start_worker()

    def close(self, *, kill: bool = False) -> None:
        """End the workers; `kill`: those that are busy too, at once."""
        for worker in self.workers:
            if kill:
                worker.process.kill()
            worker.connection.close()  # an idle worker ends by itself
        for worker in self.workers:
            worker.process.join(2.0)
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()

    def __enter__(self) -> "WorkerPool":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(kill=kind is not None)

    def events(self) -> Iterator[Event]:
        """What happens, until every task is done. Deaths are followed by a new worker."""
        while self.dispatcher.dispatch(self.workers):
            awaited = [each for worker in self.workers for each in (worker.connection, worker.process.sentinel)]
            ready = set(wait(awaited, timeout=0.5 if len(self.workers) < self.dispatcher.size else None))
            for worker in list(self.workers):
                if not ready.isdisjoint((worker.connection, worker.process.sentinel)):
                    yield from self._listen(worker)
            if any(worker.ready for worker in self.workers):
                self.dispatcher.begin()
                while len(self.workers) < self.dispatcher.workers_wanted:
                    self._start_worker()

    def _listen(self, worker: _LocalWorker) -> Iterator[Event]:
        """Everything a worker has said, and its death if it is dead."""
        dead = not worker.process.is_alive()
        with suppress(EOFError, OSError):  # its death shows in its process
            while worker.connection.poll():
                yield worker.understand(worker.connection.recv())
        if dead:
            self.workers.remove(worker)
            worker.connection.close()
            yield worker.death_event()
            self._start_worker()

    def _start_worker(self) -> None:
        ours, theirs = self.context.Pipe()
        with quiet_start():
            process = self._started_process(theirs)
        theirs.close()
        self.workers.append(_LocalWorker(process, ours))

    def _started_process(self, connection: Connection) -> BaseProcess:
        """A worker that runs. The fork server may have been killed, and not yet be known to be dead: it is tried again.

        Raises
        ------
        WorkError
            When no process can be started.
        """
        for patience_s in (*START_AGAIN_AFTER_S, None):
            process = self.context.Process(target=main, args=(connection, self.job), daemon=True)
            try:
                process.start()
            except (EOFError, OSError) as error:
                if patience_s is None:
                    raise WorkError(f"no worker process can be started ({error}); what was done is kept") from None
                time.sleep(patience_s)
            else:
                return process
        raise AssertionError("unreachable: the last attempt returns or raises")


@contextmanager
def quiet_start() -> Iterator[None]:
    """Within, processes that start keep their libraries to one thread and do not import the main module."""
    with _environment(limit_threads()), _nameless_main():
        yield


def _cause(exitcode: int | None) -> str:
    if exitcode == OUT_OF_MEMORY:
        return "out of memory"
    if exitcode is not None and exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for the processes started within."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _nameless_main() -> Iterator[None]:
    """Within, the main module has no file: workers would import it, and run a script that lacks the usual guard."""
    module = sys.modules["__main__"]
    hidden = {name: getattr(module, name) for name in ("__file__", "__spec__") if hasattr(module, name)}
    for name in hidden:
        delattr(module, name)
    module.__spec__ = None
    try:
        yield
    finally:
        for name, value in hidden.items():
            setattr(module, name, value)
