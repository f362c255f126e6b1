# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Order statistics without sorting: selection in place, and quantiles by linear interpolation.

All quantiles of a latency cost about five passes over its values. Tried and not kept: values counted into buckets
first, which saves a fifth at most.
"""

import numpy as np

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import itl_bin, itl_bin_value

_NAN = np.nan
FEW = 12
"""So many values are sorted by insertion, more are partitioned."""
_SKIPPED = 16


@helper
def _swap(values, a, b):
    value = values[a]
    values[a] = values[b]
    values[b] = value


@helper
def _median_of_three(values, first, last, seed):
    """Place of the median of three values at pseudo-random places: no natural order is bad again and again."""
    count = last - first + 1
    a = first + (((seed >> 16) * count) >> 15)
    b = first + (((seed & 0x7FFF) * count) >> 15)
    c = first + (count >> 1)
    if values[a] > values[b]:
        a, b = b, a
    if values[c] <= values[a]:
        return a
    return b if values[c] >= values[b] else c


@inlined
def _sort_few(values, first, last):
    for k in range(first + 1, last + 1):
        value = values[k]
        place = k
        while place > first and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@helper
def select(values, first, last, rank):
    """Rearrange values[first .. last] so that values[rank] is where a sort would put it.

    Afterwards nothing before `rank` is greater and nothing behind it is smaller. The inner loops have no branches: a
    swap always happens, and the boundary moves by the comparison's result.
    """
    seed = 12345
    while last - first >= FEW:
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        _swap(values, _median_of_three(values, first, last, seed), last)
        pivot = values[last]
        boundary = first
        for k in range(first, last):
            value = values[k]
            values[k] = values[boundary]
            values[boundary] = value
            boundary += value < pivot
        _swap(values, boundary, last)
        if boundary == first:
            # The pivot is the least: put its equals beside it, lest many equal values take one pass each
            for k in range(first + 1, last + 1):
                value = values[k]
                values[k] = values[boundary + 1]
                values[boundary + 1] = value
                boundary += value == pivot
            if rank <= boundary:
                return
            first = boundary + 1
        elif rank < boundary:
            last = boundary - 1
        elif rank == boundary:
            return
        else:
            first = boundary + 1
    _sort_few(values, first, last)


@helper
def quantile(values, first, start, served, total, q):
    """Quantile `q` of `total` values, of which values[first : first + served] are finite and the others infinite.

    Linear interpolation at position (total - 1) * q, rounded as numpy.quantile rounds. NaN where the position touches
    an infinite value. `start`: so many are known to be no greater than what follows; calls with growing positions hand
    on the second result.

    Returns
    -------
    value, start
    """
    position = (total - 1) * q
    low = int(position)
    fraction = position - low
    if total == 0 or low >= served:
        return _NAN, start
    select(values, first + start, first + served - 1, first + low)
    below = values[first + low]
    if fraction == 0.0:
        return below, low
    if low + 1 >= served:
        return _NAN, low
    above = values[first + low + 1]
    for k in range(first + low + 2, first + served):
        above = min(above, values[k])
    return interpolated(below, above, fraction), low


@inlined
def interpolated(below, above, fraction):
    """Between two values, rounded as numpy.quantile rounds."""
    step = above - below
    if fraction >= 0.5:
        return above - step * (1.0 - fraction)
    return below + step * fraction


@helper
def reaches_median(values, count, twice):
    """Whether the median of values[:count], doubled, is at most `twice`: they are counted, and only a tie is looked at.

    The values may be rearranged.
    """
    low = (count - 1) >> 1
    high = count >> 1
    within = 0
    for k in range(count):
        within += 2.0 * values[k] <= twice
    if within != high or low == high:
        return within > high
    select(values, 0, count - 1, low)
    above = values[high]
    for k in range(high + 1, count):
        above = min(above, values[k])
    return 2.0 * interpolated(values[low], above, 0.5) <= twice


@helper
def gap_quantile(histogram, start_bin, before, count, longest_us, q):
    """Quantile `q` of `count` token gaps from their histogram, by linear interpolation between neighbours.

    `before` gaps lie in the bins before `start_bin`; calls with growing `q` hand both on. A bin stands for its middle,
    which is within 0.4 % of every gap in it, and no answer exceeds the longest gap.

    Returns
    -------
    value_us, start_bin, before
    """
    if count == 0:
        return _NAN, start_bin, before
    position = (count - 1) * q
    low = int(position)
    fraction = position - low
    index = start_bin
    last = itl_bin(longest_us)
    while index + _SKIPPED <= last:
        skipped = before
        for k in range(_SKIPPED):
            skipped += histogram[index + k]
        if skipped > low:
            break
        before = skipped
        index += _SKIPPED
    while index < last and before + histogram[index] <= low:
        before += histogram[index]
        index += 1
    below = itl_bin_value(index)
    above = below
    if before + histogram[index] <= low + 1:
        following = index + 1
        while following < last and histogram[following] == 0:
            following += 1
        if following <= last:
            above = itl_bin_value(following)
    value = below + (above - below) * fraction
    return min(value, float(longest_us)), index, before


@helper
def sort_pairs(values, companions, count):
    """Heapsort of values[:count] with their companions, equal ones by companion: no allocation, no bad case."""
    for root in range(count // 2 - 1, -1, -1):
        _sift_down(values, companions, root, count)
    for end in range(count - 1, 0, -1):
        values[0], values[end] = values[end], values[0]
        companions[0], companions[end] = companions[end], companions[0]
        _sift_down(values, companions, 0, end)


@helper
def _is_before(value, companion, other_value, other_companion):
    return value < other_value or (value == other_value and companion < other_companion)


@helper
def _sift_down(values, companions, root, count):
    value = values[root]
    companion = companions[root]
    child = 2 * root + 1
    while child < count:
        other = child + 1
        if other < count and _is_before(values[child], companions[child], values[other], companions[other]):
            child = other
        if not _is_before(value, companion, values[child], companions[child]):
            break
        values[root] = values[child]
        companions[root] = companions[child]
        root = child
        child = 2 * root + 1
    values[root] = value
    companions[root] = companion
