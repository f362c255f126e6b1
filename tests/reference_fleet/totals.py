"""What replicas counted, as the totals of one engine; and routers that look at no replica. Plain Python."""

MOST = (
    "end_us",
    "kv_peak_blocks",
    "running_peak",
    "batch_tokens_peak",
    "waiting_peak",
    "itl_max_us",
    "last_completion_us",
)
LEAST = ("cap_min", "cap_final")
FIRST = ("first_arrival_us", "first_completion_us")
STOPS = ("drained", "horizon", "max_steps", "livelock", "out_of_memory")
COUNTERS = ("prefill_tokens", "decode_tokens", "recomputed_tokens", "discarded_tokens")
MASK = 2**64 - 1


def fleet_totals(replicas, rows):
    """`replicas`: totals by name; `rows`: the replicas' own rows."""
    out = {name: sum(each[name] for each in replicas) for name in replicas[0] if name != "stop"}
    out |= {name: max(each[name] for each in replicas) for name in MOST}
    out |= {name: min(each[name] for each in replicas) for name in LEAST}
    out |= {name: min((each[name] for each in replicas if each[name] >= 0), default=-1) for name in FIRST}
    out["stop"] = max((each["stop"] for each in replicas), key=STOPS.index)
    locked = [each for each in replicas if each["livelock_kind"] > 0]
    seen = min(locked, key=lambda each: each["livelock_us"]) if locked else replicas[0]
    out |= {name: seen[name] for name in ("livelock_step", "livelock_us", "livelock_kind")}
    starved = max(rows, key=lambda row: row["starved_gap_s"] or 0.0)
    out["starved_gap_us"] = round((starved["starved_gap_s"] or 0.0) * 1e6)
    out["starved_at_us"] = round(starved["starved_at_s"] * 1e6) if starved["starved_gap_s"] else -1
    out["first_recomputed"] = 0
    return out | {f"{name}_then": out[name] for name in COUNTERS}


def round_robin(arrivals_us, replicas):
    """In turn, by time of arrival."""
    order = sorted(range(len(arrivals_us)), key=lambda i: (arrivals_us[i], i))
    return [order.index(i) % replicas for i in range(len(arrivals_us))]


def by_session(groups, parents, replicas):
    """The replica with the highest hash of it and the conversation: the root of the prefix group, or the request."""
    chosen = []
    for i, group in enumerate(groups):
        while group >= 0 and parents[group] >= 0:
            group = parents[group]
        session = group if group >= 0 else len(parents) + i
        chosen.append(max(range(replicas), key=lambda r: (mixed((mixed(session) + r) & MASK), -r)))
    return chosen


def mixed(value):
    """splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)
