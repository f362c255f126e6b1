"""Who is told how a sweep gets on."""

from typing import Protocol


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
