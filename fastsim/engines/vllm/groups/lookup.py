"""The prefix cache asked by all groups together: how much of a waiting request is there.

Groups of equal kind, block size and parameter are a class, and an entry is found only if every group of the class has
it. Each class may shorten what the ones before it found; then they are asked again, until all agree.
"""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.groups.codes import GroupKind
from fastsim.engines.vllm.groups.pool import key_of
from fastsim.engines.vllm.state import NONE

SEARCHED = 1
DROPPED = 2


@inlined
def _found(s, i, q, first, last):
    """Whether every group of the class at places first .. last - 1 has block `q` of request `i`."""
    missing = 0
    for place in range(first, last):
        missing += s.pool.oldest[key_of(s, i, s.grp.by_class[place], q)] == NONE
    return missing == 0


@inlined
def _shortened(s, length, block_size):
    """Entries whose tokens are a multiple of what all groups have in common."""
    common = s.cfg["common"]
    while length * block_size % common != 0:
        length -= 1
    return length


@helper
def _find_class(s, i, first, last, limit, drop):
    """Longest reusable entries of a class within `limit` tokens: the first that is a block, and how many."""
    g = s.cfg["first_group"] + s.grp.by_class[first]
    kind = s.grp.kind[g]
    block_size = s.grp.block_size[g]
    if kind == GroupKind.SLIDING:
        return _find_sliding(s, i, first, last, limit, drop)
    if kind == GroupKind.ALIGNED:
        for q in range(limit // block_size - 1, -1, -1):
            if (q + 1) * block_size % s.cfg["common"] == 0 and _found(s, i, q, first, last):
                return q, q + 1
        return 0, 0
    start = limit // s.grp.parameter[g] * s.grp.parameter[g] // block_size if kind == GroupKind.CHUNKED else 0
    length = start
    while (length + 1) * block_size <= limit and _found(s, i, length, first, last):
        length += 1
    if kind == GroupKind.FULL:
        if drop and length > 0:
            length -= 1
        length = _shortened(s, length, block_size)
    return start, length


@helper
def _find_sliding(s, i, first, last, limit, drop):
    """From the end backwards: the first run long enough, else the run that reaches the start."""
    g = s.cfg["first_group"] + s.grp.by_class[first]
    block_size = s.grp.block_size[g]
    needed = s.grp.run[g] + drop
    run = 0
    top = 0
    q = limit // block_size - 1
    while q >= 0:
        if not _found(s, i, q, first, last):
            run = 0
        elif run > 0 or (q + 1 - drop) * block_size % s.cfg["common"] == 0:
            if run == 0:
                top = q + 1
            run += 1
            if run >= needed:
                break
        q -= 1
    start = max(q, 0)
    length = top
    if q < 0:
        length = _shortened(s, run, block_size)
    if drop and length > 0:
        length = _shortened(s, length - 1, block_size)
    return start, length


@helper
def find_hits(s, i):
    """Write the entries that request `i` can reuse into `Tables.hits`; `hit_tokens` and `junction` say how far."""
    num_groups = s.cfg["num_groups"]
    s.st["junction"] = 0
    for j in range(num_groups):
        s.tab.hit_length[j] = 0
        s.tab.hit_from[j] = 0
        s.tab.class_state[j] = 0
    if not s.cfg["enable_prefix_caching"]:
        s.st["hit_tokens"] = 0
        return
    first_group = s.cfg["first_group"]
    base = first_group  # of by_class and class_of
    hit = s.req.num_tokens[i] - 1
    if num_groups == 1:
        start, length = _find_class(s, i, base, base + 1, hit, s.grp.drops[first_group])
        s.tab.class_from[0] = start
        s.tab.class_length[0] = length
        hit = length * s.grp.block_size[first_group]
    else:
        hit = _agree(s, i, hit)
    for place in range(num_groups):
        j = s.grp.by_class[base + place]
        lead = place
        while lead > 0 and s.grp.class_of[base + lead - 1] == s.grp.class_of[base + place]:
            lead -= 1
        length = min(s.tab.class_length[lead], hit // s.grp.block_size[first_group + j])
        s.tab.hit_length[j] = length
        s.tab.hit_from[j] = min(s.tab.class_from[lead], length)
        offset = s.grp.offset[first_group + j]
        for q in range(s.tab.hit_from[j], length):
            s.tab.hits[offset + q] = s.pool.oldest[key_of(s, i, j, q)]
    s.st["hit_tokens"] = hit


@helper
def _agree(s, i, hit):
    """The length on which all classes agree, at most `hit`."""
    base = s.cfg["first_group"]
    end = base + s.cfg["num_groups"]
    longest = 0
    while True:
        current = hit
        first = base
        while first < end:
            last = first + 1
            while last < end and s.grp.class_of[last] == s.grp.class_of[first]:
                last += 1
            current = _visit_class(s, i, first, last, current)
            longest = max(longest, current)
            first = last
        if current >= hit:
            break
        hit = current
        if s.cfg["full_first"]:
            break
    s.st["junction"] = longest if longest > hit else 0
    return hit


@inlined
def _visit_class(s, i, first, last, current):
    """What the class at places first .. last - 1 leaves of `current` tokens."""
    base = s.cfg["first_group"]
    lead = first - base
    g = base + s.grp.by_class[first]
    block_size = s.grp.block_size[g]
    state = s.tab.class_state[lead]
    if s.grp.kind[g] == GroupKind.FULL and state > 0:
        return min(current, s.tab.class_length[lead] * block_size)
    drop = 1 if s.grp.drops[g] and state < DROPPED else 0
    limit = min(current + block_size, s.req.num_tokens[i]) if drop else current
    start, length = _find_class(s, i, first, last, limit, drop)
    s.tab.class_from[lead] = start
    s.tab.class_length[lead] = length
    found = length * block_size
    if drop:
        s.tab.class_state[lead] = DROPPED
    else:
        if found < current:
            for place in range(s.cfg["num_groups"]):
                s.tab.class_state[place] = min(s.tab.class_state[place], SEARCHED)
        s.tab.class_state[lead] = max(s.tab.class_state[lead], SEARCHED)
    return found
