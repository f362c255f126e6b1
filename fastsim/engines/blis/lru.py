"""The CPU tier's list of keys, least recently used first."""

from fastsim._jit import helper
from fastsim.engines.blis.codes import NONE


@helper
def _cpu_append(st, t, node):
    t.node_prev[node] = st["cpu_tail"]
    t.node_next[node] = NONE
    if st["cpu_tail"] == NONE:
        st["cpu_head"] = node
    else:
        t.node_next[st["cpu_tail"]] = node
    st["cpu_tail"] = node


@helper
def _cpu_unlink(st, t, node):
    before = t.node_prev[node]
    after = t.node_next[node]
    if before == NONE:
        st["cpu_head"] = after
    else:
        t.node_next[before] = after
    if after == NONE:
        st["cpu_tail"] = before
    else:
        t.node_prev[after] = before


@helper
def cpu_touch(st, t, node):
    """Now the most recently used."""
    if st["cpu_tail"] != node:
        _cpu_unlink(st, t, node)
        _cpu_append(st, t, node)


@helper
def mirror(cfg, st, s):
    """After a step: every full block of every running request, in order, is stored in the tier or touched."""
    b = s.blocks
    t = s.tier
    for at in range(st["running"]):
        i = s.lists.running[at]
        start = s.req.table_start[i]
        for entry in range(start, start + s.req.table_len[i]):
            key = b.key[b.table[entry]]
            if key == NONE:
                continue
            node = t.key_node[key]
            if node != NONE:
                cpu_touch(st, t, node)
                continue
            if st["cpu_size"] == cfg["kv_cpu_blocks"]:
                node = st["cpu_head"]
                t.key_node[t.node_key[node]] = NONE
                _cpu_unlink(st, t, node)
            else:
                node = st["cpu_size"]
                st["cpu_size"] += 1
            t.node_key[node] = key
            t.key_node[key] = node
            _cpu_append(st, t, node)
