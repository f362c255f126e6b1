"""Operations that fail aloud where compiled code and Python could differ: each says where it stands in the file.

Integers stay within 2**53, so that none wraps around and each is exact as a double; divisors are not 0; results of
functions are finite. The compiled form of each is `fastsim._jit.checking`.
"""

import math

from fastsim.errors import PolicyError

LARGEST = 2**53
TOO_LARGE = "an integer beyond 2**53 (write float(...) around one of the numbers)"
NOT_WHOLE = "a number beyond 2**53 has no integer here"
BY_ZERO = "a division by 0"
NOT_FINITE = "a result that is no finite number"


def _kept(value: float, where: str) -> float:
    if isinstance(value, int) and abs(value) > LARGEST:
        raise PolicyError(f"{where}: {TOO_LARGE}")
    return value


def add(a: float, b: float, where: str) -> float:
    """A + b."""
    return _kept(a + b, where)


def sub(a: float, b: float, where: str) -> float:
    """A - b."""
    return _kept(a - b, where)


def mul(a: float, b: float, where: str) -> float:
    """A * b."""
    return _kept(a * b, where)


def nonzero(a: float, where: str) -> float:
    """A, as a divisor."""
    if a == 0:
        raise PolicyError(f"{where}: {BY_ZERO}")
    return a


def finite(a: float, where: str) -> float:
    """A, as the result of a function."""
    if not math.isfinite(a):
        raise PolicyError(f"{where}: {NOT_FINITE}")
    return a


def _whole(a: float, where: str) -> int:
    if not abs(a) <= LARGEST:
        raise PolicyError(f"{where}: {NOT_WHOLE}")
    return int(a)


def trunc(a: float, where: str) -> int:
    """int(a)."""
    return _whole(a, where)


def rint(a: float, where: str) -> int:
    """round(a): ties to even."""
    return _whole(a if isinstance(a, int) or not math.isfinite(a) else round(a), where)


def floor(a: float, where: str) -> int:
    """math.floor(a)."""
    return _whole(a if isinstance(a, int) or not math.isfinite(a) else math.floor(a), where)


def ceil(a: float, where: str) -> int:
    """math.ceil(a)."""
    return _whole(a if isinstance(a, int) or not math.isfinite(a) else math.ceil(a), where)


OPERATIONS = (add, sub, mul, nonzero, finite, trunc, rint, floor, ceil)
