"""What the engine is given: requests, and which of their tokens are the same."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError
from fastsim.workload.workload import Workload

I64 = npt.NDArray[np.int64]


class SglangWorkload(NamedTuple):
    """Requests by index, read only; all int64. n requests, g prefix groups.

    ==================  ======  =======  ===========================================================================
    array               shape   unit     meaning
    ==================  ======  =======  ===========================================================================
    arrival_us          (n,)    us
    prompt_tokens       (n,)    tokens   at least 1
    output_tokens       (n,)    tokens   output until its stop token, at least 1
    max_new_tokens      (n,)    tokens   most it may generate, as declared
    ignore_eos          (n,)             1: no stop token ends it, it generates `max_new_tokens`
    priority            (n,)
    group               (n,)    index    its prefix group; -1: none
    shared              (n,)    tokens   of its prompt that are its group's
    order               (n,)    index    requests by (arrival, index)
    group_parent        (g+1,)  index    group whose tokens this one's begin with; -1: none
    group_start         (g+1,)  tokens   where the group's own tokens start
    ==================  ======  =======  ===========================================================================
    """

    arrival_us: I64
    prompt_tokens: I64
    output_tokens: I64
    max_new_tokens: I64
    ignore_eos: I64
    priority: I64
    group: I64
    shared: I64
    order: I64
    group_parent: I64
    group_start: I64

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_us)


def build_workload(
    arrival_us: npt.ArrayLike,
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    max_new_tokens: npt.ArrayLike,
    *,
    ignore_eos: npt.ArrayLike = 0,
    priority: npt.ArrayLike = 0,
    prefix_group: npt.ArrayLike = -1,
    prefix_tokens: npt.ArrayLike = 0,
    group_parent: npt.ArrayLike | None = None,
    group_start: npt.ArrayLike | None = None,
) -> SglangWorkload:
    """The engine's arrays from columns, a value a request; a single value stands for all. Groups stand alone unless a
    tree is given.
    """
    arrival = np.array(arrival_us, np.int64, ndmin=1)
    n = len(arrival)

    def column(name: str, values: npt.ArrayLike) -> I64:
        array = np.asarray(values, np.int64)
        if array.ndim and array.shape != (n,):
            raise InputError(f"workload: {name} has shape {array.shape}, but ({n},) was expected")
        return np.array(np.broadcast_to(array, (n,)))  # kernels are compiled for arrays of one kind

    prompt = column("prompt_tokens", prompt_tokens)
    group = column("prefix_group", prefix_group)
    shared = np.where(group >= 0, np.minimum(column("prefix_tokens", prefix_tokens), prompt), 0)
    groups = int(group.max(initial=-1)) + 1
    parent = np.full(groups, NO_GROUP) if group_parent is None else np.asarray(group_parent, np.int64)
    start = np.zeros(groups) if group_start is None else np.asarray(group_start, np.int64)
    return SglangWorkload(
        arrival_us=arrival,
        prompt_tokens=prompt,
        output_tokens=column("output_tokens", output_tokens),
        max_new_tokens=column("max_new_tokens", max_new_tokens),
        ignore_eos=column("ignore_eos", ignore_eos),
        priority=column("priority", priority),
        group=group,
        shared=shared,
        order=np.argsort(arrival, kind="stable").astype(np.int64),
        group_parent=np.append(parent, NO_GROUP).astype(np.int64),
        group_start=np.append(start, 0).astype(np.int64),
    )


NO_GROUP = -1


def from_workload(workload: Workload) -> SglangWorkload:
    """The engine's view of one of fastsim's workloads. A request that declares no limit declares its output.

    Raises
    ------
    InputError
        For a closed loop.
    """
    if workload.concurrency:
        raise InputError(
            f"workload.concurrency = {workload.concurrency}, but an open loop (0) was expected by engine sglang-0.5.23"
        )
    declared = workload.max_tokens.astype(np.int64)
    return build_workload(
        workload.arrival_us,
        workload.prompt_tokens,
        workload.output_tokens,
        np.where(declared > 0, declared, workload.output_tokens),
        priority=workload.priority,
        prefix_group=workload.prefix_group,
        prefix_tokens=workload.prefix_tokens,
        group_parent=workload.group_parent,
        group_start=workload.group_start_tokens,
    )
