# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Order statistics without sorting: selection in place, and quantiles by linear interpolation.

The ladder of quantiles of one metric costs about five passes over its values; a full sort of 300 costs three times
that. Whoever calls these does so in a loop, from one place: each place costs a second of compile time.
"""

import numpy as np

from fastsim._jit import helper
from fastsim.engines.outputs import itl_bin, itl_bin_value

_NAN = np.nan


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


@helper
def select(values, first, last, rank):
    """Rearrange values[first .. last] so that values[rank] is where a sort would put it.

    Afterwards nothing before `rank` is greater and nothing behind it is smaller. The inner loops have no branches: a
    swap always happens, and the boundary moves by the comparison's result.
    """
    seed = 12345
    while last > first:
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        _swap(values, _median_of_three(values, first, last, seed), last)
        pivot = values[last]
        part = values[first:last]  # indices from zero: no checks for negative ones, 30 % faster
        less = 0
        for k in range(part.shape[0]):
            value = part[k]
            part[k] = part[less]
            part[less] = value
            less += value < pivot
        boundary = first + less
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


@helper
def quantile(values, start, served, total, q):
    """Quantile `q` of `total` values of which values[:served] are finite and the others +infinity.

    Linear interpolation at position (total - 1) * q, rounded as numpy.quantile rounds. NaN where the position touches
    an infinite value. `start`: everything before it is known to be no greater than what follows; calls with growing
    `q` hand on the second result.

    Returns
    -------
    value, start
    """
    position = (total - 1) * q
    low = int(position)
    fraction = position - low
    if total == 0 or low >= served:
        return _NAN, start
    select(values, start, served - 1, low)
    below = values[low]
    if fraction == 0.0:
        return below, low
    if low + 1 >= served:
        return _NAN, low
    above = values[low + 1]
    for k in range(low + 2, served):
        above = min(above, values[k])
    step = above - below
    if fraction >= 0.5:
        return above - step * (1.0 - fraction), low
    return below + step * fraction, low


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
