"""Which turn of its conversation a request is."""

import numpy as np
import numpy.typing as npt

from fastsim.workload.workload import Workload

Int64Array = npt.NDArray[np.int64]


def turns_of(workload: Workload) -> Int64Array:
    """The turn of each request of a workload of conversations (`workload.sessions`), from 1; shape (num_requests,).

    A turn's whole prompt is a group of its own, which extends that of the turn before; the last turn, which nobody
    extends, shares the group of the one before it and comes later.
    """
    parent = workload.group_parent
    depth = np.zeros(len(parent) + 1, np.int64)  # the last: of requests without a group
    for group in range(len(parent)):  # a group is made after the one that it extends
        depth[group] = depth[parent[group]] + 1 if parent[group] >= 0 else 1
    turns = np.maximum(depth[workload.prefix_group], 1)
    order = np.lexsort((workload.arrival_us, workload.prefix_group))
    shared = workload.prefix_group[order]
    later = np.zeros(len(order), bool)
    later[1:] = (shared[1:] == shared[:-1]) & (shared[1:] >= 0)
    turns[order[later]] += 1
    return turns
