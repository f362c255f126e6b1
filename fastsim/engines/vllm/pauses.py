"""One engine of a fleet: it rests at each decision of the router that may look at it.

Between two decisions engines do not know of each other. `advance` (and its likes) does all steps that start before
`until_us`, the time of the next decision, and can be called again and again. The last of these steps may end behind
that time: the router must not see what it does, so the counts it sees are noted when a step begins.
"""

from fastsim._jit import inlined
from fastsim.engines.outputs import Stop
from fastsim.engines.vllm.codes import NO_LIMIT
from fastsim.engines.vllm.livelock import GOING_ON


@inlined
def see(s, running):
    """Note what the router sees until the end of the step that begins: arrivals are let in, nothing is scheduled."""
    if s.st["until_us"] != NO_LIMIT:
        s.st["seen_waiting"] = s.st["waiting"]
        s.st["seen_running"] = running
        s.st["seen_free"] = s.st["free"]
        s.st["seen_gone"] = s.tot["completed"] + s.tot["rejected"] + s.tot["timed_out"]


@inlined
def unless_more_comes(s, stop):
    """Why the run ended: it is not drained before the router is."""
    if stop == Stop.DRAINED and s.st["until_us"] != NO_LIMIT:
        return GOING_ON
    return stop
