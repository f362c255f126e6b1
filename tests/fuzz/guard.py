"""Running one input: what may come of it is a result, or one sentence; within two seconds, without a file written."""

import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastsim.errors import FastsimError

CPU_LIMIT_S = 2.0
WALL_LIMIT_S = 30.0
"""For what waits instead of working; generous, because the machine may be busy with other things."""
MEMORY_LIMIT_BYTES = 2**30
MAX_SENTENCE = 2_000
WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.move"}


class Trouble(AssertionError):
    """An input had an effect that none may have."""


class _Overdue(BaseException):
    """Raised in the middle of an input that takes too long."""


_written: list[str] = []
_watched: list[bool] = []
"""Not empty while an input runs."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Note writes while an input runs."""
    if not _watched:
        return
    if event == "open":
        _, mode, flags = arguments
        writes = isinstance(mode, str) and any(letter in mode for letter in "wax+")
        if writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            _written.append(f"{event} {arguments[0]!r}")
    elif event in WRITES or event in ("os.system", "subprocess.Popen", "socket.connect"):
        _written.append(f"{event} {arguments[:1]!r}")


@contextmanager
def limits() -> Iterator[None]:
    """Within, addresses beyond four GiB more than now are refused, so that nothing harms the machine.

    What memory is really used is measured after every input: libraries reserve far more than they touch.
    """
    sys.addaudithook(_audit)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 4 * MEMORY_LIMIT_BYTES, hard))
    before = {number: signal.signal(number, _overdue) for number in (signal.SIGALRM, signal.SIGPROF)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _overdue(number: int, frame: Any) -> None:
    raise _Overdue


def check(call: Callable[[], object]) -> str:
    """Run one input: `fine`, or `refused` with one sentence.

    Raises
    ------
    Trouble
        After a traceback, a warning, a hang, too much memory, or a file written.
    """
    _written.clear()
    before_mib = peak_mib()
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
    signal.setitimer(signal.ITIMER_REAL, WALL_LIMIT_S)
    _watched.append(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call()
        ending = "fine"
    except FastsimError as error:
        sentence = str(error)
        if "\n" in sentence or not 10 < len(sentence) < MAX_SENTENCE or not sentence.isprintable():
            raise Trouble(f"not one printable sentence: {sentence[:300]!r}") from None
        ending = "refused"
    except _Overdue:
        raise Trouble(f"still busy after {time.process_time() - started:.1f} s of CPU") from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise Trouble(f"{type(error).__name__}: {error}"[:500]) from error
    finally:
        _watched.clear()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if _written:
        raise Trouble(f"writes: {_written[:3]}")
    if (more := peak_mib() - before_mib) > MEMORY_LIMIT_BYTES >> 20:
        raise Trouble(f"{more} MiB of memory")
    return ending


def peak_mib() -> int:
    """The most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
