"""A sweep from its grid to its folder: parts go to worker processes and come back as files.

Nothing here decides a number: whatever the workers, their order, their deaths or an interruption, the same parts with
the same bytes are stored.
"""

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fastsim.errors import InputError, WorkError
from fastsim.grid import Grid, Part
from fastsim.runner.cores import available_cores
from fastsim.runner.pool import Event, Pool
from fastsim.store import SweepFolder
from fastsim.worker import Job, Outcome, Task

KILLS_UNTIL_ALONE = 2
"""After so many deaths over one part its configurations run one at a time."""
KILLS_UNTIL_ERROR = 3
"""A configuration that killed so many workers, alone, becomes a row of status `error`."""
DEATHS_WITHOUT_PROGRESS = 12
"""So many deaths in a row without a part or a configuration getting done end the sweep."""
MANIFEST_EVERY_S = 30.0
MAX_ERRORS_LISTED = 100


class Interrupted(WorkError):
    """Stopped by Ctrl-C or SIGTERM; what was done is kept."""

    exit_code = 130


class Progress(Protocol):
    """Who wants to know how a sweep gets on."""

    def start(self, total: int, done: int) -> None:
        """`done` of `total` rows are on disk already."""

    def ready(self) -> None:
        """Workers are at work: kernels are compiled or loaded."""

    def advance(self, rows: int) -> None:
        """So many more rows are."""

    def note(self, text: str) -> None:
        """Something worth a line."""

    def close(self) -> None:
        """The sweep ends, for whatever reason."""


class Silent:
    """No progress shown."""

    def start(self, total: int, done: int) -> None:
        """Say nothing."""

    def ready(self) -> None:
        """Say nothing."""

    def advance(self, rows: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Say nothing."""


@dataclass
class SweepResult:
    """What a sweep did: rows in the folder, rows computed now, configurations that failed and why."""

    folder: Path
    rows: int
    computed: int
    seconds: float
    errors: dict[int, str] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)


def sweep(
    grid: Grid,
    out: str | Path,
    *,
    workers: int | None = None,
    limit: int | None = None,
    sample: int | None = None,
    shard: tuple[int, int] = (1, 1),
    rows_per_part: int | None = None,
    fresh: bool = False,
    backend: str = "local",
    progress: Progress | None = None,
    simulation: str = "fastsim.simulation",
) -> SweepResult:
    """Run the configurations of a grid and store their rows in a folder; what is there already is kept.

    Parameters
    ----------
    grid
        The plan.
    out
        The folder; `pl.scan_parquet(f"{out}/parts/*.parquet")` or `fastsim.scan(out)` reads it.
    workers
        Worker processes; by default as many as there are cores.
    limit, sample, shard, rows_per_part
        Which configurations, and how they are cut into parts: see `Grid.select`.
    fresh
        Throw away what an earlier sweep left in the folder.
    backend
        `local` or `ray`.
    progress
        Told how it gets on.
    simulation
        Module that runs a chunk.

    Returns
    -------
    SweepResult

    Raises
    ------
    InputError
        When the folder holds another sweep, is in use, or cannot be written.
    WorkError
        When rows cannot be stored, or workers keep dying. What was done is kept.
    Interrupted
        On Ctrl-C or SIGTERM. What was done is kept.
    """
    check_backend(backend)
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}, but an integer of at least 1 was expected")
    selection = grid.select(limit=limit, sample=sample, shard=shard, rows_per_part=rows_per_part)
    progress = progress or Silent()
    with SweepFolder(Path(out), grid, selection, fresh=fresh) as folder:
        run = _Run(folder, Job(grid, folder.path.absolute(), simulation), workers or available_cores(), progress)
        try:
            return run.run()
        finally:
            progress.close()


def check_backend(backend: str) -> None:
    """Refuse a backend that cannot run here."""
    if backend == "local":
        return
    if backend != "ray":
        raise InputError(f"--backend {backend}, but local or ray was expected")
    try:
        import ray  # noqa: F401
    except ImportError:
        raise InputError("--backend ray needs Ray, which is not installed: pip install 'fastsim-llm[ray]'") from None
    raise InputError("--backend ray is not part of this version; local was expected")


class _Run:
    """One sweep under way."""

    def __init__(self, folder: SweepFolder, job: Job, workers: int, progress: Progress) -> None:
        self.folder = folder
        self.job = job
        self.workers = workers
        self.progress = progress
        self.parts: Iterator[Part] = iter(folder.missing_parts())
        self.retries: deque[Task] = deque()
        self.deaths: dict[int, int] = {}  # by part
        self.kills: dict[int, int] = {}  # by configuration
        self.deaths_in_a_row = 0
        self.result = SweepResult(folder.path, 0, 0, 0.0)
        self._saved = time.monotonic()

    def run(self) -> SweepResult:
        """Compute what is missing; leave a truthful manifest however it ends."""
        started = time.monotonic()
        total, done = self.folder.manifest.rows, self.folder.done_rows
        self.progress.start(total, done)
        if self.folder.damaged:
            self.progress.note(f"{self.folder.damaged} parts are missing or damaged and are computed again")
        state = "failed"
        try:
            if done < total:
                self._compute(min(self.workers, self._missing_count()))
            state = "complete"
        except KeyboardInterrupt:
            state = "interrupted"
            raise Interrupted(
                f"stopped: {self.folder.done_rows} of {total} rows are kept in {self.folder.path}; "
                "the same command goes on from there"
            ) from None
        finally:
            self.result.rows = self.folder.done_rows
            self.result.computed = self.folder.done_rows - done
            self.result.seconds = time.monotonic() - started
            self._save(state)
        return self.result

    def _missing_count(self) -> int:
        """Parts still to compute, counted no further than there are workers."""
        return sum(1 for _, _ in zip(self.folder.missing_parts(), range(self.workers), strict=False))

    def _compute(self, workers: int) -> None:
        with _terminated_by_signal(), Pool(self.job, workers, self._next_task) as pool:
            for event in pool.events():
                self._handle(event)
                if time.monotonic() - self._saved > MANIFEST_EVERY_S:
                    self._save("running")

    def _next_task(self) -> Task | None:
        if self.retries:
            return self.retries.popleft()
        part = next(self.parts, None)
        return None if part is None else Task(part)

    def _handle(self, event: Event) -> None:
        if event.kind == "done":
            self._store(event.value)
        elif event.kind == "died":
            self._bury(event)
        elif event.kind == "ready":
            self.progress.ready()
        elif event.kind == "compiling":
            self.progress.note("compiling the kernels, once after an installation or a change (about 20 s)")
        elif event.kind == "at":
            self.deaths_in_a_row = 0
        elif event.kind == "full":
            raise WorkError(f"{event.value}; what was done is kept, and the same command goes on from there")
        elif event.kind == "broken":
            raise RuntimeError(f"in a worker:\n{event.value}")

    def _store(self, outcome: Outcome) -> None:
        self.folder.add(outcome.record)
        self.deaths_in_a_row = 0
        self.result.errors |= outcome.errors
        self.result.tracebacks += outcome.tracebacks[: 3 - len(self.result.tracebacks)]
        self.progress.advance(outcome.record.rows)

    def _bury(self, event: Event) -> None:
        """A worker died: try its part again, and find the configuration if it dies again."""
        self.deaths_in_a_row += 1
        if self.deaths_in_a_row > DEATHS_WITHOUT_PROGRESS:
            raise WorkError(
                f"workers keep dying ({event.value}), so the sweep stopped; what was done is kept in "
                f"{self.folder.path}, and fewer --workers need less memory"
            )
        self.retries.extend(event.unstarted)
        task = event.task
        if task is None:
            return
        part = task.part.index
        self.deaths[part] = self.deaths.get(part, 0) + 1
        skip = task.skip
        if event.at is not None:
            self.kills[event.at] = self.kills.get(event.at, 0) + 1
            if self.kills[event.at] >= KILLS_UNTIL_ERROR:
                skip |= {event.at}
                self.deaths_in_a_row = 0
        self.progress.note(f"a worker died ({event.value}) over part {part}; trying it again")
        self.retries.append(Task(task.part, self.deaths[part] >= KILLS_UNTIL_ALONE, skip))

    def _save(self, state: str) -> None:
        manifest = self.folder.manifest
        manifest.totals |= {"seconds": round(self.result.seconds, 3), "errors": len(self.result.errors)}
        listed = sorted(self.result.errors.items())[:MAX_ERRORS_LISTED]
        manifest.errors = [{"config_id": index, "error": error} for index, error in listed]
        self.folder.write_manifest(state)
        self._saved = time.monotonic()


@contextmanager
def _terminated_by_signal() -> Iterator[None]:
    """Within, SIGTERM is as Ctrl-C: clusters send it before they kill."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
