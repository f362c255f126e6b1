"""The errors fastsim raises on purpose, and how they help with a misspelt name."""

from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISDIR, S_ISREG

MAX_SENTENCE = 1_500
"""Letters of a sentence, but for a file's name of thousands."""


def printable(text: str) -> str:
    """Text on one line: what cannot be printed is escaped, so that a message is one sentence on one line."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


class FastsimError(Exception):
    """Base of all errors raised on purpose. The command line prints the message and exits with `exit_code`."""

    exit_code = 1


class InputError(FastsimError):
    """Bad input: one sentence that names file, key, value and what was expected.

    It stays on one line and is of readable length whatever it quotes.
    """

    exit_code = 2

    def __init__(self, sentence: str) -> None:
        text = printable(sentence)
        half = MAX_SENTENCE // 2
        super().__init__(text if len(text) <= MAX_SENTENCE else f"{text[:half]} ... {text[-half:]}")


class WorkError(FastsimError):
    """The work itself failed, or a check did not hold."""

    exit_code = 1


class PolicyError(WorkError):
    """A function of `engine.policy_file` gave no usable answer: one sentence with its line."""


def suggestion(name: str, known: list[str]) -> str:
    """`; did you mean ...?`, or what is known when nothing is close."""
    last = name.rpartition(".")[2]
    by_last = [key for key in known if key.rpartition(".")[2] == last]
    close = by_last[:1] or get_close_matches(name[:200], known, n=1, cutoff=0.75)
    if not close:
        ends = {key.rpartition(".")[2]: key for key in reversed(known)}
        close = [ends[match] for match in get_close_matches(last[:200], list(ends), n=1, cutoff=0.75)]
    if close:
        return f"; did you mean {close[0]}?"
    section = [key for key in known if "." in name and key.startswith(name.rpartition(".")[0] + ".")]
    choices = section or known
    return "; known are " + ", ".join(choices) if len(choices) <= 30 else "; `fastsim policies` lists them"


def check_regular(path: Path, what: str) -> None:
    """Refuse a pipe or a device, whose end may never come; what is not there is for whoever opens it to say.

    Raises
    ------
    InputError
        When a path is neither a regular file nor a folder.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if not (S_ISREG(mode) or S_ISDIR(mode)):
        raise InputError(f"{path}: not a regular file, but {what} was expected")


EXTRAS = {"scipy": "calibrate", "altair": "plot", "vl_convert": "plot", "ray": "ray", "aiconfigurator_core": "tables"}
"""Modules that only some work needs, and the extra that brings each."""


def need(work: str, *modules: str) -> None:
    """Refuse work whose modules are not installed, naming the extra that brings them.

    Raises
    ------
    InputError
        When one is missing.
    """
    if missing := [name for name in modules if find_spec(name) is None]:
        are = "is" if len(missing) == 1 else "are"
        raise InputError(
            f"{work} needs {' and '.join(missing)}, which {are} not installed: "
            f"pip install 'fastsim-llm[{EXTRAS[missing[0]]}]'"
        )
