"""The requests of a run as the kernels read them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.blis.codes import SLO_PRIORITY
from fastsim.errors import InputError

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_LATEST_US = 2**60


class BlisWorkload(NamedTuple):
    """Requests in trace order; every array has shape (num_requests,) unless said otherwise.

    ===================  =====  ======  ===========================================================================
    array                dtype  unit    meaning
    ===================  =====  ======  ===========================================================================
    arrival_us           int64  us
    prompt_tokens        int32  tokens  shared prefix included; at least 1
    output_tokens        int32  tokens  may be 0: the request then ends with its prefill
    priority             int32          smaller is more urgent
    prefix_group         int32  index   requests of a group share their first tokens; -1 none
    prefix_tokens        int32  tokens  how many
    deadline_us          int64  us      absolute; 0 none
    order                int64  index   requests by (arrival, index)
    sjf_rank             int64          place by (prompt, arrival, id)
    priority_rank        int64          place by (priority, arrival, id)
    reverse_rank         int64          place by (-priority, arrival, id)
    group_prefix_tokens  int32  tokens  (num_groups,) longest prefix a request takes from the group
    ===================  =====  ======  ===========================================================================

    The id of request i is the string "request_i", and ids compare as strings: "request_10" comes before "request_2".
    """

    arrival_us: Int64Array
    prompt_tokens: Int32Array
    output_tokens: Int32Array
    priority: Int32Array
    prefix_group: Int32Array
    prefix_tokens: Int32Array
    deadline_us: Int64Array
    order: Int64Array
    sjf_rank: Int64Array
    priority_rank: Int64Array
    reverse_rank: Int64Array
    group_prefix_tokens: Int32Array


def build_workload(
    arrival_us: npt.ArrayLike,
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    *,
    slo_class: Sequence[str] | None = None,
    priority: npt.ArrayLike | None = None,
    prefix_group: npt.ArrayLike | None = None,
    prefix_tokens: npt.ArrayLike | None = None,
    deadline_us: npt.ArrayLike | None = None,
    timeout_us: int = 0,
) -> BlisWorkload:
    """Workload from arrays or lists of one length.

    Parameters
    ----------
    slo_class
        One of SLO_PRIORITY a request; gives the priority. Not together with `priority`.
    timeout_us
        Deadline after arrival of every request that has none of its own; 0: none. (BLIS's `run` takes 300 s.)

    Raises
    ------
    InputError
        When lengths differ or a value is out of its range.
    """
    if slo_class is not None and priority is not None:
        raise InputError("workload: slo_class and priority were both given, but only one of them was expected")
    if slo_class is not None:
        priority = [SLO_PRIORITY.get(name, SLO_PRIORITY[""]) for name in slo_class]
    arrival = _column("arrival_us", arrival_us, None, 0, _LATEST_US)
    count = len(arrival)
    prompt = _column("prompt_tokens", prompt_tokens, count, 1, 2**30)
    output = _column("output_tokens", output_tokens, count, 0, 2**30)
    urgency = _column("priority", priority, count, -(2**31), 2**31 - 1, default=SLO_PRIORITY[""])
    group = _column("prefix_group", prefix_group, count, -1, 2**30, default=-1)
    prefix = np.minimum(_column("prefix_tokens", prefix_tokens, count, 0, 2**30), prompt)
    deadline = _column("deadline_us", deadline_us, count, 0, 2**61)
    if timeout_us > 0:
        deadline = np.where(deadline == 0, arrival + timeout_us, deadline)
    longest = np.zeros(int(group.max(initial=-1)) + 1, np.int32)
    member = group >= 0
    np.maximum.at(longest, group[member], prefix[member].astype(np.int32))
    return BlisWorkload(
        arrival,
        prompt.astype(np.int32),
        output.astype(np.int32),
        urgency.astype(np.int32),
        group.astype(np.int32),
        prefix.astype(np.int32),
        deadline,
        np.argsort(arrival, kind="stable").astype(np.int64),
        _ranks(prompt, arrival),
        _ranks(urgency, arrival),
        _ranks(-urgency, arrival),
        longest,
    )


def _ranks(key: Int64Array, arrival: Int64Array) -> Int64Array:
    """Place of each request when sorted by (key, arrival, id)."""
    by_id = np.argsort(np.array([f"request_{i}" for i in range(len(key))], dtype=str), kind="stable")
    id_rank = np.empty(len(key), np.int64)
    id_rank[by_id] = np.arange(len(key))
    ranks = np.empty(len(key), np.int64)
    ranks[np.lexsort((id_rank, arrival, key))] = np.arange(len(key))
    return ranks


def _column(
    name: str, values: npt.ArrayLike | None, count: int | None, low: int, high: int, default: int = 0
) -> Int64Array:
    if values is None:
        return np.full(count or 0, default, np.int64)
    array = np.atleast_1d(np.asarray(values))
    if count is not None and array.shape != (count,):
        raise InputError(f"workload: {name} has shape {array.shape}, but ({count},) was expected")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"workload: {name} has dtype {array.dtype}, but integers were expected")
    out = array.astype(np.int64)
    if out.size and (int(out.min()) < low or int(out.max()) > high):
        worst = int(np.flatnonzero((out < low) | (out > high))[0])
        raise InputError(f"workload: {name} of request {worst} is {int(out[worst])}, but {low} to {high} was expected")
    return out
