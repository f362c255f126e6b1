"""Standard input, output and error as they come: closed, full, gone, or with text in them that is not meant to be seen.

What a spec, a trace or a file's name holds may be hostile: control characters move the cursor of a terminal, and
characters that turn the direction of writing show another name than there is. They are written as escapes.
"""

import io
import os
import sys
from typing import Any, TextIO

from fastsim.errors import WorkError, printable

KEPT = "\n\t"
"""Of what cannot be printed these two are written as they are."""


def open_closed() -> None:
    """Open standard streams that are closed, on nothing: a file opened later would take their place.

    What is written to a closed stream is lost, as whoever closed it wants.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - it stays open


def guard() -> None:
    """Put guards before standard output and error; streams that somebody else has put there stay as they are."""
    for name, must in (("stdout", True), ("stderr", False)):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper and stream.fileno() in (1, 2):
            setattr(sys, name, Guarded(stream, "standard output" if must else ""))


class Guarded(io.TextIOWrapper):
    """A stream that shows what cannot be printed as escapes.

    When it cannot be written, and has a name, that ends the work with a sentence; without a name the rest is dropped.
    A reader that has gone, as `head` does, is never a fault: the rest is dropped.
    """

    def __init__(self, stream: io.TextIOWrapper, name: str) -> None:
        buffer: Any = stream.buffer
        super().__init__(buffer, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering)
        self.plain: TextIO = stream
        self.what = name

    def write(self, text: str) -> int:
        """Write a text, escaped where needed."""
        if not isinstance(text, str):
            raise TypeError(f"{type(text).__name__}, but text was expected")  # typer tries bytes to see what this is
        try:
            super().write("".join(letter if letter in KEPT else printable(letter) for letter in text))
        except OSError as error:
            self._give_up(error)
        return len(text)

    def flush(self) -> None:
        """Write what is held back."""
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self.fileno())  # what is held back, and what comes, goes nowhere
        os.close(nothing)
        if self.what and not isinstance(error, BrokenPipeError):
            raise WorkError(f"{self.what}: cannot be written ({error.strerror or error})") from None


def plain(stream: TextIO) -> TextIO:
    """The stream behind a guard, for what draws on a terminal and escapes texts itself."""
    return stream.plain if isinstance(stream, Guarded) else stream
