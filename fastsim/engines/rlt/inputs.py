"""What the engine is given: requests in submission order, exit depths, keys of shareable pages."""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.arrays import checked
from fastsim.errors import InputError
from fastsim.workload.workload import Workload

I64 = npt.NDArray[np.int64]


class RltWorkload(NamedTuple):
    """Requests sorted by arrival (stable), read only; all int64. n requests, d listed depths, k page keys.

    ==============  =======  =======  ======================================================================
    array           shape    unit     meaning
    ==============  =======  =======  ======================================================================
    arrival_us      (n,)     us       ascending; ticks under the default latency
    prompt_tokens   (n,)     tokens   at least 1
    output_tokens   (n,)     tokens   outputs it produces, at least 1
    max_tokens      (n,)     tokens   outputs it may produce, as declared: its capacity is planned by these
    priority        (n,)              smaller is more urgent
    source          (n,)              index of the request in the list it came from
    depth_start     (n+1,)            where its depths lie in `depths`; an empty range: all loops, always
    depths          (d,)     loops    loops output number j leaves after; the first one never does
    key_start       (n+1,)            where its pages lie in `page_keys`
    page_keys       (k,)              dense id of the prefix that ends with the page; empty without caching
    ==============  =======  =======  ======================================================================
    """

    arrival_us: I64
    prompt_tokens: I64
    output_tokens: I64
    max_tokens: I64
    priority: I64
    source: I64
    depth_start: I64
    depths: I64
    key_start: I64
    page_keys: I64

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_us)

    @property
    def num_keys(self) -> int:
        """Distinct page keys."""
        return int(self.page_keys.max()) + 1 if len(self.page_keys) else 0


def build_workload(
    arrival_us: Sequence[int] | npt.NDArray[Any],
    prompt_tokens: Sequence[int] | npt.NDArray[Any],
    output_tokens: Sequence[int] | npt.NDArray[Any],
    priority: Sequence[int] | npt.NDArray[Any],
    *,
    max_tokens: Sequence[int] | npt.NDArray[Any] | None = None,
    depths: Sequence[Sequence[int] | None] | None = None,
    page_keys: Sequence[Sequence[Hashable]] | None = None,
) -> RltWorkload:
    """Sort requests into submission order and lay their lists out flat.

    `max_tokens` is the declared limit, at least `output_tokens` (None: equal to it). `depths[i]` are the exit depths of
    request i by output (None: all loops); `page_keys[i]` names the prefix that ends with each shareable page of request
    i (see `prompt_page_keys`).
    """
    arrival = np.asarray(arrival_us, np.int64)
    n = len(arrival)
    limits = output_tokens if max_tokens is None else max_tokens
    columns = {
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "max_tokens": limits,
        "priority": priority,
    }
    for name, column in columns.items():
        if len(column) != n:
            raise InputError(f"workload.{name}: expected {n} values, one a request, found {len(column)}")
        if name != "priority" and n and np.min(column) < 1:
            raise InputError(f"workload.{name}: expected at least 1 token, found {np.min(column)}")
    if n and np.any(np.asarray(limits) < np.asarray(output_tokens)):
        raise InputError("workload.max_tokens: expected a limit of at least the output tokens of each request")
    if n and arrival.min() < 0:
        raise InputError(f"workload.arrival_us: expected no arrival before 0, found {arrival.min()}")
    order = np.argsort(arrival, kind="stable")
    listed = [list(depths[i] or ()) if depths is not None else [] for i in order]
    if any(not 1 <= depth <= 127 for each in listed for depth in each):
        raise InputError("workload.depths: expected exit depths from 1 to 127 loops")
    ids: dict[Hashable, int] = {}
    keys = [[ids.setdefault(key, len(ids)) for key in page_keys[i]] if page_keys is not None else [] for i in order]
    return RltWorkload(
        arrival_us=arrival[order],
        prompt_tokens=np.asarray(prompt_tokens, np.int64)[order],
        output_tokens=np.asarray(output_tokens, np.int64)[order],
        max_tokens=np.asarray(limits, np.int64)[order],
        priority=np.asarray(priority, np.int64)[order],
        source=order.astype(np.int64),
        depth_start=_starts(listed),
        depths=np.array([depth for each in listed for depth in each], np.int64),
        key_start=_starts(keys),
        page_keys=np.array([key for each in keys for key in each], np.int64),
    )


def _starts(lists: list[list[int]]) -> I64:
    return np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)


def prompt_page_keys(prompts: Sequence[Sequence[int]], block_size: int) -> list[list[Hashable]]:
    """Page keys of prompts given as token ids: two pages are one when all tokens up to their ends are equal.

    The page that holds the last prompt token is never shared, so a prompt has (length - 1) // block_size keys.
    """
    ids: dict[tuple[int, tuple[int, ...]], int] = {}
    result: list[list[Hashable]] = []
    for prompt in prompts:
        keys: list[Hashable] = []
        parent = -1
        for end in range(block_size, len(prompt), block_size):
            parent = ids.setdefault((parent, tuple(prompt[end - block_size : end])), len(ids))
            keys.append(parent)
        result.append(keys)
    return result


def group_page_keys(
    prompt_tokens: npt.NDArray[Any], prefix_group: npt.NDArray[Any], prefix_tokens: npt.NDArray[Any], block_size: int
) -> tuple[I64, I64]:
    """(key_start, page_keys) of symbolic prompts: requests of a group (>= 0) share their first `prefix_tokens` tokens.

    The page with the last prompt token is never shared, nor one that reaches beyond the shared tokens.
    """
    pages = (prompt_tokens.astype(np.int64) - 1) // block_size
    checked(int(pages.sum()), "the pages of all prompts", "raise engine.block_size, or offer fewer or shorter requests")
    common = np.where(prefix_group >= 0, np.minimum(prefix_tokens // block_size, pages), 0)
    start = np.concatenate([[0], np.cumsum(pages)]).astype(np.int64)
    place = np.arange(start[-1]) - np.repeat(start[:-1], pages)  # of the page in its prompt
    is_common = place < np.repeat(common, pages)
    group = np.repeat(prefix_group, pages)[is_common].astype(np.int64)
    longest = int(pages.max(initial=0)) + 1
    _, shared_ids = np.unique(group * longest + place[is_common], return_inverse=True)
    keys = np.empty(len(place), np.int64)
    keys[is_common] = shared_ids
    num_shared = int(shared_ids.max(initial=-1)) + 1
    keys[~is_common] = num_shared + np.arange(np.count_nonzero(~is_common))
    return start, keys


def with_page_keys(plain: RltWorkload, workload: Workload, block_size: int) -> RltWorkload:
    """What `open_loop` made of a workload, with the keys of its shareable pages."""
    order = plain.source
    start, keys = group_page_keys(
        workload.prompt_tokens[order], workload.prefix_group[order], workload.prefix_tokens[order], block_size
    )
    return plain._replace(key_start=start, page_keys=keys)


def open_loop(workload: Workload) -> RltWorkload:
    """The engine's view of a workload without prefix caching; a request without a declared limit declares its output.

    Raises InputError for a closed loop, and when prefix groups extend each other.
    """
    if not workload.groups.is_flat:
        raise InputError("workload: its prefix groups form a tree, but engine vllm-rlt expects groups that stand alone")
    if workload.concurrency:
        raise InputError(f"workload.concurrency = {workload.concurrency}: engine vllm-rlt expects an open loop, 0")
    return build_workload(
        workload.arrival_us,
        workload.prompt_tokens,
        workload.output_tokens,
        workload.priority,
        max_tokens=np.maximum(workload.max_tokens, workload.output_tokens),
    )
