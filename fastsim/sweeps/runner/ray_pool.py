"""Workers on a Ray cluster, or on a Ray of this machine's own: same tasks, same parts, same bytes as local processes.

`RAY_ADDRESS` names a cluster (`auto`, `host:6379`, `ray://host:10001`); without it Ray is started here and ended with
the sweep. Workers hand in every part as a file's bytes, and the driver stores it: nodes need no shared storage. Each
worker proves first that its node would compute the same: the same sources, and the same contents of the traces.
"""

import fcntl
import logging
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fastsim.errors import FastsimError, InputError
from fastsim.sweeps.runner.cores import available_cores
from fastsim.sweeps.runner.dispatch import Dispatcher, Event, WorkerHandle
from fastsim.sweeps.store.sources import changed_sources, source_hashes
from fastsim.sweeps.worker import OUT_OF_MEMORY, Asked, Outcome, SweepJob, Task, limit_threads

WAIT_S = 1.0
OBJECT_STORE_BYTES = 512 * 2**20
"""Of a Ray that is started here: parts of a few megabytes pass through it."""
SLOW_START = (
    (10.0, "waiting for Ray's first worker: it starts, and compiles the kernels once a node (about 20 s)"),
    (90.0, "no Ray worker is ready after 90 s: is there room for one CPU on the cluster? (`ray status` says)"),
)


class Watch:
    """Remembers, where the driver is, which configuration each worker is at: a dead worker cannot be asked."""

    def __init__(self) -> None:
        self._at: dict[tuple[int, int], int] = {}

    def note(self, worker: int, task: int, index: int) -> None:
        """A worker, in its `task`-th task, starts configuration `index` alone."""
        self._at[worker, task] = index

    def at(self, worker: int, task: int) -> int | None:
        """What a worker started last in a task."""
        return self._at.get((worker, task))


class Remote:
    """A worker on some node. `run` and `share` are called at the same time, from two threads."""

    def __init__(self, number: int, watch: Any, job: SweepJob) -> None:
        os.environ.update(limit_threads())  # polars, which reads it, is not loaded yet
        self._number = number
        self._watch = watch
        self._job = job
        self._run, self._asked = job.start(), Asked()

    def ready(self, sources: Mapping[str, str], spec_hash: str) -> str | None:
        """Load or compile the kernels; why this node must not take part, if so."""
        if changed := changed_sources(sources):
            return f"{socket.gethostname()} has another fastsim: {changed[0]} differs from the driver's"
        self._job.grid.__dict__.pop("spec_hash", None)  # read the traces as this node has them
        try:
            if self._job.grid.spec_hash != spec_hash:
                return f"{socket.gethostname()} has a trace with other contents than the driver's"
        except FastsimError as error:
            return f"on {socket.gethostname()}: {error}"
        with _one_at_a_time():
            self._job.prepare()
        return None

    def run(self, task: Task) -> Outcome:
        """Compute a task."""
        self._asked.begun += 1
        try:
            outcome: Outcome = self._run(task, self._announce, self._asked.current)
            return outcome
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # as if the kernel had killed it: the part is tried again by a fresh worker

    def share(self, number: int) -> None:
        """Task `number` of this worker, counted from 1, is to be shared."""
        self._asked.share = number

    def _announce(self, index: int) -> None:
        ray.get(self._watch.note.remote(self._number, self._asked.begun, index))


REMOTE = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, concurrency_groups={"work": 1, "talk": 1})(Remote)


@dataclass
class _RayWorker(WorkerHandle):
    """A worker as the driver sees it. `starting` is done when it is ready, `running` when its tasks are, in order."""

    number: int
    handle: Any
    starting: Any
    running: deque[Any] = field(default_factory=deque)
    finished: int = 0

    def send(self, task: Task) -> None:
        """Have it run a task after those it has."""
        self.running.append(self.handle.run.options(concurrency_group="work").remote(task))

    def ask_to_share(self) -> None:
        """Name the task that others wait to share."""
        self.handle.share.options(concurrency_group="talk").remote(self.finished + 1)

    def awaited(self) -> Any:
        """What to wait for next; None when it has nothing to do."""
        return (self.running[0] if self.running else None) if self.ready else self.starting


def connect(workers: int | None) -> tuple[int, AbstractContextManager[object]]:
    """Join the cluster that RAY_ADDRESS names, or start a Ray here: how many workers, and what ends the connection.

    Raises
    ------
    InputError
        When no cluster answers.
    """
    address = os.environ.get("RAY_ADDRESS")
    if ray.is_initialized():
        return workers or _cluster_cores(), nullcontext()
    try:
        if address:
            _check_reachable(address)
            _start(address=address)
            return workers or _cluster_cores(), _Connection()
        workers = workers or available_cores()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        _start(address="local", num_cpus=workers, include_dashboard=False, object_store_memory=OBJECT_STORE_BYTES)
    except (OSError, RayError, RuntimeError, ValueError) as error:
        where = f"RAY_ADDRESS = {address}: no Ray cluster answers there" if address else "Ray does not start here"
        raise InputError(f"--backend ray: {where} ({' '.join(str(error).split())[:200]})") from None
    return workers, _Connection()


def _start(**options: Any) -> None:
    """Start Ray or join a cluster, and take SIGTERM back: Ray would print its C++ stack and end the process."""
    ours = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(logging_level=logging.ERROR, log_to_driver=False, **options)
    except SystemExit:  # what Ray makes of SIGTERM meanwhile
        raise KeyboardInterrupt from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ours)


def _check_reachable(address: str) -> None:
    """Fail when nobody listens at host:port: there Ray would wait, print a page, and end the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()


def _cluster_cores() -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


class _Connection:
    """Ends the connection to Ray, and a Ray that was started here."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        ray.shutdown()


class RayPool:
    """Workers on Ray from `__enter__` to `__exit__`, which ends them.

    Parameters
    ----------
    job
        What every worker needs to know.
    next_task, size, first
        See `Dispatcher`.
    connection
        Closed at the end.
    """

    def __init__(
        self,
        job: SweepJob,
        next_task: Callable[[], Task | None],
        size: int,
        first: int,
        connection: AbstractContextManager[object],
    ) -> None:
        self.job = job
        self.dispatcher = Dispatcher(next_task, size, first)
        self.connection = connection
        self.workers: list[_RayWorker] = []
        self.started = 0

    def __enter__(self) -> "RayPool":
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self.watch: Any = ray.remote(num_cpus=0)(Watch).options(scheduling_strategy=here).remote()
        self.shared_job = ray.put(self.job)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self.connection:
            for worker in self.workers:
                ray.kill(worker.handle)
            ray.kill(self.watch)

    def events(self) -> Iterator[Event]:
        """What happens, until every task is done. Deaths are followed by a new worker."""
        started, said = time.monotonic(), 0
        while self.dispatcher.dispatch([worker for worker in self.workers if worker.ready]):
            while len(self.workers) < self.dispatcher.workers_wanted:
                self._start_worker()
            awaited = {reference: worker for worker in self.workers if (reference := worker.awaited()) is not None}
            done, _ = ray.wait(list(awaited), num_returns=1, timeout=WAIT_S)
            if len(done) < len(awaited):
                done, _ = ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
            for reference in done:
                yield self._listen(awaited[reference], reference)
            if not any(worker.ready for worker in self.workers):
                waited = time.monotonic() - started
                if said < len(SLOW_START) and waited > SLOW_START[said][0]:
                    yield Event("note", SLOW_START[said][1])
                    said += 1

    def _start_worker(self) -> None:
        self.started += 1
        handle = REMOTE.remote(self.started, self.watch, self.shared_job)
        begins = handle.ready.options(concurrency_group="work").remote(dict(source_hashes()), self.job.grid.spec_hash)
        self.workers.append(_RayWorker(self.started, handle, begins))

    def _listen(self, worker: _RayWorker, reference: Any) -> Event:
        """What a worker says: that it is ready, or a task's outcome; or its death."""
        try:
            value = ray.get(reference)
        except RayTaskError as error:
            return Event("broken", str(error))
        except RayError as error:
            return self._death_event(worker, error)
        if not worker.ready:
            if value is not None:
                raise InputError(f"--backend ray: {value}")
            worker.ready = True
            self.dispatcher.begin()
            return Event("ready")
        worker.tasks.popleft()
        worker.running.popleft()
        worker.finished += 1
        worker.asked = False
        return Event("done", value)

    def _death_event(self, worker: _RayWorker, error: RayError) -> Event:
        """A worker, its node or its result is gone: what it was doing, and what it had not begun."""
        self.workers.remove(worker)
        with suppress(RayError):
            ray.kill(worker.handle)
        current = worker.tasks.popleft() if worker.tasks else None
        at: int | None = None
        if current is not None and current.alone:
            at = ray.get(self.watch.at.remote(worker.number, worker.finished + 1))
        return Event("died", f"{type(error).__name__} in Ray", current, at, tuple(worker.tasks))


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Within, no other worker of this node: one compiles the kernels, and the others load them."""
    from fastsim._jit.cache import cache_folder  # Numba, which the driver does without

    with (cache_folder() / ".compiling").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
