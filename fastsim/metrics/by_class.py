# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Metrics of each class of requests: runs whose logs were kept, one behind the other, taken apart by class.

A kernel of its own, which is compiled when the first workload with classes runs: workloads without pay nothing.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import borrow, entry, helper
from fastsim.engines.outputs import RequestLog, log_of_run, new_request_log
from fastsim.metrics.columns import CLASS_COLUMNS, FLOAT_COLUMNS, INT_COLUMNS, NULL, PARAMS_DTYPE, SLO_NAMES, new_rows
from fastsim.metrics.counts import ratio
from fastsim.metrics.params import ClassBounds
from fastsim.metrics.runs import TrueLengths
from fastsim.metrics.scratch import new_scratch
from fastsim.metrics.summary import served
from fastsim.metrics.verdict import label, misses_slo


class Members(NamedTuple):
    """Log entries class by class: those of class c are entries[start[c] : start[c + 1]]; int64 both."""

    entries: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]


@helper
def _gather(log, entries, out):
    """The log in the order of `entries`."""
    for place in range(entries.shape[0]):
        i = entries[place]
        out.arrival_us[place] = log.arrival_us[i]
        out.first_scheduled_us[place] = log.first_scheduled_us[i]
        out.first_token_us[place] = log.first_token_us[i]
        out.first_life_token_us[place] = log.first_life_token_us[i]
        out.last_token_us[place] = log.last_token_us[i]
        out.finish_us[place] = log.finish_us[i]
        out.num_generated[place] = log.num_generated[i]
        out.num_preemptions[place] = log.num_preemptions[i]
        out.prefix_hit_tokens_first[place] = log.prefix_hit_tokens_first[i]
        out.prefix_hit_tokens[place] = log.prefix_hit_tokens[i]
        out.scheduled_tokens[place] = log.scheduled_tokens[i]
        out.admission_wait_us[place] = log.admission_wait_us[i]
        out.admission_wait_end_us[place] = log.admission_wait_end_us[i]
        out.status[place] = log.status[i]


@helper
def _one_class(log, prompt_tokens, output_tokens, totals, params, scratch, floats, ints):
    """Fill the columns that a class has; returns what goodput counted."""
    counted = served(log, prompt_tokens, output_tokens, totals, params, scratch, floats, ints)
    preemptions = 0
    for i in range(log.status.shape[0]):
        preemptions += log.num_preemptions[i]
    ints["preemptions"] = preemptions
    misses_slo(log, prompt_tokens, output_tokens, totals, params, floats, ints)
    return counted


@entry
def summarise_classes(
    logs, members, lengths, totals, params, judged, gathered, scratch, class_floats, class_ints, floats, ints
):
    """Fill a row a run and class, and correct the rows of runs where a class has a bound of its own.

    Parameters
    ----------
    logs
        RequestLog, n entries a run, run by run.
    members
        Members of the classes among the n entries.
    lengths
        True lengths in the order of the members.
    totals
        TOTALS_DTYPE records, shape (runs,).
    params
        PARAMS_DTYPE records, shape (runs x classes,), with each class's SLO.
    judged
        bool, shape (runs,): whether a class has a bound of its own, so that each class is judged by its own.
    gathered, scratch
        A RequestLog of n entries and a Scratch for as many; both are overwritten.
    class_floats, class_ints
        Records of FLOAT_ROW_DTYPE and INT_ROW_DTYPE, shape (runs x classes,); modified in place.
    floats, ints
        The rows of whole runs, shape (runs,); modified in place.
    """
    entries = borrow(members).entries
    n = entries.shape[0]
    num_classes = members.start.shape[0] - 1
    work = borrow(gathered)
    scratch = borrow(scratch)
    for k in range(totals.shape[0]):
        _gather(borrow(log_of_run(logs, k * n, n)), entries, work)
        good = offered = rejected = 0
        missed = NULL
        seconds = 0.0
        for c in range(num_classes):
            start, end = members.start[c], members.start[c + 1]
            row = k * num_classes + c
            part = borrow(log_of_run(gathered, start, end - start))
            tokens = borrow(TrueLengths(lengths.prompt_tokens[start:end], lengths.output_tokens[start:end]))
            counted = _one_class(
                part,
                tokens.prompt_tokens,
                tokens.output_tokens,
                totals[k],
                params[row],
                scratch,
                class_floats[row],
                class_ints[row],
            )
            good += counted.good
            offered += counted.offered
            rejected += counted.rejected
            seconds = counted.seconds
            missed = max(missed, class_ints[row]["misses_slo"])
        if judged[k]:
            floats[k]["goodput_req_per_s"] = ratio(good, seconds)
            floats[k]["goodput_share"] = ratio(good, offered)
            floats[k]["goodput_admitted_share"] = ratio(good, offered - rejected)
            ints[k]["misses_slo"] = missed
            ints[k]["verdict"] = label(totals[k], ints[k])


_FLOATS = [(k, FLOAT_COLUMNS.index(column.name)) for k, column in enumerate(CLASS_COLUMNS) if column.kind == "float"]
_INTS = [(k, INT_COLUMNS.index(column.name)) for k, column in enumerate(CLASS_COLUMNS) if column.kind != "float"]


class ClassSummary:
    """The classes of one workload: what every run over it is taken apart by.

    Parameters
    ----------
    request_class
        Class of the request that each log entry is about, int32, shape (n,).
    num_classes
        How many there are.
    prompt_tokens, output_tokens
        True lengths, in the order of the log.
    """

    def __init__(
        self,
        request_class: npt.NDArray[np.int32],
        num_classes: int,
        prompt_tokens: npt.NDArray[np.integer],
        output_tokens: npt.NDArray[np.integer],
    ) -> None:
        entries = np.argsort(request_class, kind="stable")
        start = np.zeros(num_classes + 1, np.int64)
        start[1:] = np.cumsum(np.bincount(request_class, minlength=num_classes))
        self._num_classes = num_classes
        self._members = Members(entries, start)
        self._lengths = TrueLengths(prompt_tokens[entries].astype(np.int64), output_tokens[entries].astype(np.int64))
        self._gathered = new_request_log(len(entries))
        self._scratch = new_scratch(len(entries))

    def columns(
        self,
        logs: RequestLog,
        totals: npt.NDArray[np.void],
        params: npt.NDArray[np.void],
        bounds: ClassBounds,
        floats: npt.NDArray[np.void],
        ints: npt.NDArray[np.void],
    ) -> npt.NDArray[np.float64]:
        """The classes' columns of some runs, and their rows corrected: see `summarise_classes`.

        Parameters
        ----------
        logs
            Of the runs, one behind the other.
        totals, params, bounds, floats, ints
            Of each run; the last two are its row, modified in place.

        Returns
        -------
        float64 array
            Shape (runs, classes x len(CLASS_COLUMNS)); NaN stands for null.
        """
        count = len(totals)
        each = np.repeat(np.asarray(params, PARAMS_DTYPE), self._num_classes)
        own = bounds.slo_us.reshape(len(each), len(SLO_NAMES))
        for k, name in enumerate(SLO_NAMES):
            field = f"slo_{name}_us"
            each[field] = np.where(np.isnan(own[:, k]), each[field], own[:, k])
        judged = ~np.isnan(bounds.slo_us).all(axis=(1, 2))
        class_floats, class_ints = new_rows(len(each))
        rows = (class_floats, class_ints, floats, ints)
        summarise_classes(
            logs, self._members, self._lengths, totals, each, judged, self._gathered, self._scratch, *rows
        )
        out = np.empty((len(each), len(CLASS_COLUMNS)))
        plain = class_floats.view(np.float64).reshape(len(each), -1)
        whole = class_ints.view(np.int64).reshape(len(each), -1)
        for place, column in _FLOATS:
            out[:, place] = plain[:, column]
        for place, column in _INTS:
            out[:, place] = np.where(whole[:, column] == NULL, np.nan, whole[:, column])
        return out.reshape(count, -1)
