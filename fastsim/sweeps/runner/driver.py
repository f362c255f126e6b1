"""A sweep from its grid to its folder: parts go to worker processes and come back as files.

Nothing here decides a number: whatever the workers, their order, their deaths or an interruption, the same parts with
the same bytes are stored.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Protocol

from fastsim.errors import InputError, WorkError, need
from fastsim.sweeps.grid import Grid, Part
from fastsim.sweeps.runner.cores import available_cores
from fastsim.sweeps.runner.death_counter import DeathCounter
from fastsim.sweeps.runner.dispatch import Event
from fastsim.sweeps.runner.pool import WorkerPool
from fastsim.sweeps.runner.progress import Progress, Silent
from fastsim.sweeps.runner.signals import terminated_by_signal
from fastsim.sweeps.store import PartRecord, SweepFolder, write_part
from fastsim.sweeps.worker import STEP_S, Outcome, Piece, SweepJob, Task, part_data

MANIFEST_EVERY_S = 30.0
MAX_SHARES = 16
"""Into so many tasks the rest of one is cut at most; each may be shared again."""
KEPT = "what was done is kept, and the same command goes on from there"


class Interrupted(WorkError):
    """Stopped by Ctrl-C or SIGTERM; what was done is kept."""

    exit_code = 130


@dataclass
class SweepResult:
    """What a sweep did: rows in the folder, rows computed now, and how many rows are of configurations that failed.

    `errors` says why the first of those failed, also of those that failed in an earlier run; `tracebacks` are of this.
    """

    folder: Path
    rows: int
    computed: int
    seconds: float
    failed: int = 0
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
    selection.check_parts()
    progress = progress or Silent()
    with SweepFolder(Path(out), grid, selection, fresh=fresh) as folder:
        run = _SweepRun(folder, grid, backend, workers, progress)
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
    need("--backend ray", "ray")


class Workers(Protocol):
    """Worker processes, here or elsewhere."""

    def events(self) -> Iterator[Event]:
        """What happens, until every task is done."""


class _SweepRun:
    """One sweep under way."""

    def __init__(
        self,
        folder: SweepFolder,
        grid: Grid,
        backend: str,
        workers: int | None,
        progress: Progress,
    ) -> None:
        self.folder = folder
        self.grid = grid
        self.backend = backend
        self.workers = workers
        self.progress = progress
        self.parts: Iterator[Part] = iter(folder.missing_parts())
        self.retries: deque[Task] = deque()
        self.death_counter = DeathCounter()
        self.pieces: dict[int, list[Piece]] = {}  # by part, of those that several workers share
        self.piece_errors: dict[int, dict[int, str]] = {}
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
                self._compute()
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
            self.result.failed = self.folder.failed
            self.result.errors = dict(sorted(self.folder.reasons()))
            self.result.seconds = time.monotonic() - started
            self._save_last(state)
        return self.result

    def _compute(self) -> None:
        with terminated_by_signal(), self._pool() as pool:
            for event in pool.events():
                self._handle(event)
                if time.monotonic() - self._saved > MANIFEST_EVERY_S:
                    self._save_meanwhile()

    def _pool(self) -> AbstractContextManager[Workers]:
        """The workers: no more than rows to compute; at first no more than parts."""
        if self.backend == "ray":
            from fastsim.sweeps.runner.ray_token import lock_up

            lock_up()
            from fastsim.sweeps.runner.ray_pool import RayPool, connect

            workers, connection = connect(self.workers)
            return RayPool(SweepJob(self.grid, None), self._next_task, *self._useful(workers), connection)
        job = SweepJob(self.grid, self.folder.path.absolute())
        return WorkerPool(job, self._next_task, *self._useful(self.workers or available_cores()))

    def _useful(self, workers: int) -> tuple[int, int]:
        """How many of so many workers could have something to do, and how many without sharing parts."""
        missing = list(islice(self.folder.missing_parts(), workers))
        return min(workers, sum(part.rows for part in missing)), len(missing)

    def _next_task(self) -> Task | None:
        if self.retries:
            return self.retries.popleft()
        part = next(self.parts, None)
        return None if part is None else Task(part)

    def _handle(self, event: Event) -> None:
        if event.kind == "done":
            self._store(event.value)
        elif event.kind == "died":
            self._retry_after_death(event)
        elif event.kind == "ready":
            self.progress.ready()
        elif event.kind == "note":
            self.progress.note(event.value)
        elif event.kind == "at":
            self.death_counter.progress()
        elif event.kind == "failed":
            raise WorkError(f"{event.value}; {KEPT}")
        elif event.kind == "broken":
            raise RuntimeError(f"in a worker:\n{event.value}")

    def _store(self, outcome: Outcome) -> None:
        """Note what a worker stored; store what it handed in."""
        self.death_counter.progress()
        self.result.tracebacks += outcome.tracebacks[: 3 - len(self.result.tracebacks)]
        part = outcome.task.part
        if outcome.record is not None:
            self._add(outcome.record)
        elif outcome.data is not None:
            self._add(self._write(part, outcome.data, outcome.errors))
        elif outcome.piece is not None:
            self._gather(outcome, outcome.piece)

    def _add(self, record: PartRecord) -> None:
        try:
            self.folder.add(record)
        except OSError as error:
            raise WorkError(f"{self.folder.path}: cannot be written ({error.strerror or error}); {KEPT}") from None
        self.progress.advance(record.rows)

    def _write(self, part: Part, data: bytes, errors: dict[int, str]) -> PartRecord:
        try:
            return write_part(self.folder.path, part, data, errors)
        except OSError as error:
            sentence = f"{self.folder.path}: part {part.index} cannot be stored ({error.strerror or error})"
            raise WorkError(f"{sentence}; {KEPT}") from None

    def _gather(self, outcome: Outcome, piece: Piece) -> None:
        """Keep a piece of a part; hand out the rest of its task in shares that are worth it, or store the part."""
        part, rest = outcome.task.part, outcome.task.end - piece.stop
        pieces = self.pieces.setdefault(part.index, [])
        pieces.append(piece)
        errors = self.piece_errors.setdefault(part.index, {})
        errors |= outcome.errors
        if rest:
            shares = max(1, min(rest, MAX_SHARES, round(rest * outcome.seconds_per_row / STEP_S)))
            cuts = [piece.stop + rest * n // shares for n in range(shares + 1)]
            self.retries += [replace(outcome.task, first=a, stop=b) for a, b in pairwise(cuts)]
        elif sum(len(piece.workload_ids) for piece in pieces) == part.rows:
            del self.pieces[part.index], self.piece_errors[part.index]
            pieces.sort(key=lambda piece: piece.first)
            self._add(self._write(part, part_data(self.grid, part, pieces), errors))

    def _retry_after_death(self, event: Event) -> None:
        """A worker died: what it had not begun is handed out again, and what it was doing."""
        again = self.death_counter.after_death(event)
        if self.death_counter.too_many:
            raise WorkError(
                f"workers keep dying ({event.value}), so the sweep stopped; what was done is kept in "
                f"{self.folder.path}, and fewer --workers need less memory"
            )
        self.retries.extend(event.unstarted)
        if again is not None:
            self.progress.note(f"a worker died ({event.value}) over part {again.part.index}; trying it again")
            self.retries.append(again)

    def _save_meanwhile(self) -> None:
        try:
            self._save("running")
        except OSError as error:
            raise WorkError(f"{self.folder.path}: cannot be written ({error.strerror or error}); {KEPT}") from None

    def _save_last(self, state: str) -> None:
        """Save at the end. On a full disk the manifest stays as it was, which is true of what it lists."""
        try:
            self._save(state)
        except OSError as error:
            sentence = f"{self.folder.path}: manifest.json cannot be stored ({error.strerror or error}); {KEPT}"
            if state == "complete":
                raise WorkError(sentence) from None
            self.progress.note(sentence)

    def _save(self, state: str) -> None:
        self.folder.manifest.totals["seconds"] = round(self.result.seconds, 3)
        self.folder.write_manifest(state)
        self._saved = time.monotonic()
