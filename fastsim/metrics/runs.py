# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Rows of runs whose logs were kept, one behind the other."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import borrow, entry
from fastsim.engines.outputs import Gaps, log_of_run
from fastsim.metrics.summary import summarise


class TrueLengths(NamedTuple):
    """True lengths of the requests, tokens; int64, shape (num_requests,) each."""

    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]


@entry
def summarise_runs(logs, lengths, totals, itl_histograms, params, scratch, floats, ints):
    """Fill one row a run: `summarise` for each. `logs` holds num_requests entries a run, run by run."""
    n = lengths.prompt_tokens.shape[0]
    tokens = borrow(lengths)
    scratch = borrow(scratch)
    for k in range(totals.shape[0]):
        at = k * n
        log = borrow(log_of_run(logs, at, n))
        gaps = borrow(Gaps(itl_histograms[k]))
        summarise(
            log,
            tokens.prompt_tokens,
            tokens.output_tokens,
            totals[k],
            gaps.histogram,
            params[k],
            scratch,
            floats[k],
            ints[k],
        )
