"""How a sweep gets on: a bar on a terminal, one line a minute elsewhere. All of it on stderr."""

import sys
import time

import typer

from fastsim.cli.streams import plain
from fastsim.errors import printable
from fastsim.sweeps.runner import Progress

LINE_EVERY_S = 60.0


def make_progress() -> Progress:
    """The progress for where stderr goes."""
    return Bar() if sys.stderr.isatty() else Lines()


def time_left(rows: int, left: int, seconds: float) -> str:
    """`1,234 rows/s, 2 min 3 s left`, when `rows` took `seconds`."""
    if rows == 0 or seconds <= 0:
        return "no rate yet"
    rate = rows / seconds
    per_s = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
    return f"{per_s} rows/s, {spell(left / rate)} left" if left else f"{per_s} rows/s"


def spell(seconds: float) -> str:
    """A duration in words."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Lines:
    """One line a minute."""

    def __init__(self) -> None:
        self.total = self.kept = self.rows = self.said_rows = 0
        self.begun = self.said = time.monotonic()

    def start(self, total: int, done: int) -> None:
        """Say what is there already."""
        self.total, self.kept = total, done
        self.begun = self.said = time.monotonic()
        if done:
            typer.echo(f"{done:,} of {total:,} rows are there already", err=True)

    def ready(self) -> None:
        """The first worker starts the clock."""
        if not self.rows:
            self.begun = time.monotonic()

    def advance(self, rows: int) -> None:
        """Say how far it is when a minute has passed."""
        self.rows += rows
        if time.monotonic() - self.said >= LINE_EVERY_S:
            self.said = time.monotonic()
            self._say()

    def note(self, text: str) -> None:
        """Say it."""
        typer.echo(text, err=True)

    def close(self) -> None:
        """Say how far it came."""
        if self.rows > self.said_rows:
            self._say()

    def _say(self) -> None:
        done = self.kept + self.rows
        self.said_rows = self.rows
        rest = time_left(self.rows, self.total - done, time.monotonic() - self.begun)
        typer.echo(f"{done:,} of {self.total:,} rows, {rest}", err=True)


class Bar:
    """A bar that moves."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self.begun = time.monotonic()
        self.rows = self.kept = self.total = 0
        self.bar = RichProgress(
            TextColumn("sweep"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rest]}"),
            console=Console(file=plain(sys.stderr)),
        )
        self.task = self.bar.add_task("sweep", total=None, rest="starting workers")

    def start(self, total: int, done: int) -> None:
        """Show what is there already."""
        self.begun = time.monotonic()
        self.total, self.kept = total, done
        self.bar.start()
        self.bar.update(self.task, total=total, completed=done)

    def ready(self) -> None:
        """The first worker starts the clock."""
        if not self.rows:
            self.begun = time.monotonic()
            self.bar.update(self.task, rest="at work")

    def advance(self, rows: int) -> None:
        """Move the bar."""
        self.rows += rows
        left = self.total - self.kept - self.rows
        rest = time_left(self.rows, left, time.monotonic() - self.begun)
        self.bar.update(self.task, advance=rows, rest=rest)

    def note(self, text: str) -> None:
        """Say it above the bar."""
        self.bar.console.print(printable(text), highlight=False, markup=False)

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.stop()
