"""Which blocks of a request can be found by later ones: those that can be of use to somebody."""

from fastsim._jit import helper, inlined
from fastsim.engines.vllm.groups.codes import DENSE, GroupKind
from fastsim.engines.vllm.groups.pool import key_of, remember_content
from fastsim.engines.vllm.state import NONE


@inlined
def next_hash(s, g, hashed):
    """The least number of tokens with which a further entry of group `g` may be hashed, behind `hashed` of them."""
    tokens = (hashed + 1) * s.grp.block_size[g]
    if s.cfg["num_groups"] > 1 and not s.cfg["drops_block"]:
        common = s.cfg["common"]
        tokens = (tokens + common - 1) // common * common
    return tokens


@helper
def hash_blocks(s, i, tokens):
    """Make the full blocks among the first `tokens` of request `i` findable by their content."""
    tokens = min(tokens, s.req.num_tokens[i] - s.cfg["hash_lookahead"])
    num_groups = s.cfg["num_groups"]
    row = s.req.row[i]
    rounded = tokens
    if num_groups > 1:
        rounded = tokens // s.cfg["common"] * s.cfg["common"]
    for j in range(num_groups):
        g = s.cfg["first_group"] + j
        upto = rounded
        if num_groups > 1 and s.cfg["drops_block"] and rounded > 0:
            upto = min(rounded + s.grp.block_size[g], tokens)
        full = upto // s.grp.block_size[g]
        place = row * num_groups + j
        entries = row * s.cfg["row_width"] + s.grp.offset[g]
        for q in range(s.tab.hashed[place], full):
            block = s.tab.entries[entries + q]
            if block != NONE and _is_wanted(s, i, g, q):
                remember_content(s, block, key_of(s, i, j, q))
        s.tab.hashed[place] = max(s.tab.hashed[place], full)


@inlined
def _is_wanted(s, i, g, q):
    """Whether entry `q` of group `g` can be of use to a later request."""
    kind = s.grp.kind[g]
    if kind == GroupKind.SLIDING:
        return _is_wanted_of_window(s, i, g, q)
    if kind == GroupKind.ALIGNED:
        return _is_wanted_state(s, i, g, q)
    return True


@helper
def _is_wanted_of_window(s, i, g, q):
    drops = s.cfg["drops_block"]
    needed = s.grp.run[g] + drops
    retention = s.cfg["retention"]
    if retention != 0:
        period = s.grp.period[g]
        if needed >= period or (q >= drops and (q - drops) % period >= period - needed):
            return True
    if retention == DENSE:
        return False
    for number in range(4):
        end = _boundary(s, i, g, number)
        if end >= 0:
            end = end // s.grp.block_size[g] + drops
            if end - needed <= q and q < end:
                return True
    return False


@helper
def _is_wanted_state(s, i, g, q):
    retention = s.cfg["retention"]
    if retention == DENSE:
        return True
    if retention > 0:
        period = s.grp.period[g]
        if period <= 1 or (q + 1) % period == 0:
            return True
    for number in range(4):
        end = _boundary(s, i, g, number)
        if end >= 0 and q == end // s.grp.block_size[g] - 1:
            return True
    return False


@helper
def _boundary(s, i, g, number):
    """Lengths that a later request may share, in multiples of `common`: this prompt, what was seen shared. -1: none."""
    common = s.cfg["common"]
    prompt = s.wl.prompt_tokens[i]
    junction = s.req.junction[i]
    if number >= 2 and junction <= 0:
        return -1
    if not s.cfg["drops_block"]:
        if number == 0:
            return (prompt - 1) // common * common
        return junction // common * common if number == 2 else -1
    if number == 0:
        return max((prompt - 1) // common * common - common, 0)
    if number == 1:
        return max(prompt // common * common - common, 0)
    if number == 2:
        return junction // common * common
    return max((junction - s.grp.block_size[g]) // common * common, 0) if junction >= s.grp.block_size[g] else -1
