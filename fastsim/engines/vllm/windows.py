"""Preemptions of the last steps: a window over non-empty steps, kept as the few of them that preempted anybody.

Non-empty steps are counted by `watched`. A ring holds (step, preemptions) of those with preemptions; a step that fell
out of the window is dropped and its preemptions with it.
"""

from fastsim._jit import helper


@helper
def push(ring, head, size, step, preemptions):
    """Append a step. The ring has room: a window of W steps holds at most W of them, and the ring W + 1."""
    place = (head + size) % (ring.shape[0] // 2)
    ring[2 * place] = step
    ring[2 * place + 1] = preemptions


@helper
def oldest_step(ring, head):
    """Number of the oldest step in the ring."""
    return ring[2 * head]


@helper
def oldest_preemptions(ring, head):
    """Its preemptions."""
    return ring[2 * head + 1]


@helper
def following(ring, head):
    """Place behind `head`."""
    return (head + 1) % (ring.shape[0] // 2)
