"""Fleets as kernels read them: one record a configuration."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take, code_of


class Router(IntEnum):
    """The values of `fleet.router`; from POWER_OF_TWO on they look at the replicas."""

    ROUND_ROBIN = 0
    RANDOM = 1
    SESSION = 2
    POWER_OF_TWO = 3
    LEAST_LOADED = 4
    VLLM_DP = 5


FLEET_DTYPE = np.dtype(
    [
        ("replicas", np.int64),
        ("router", np.int64),
        ("seed", np.int64),  # of the router's draws: the workload's
        ("refresh_us", np.int64),  # time between two snapshots of the replicas; 0: at every decision
    ]
)


def fleet_records(take: Take, count: int) -> npt.NDArray[np.void]:
    """FLEET_DTYPE records of `count` configurations; `take(key, encode)` gives a key's values for all of them."""
    fleet = np.zeros(count, FLEET_DTYPE)
    fleet["replicas"] = take("fleet.replicas", int)
    fleet["router"] = take("fleet.router", code_of(Router))
    fleet["seed"] = take("workload.seed", int)
    fleet["refresh_us"] = take("fleet.refresh_ms", _microseconds)
    return fleet


def _microseconds(milliseconds: float) -> int:
    return round(milliseconds * 1000)
