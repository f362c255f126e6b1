"""The arrays of a run: made in one place, so that what no machine can hold is one sentence and no traceback."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError

MOST_ENTRIES = 2**28
"""Of an array that every run writes as a whole: beyond it that array alone takes gigabytes, and each run seconds."""

LARGE = "engine.num_gpu_blocks, engine.block_size, and the number and lengths of the requests"


def zeros(size: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of zeros.

    Raises
    ------
    InputError
        When there is no memory for it.
    """
    try:
        return np.zeros(size, dtype)
    except (MemoryError, ValueError):  # ValueError: more bytes than an address has
        raise InputError(f"engine: a run needs an array of {size:,} entries, for which there is no memory ({LARGE} "
                         "decide)") from None  # fmt: skip


def checked(size: int, what: str, advice: str) -> int:
    """The size of an array that every run writes as a whole.

    Raises
    ------
    InputError
        When it is larger than is supported: `what` is that large; `advice` names what makes it smaller.
    """
    if size > MOST_ENTRIES:
        raise InputError(f"engine: {what} take {size:,} entries, but at most {MOST_ENTRIES:,} are supported; {advice}")
    return size
