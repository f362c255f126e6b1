"""`admit` and `cap` of a policy file in the waiting scan, and what they mean for jumps in time.

A jump repeats a scan that ended in vain. Where it ended by one of these two, the coming steps repeat it for as long as
the answer stays: by what it depends on (`Reads`) that is for ever, until somebody arrives, or for as many steps as it
is found to, asked for each with the clock and the free blocks of then.
"""

from fastsim._jit import helper
from fastsim._jit.indirect import ask
from fastsim.engines.vllm.codes import Reads
from fastsim.engines.vllm.scalars import ScanEnd

NO_CAP = 2**31


@helper
def cap_of_policy(s, cap):
    """The cap of a scan: the other caps', or the policy's where that is less. At least 1."""
    s.st["own_cap_binds"] = 0
    if s.cfg["policy_cap"] == 0:
        return cap
    own = own_cap(s)
    s.st["own_cap_binds"] = 1 if own < cap else 0
    return min(own, cap)


@helper
def own_cap(s):
    """What `cap` answers now: whole, and at least 1."""
    return int(min(max(ask(s.cfg["policy_cap"], s, 0) // 1.0, 1.0), float(NO_CAP)))


@helper
def gate_admits(s, i, computed, hits, tokens):
    """What `admit` answers about a candidate that would have `computed` tokens by `hits`, and be given `tokens`."""
    s.st["candidate"] = i
    s.st["candidate_computed"] = computed
    s.st["candidate_hits"] = hits
    s.st["candidate_tokens"] = tokens
    return ask(s.cfg["policy_admit"], s, i) != 0.0


@helper
def _reads(s):
    """What the end of the last scan depends on, of what the policy decided in it.

    A record says of an empty queue, too, whether a cap would have come before, and which cap it was.
    """
    end = s.st["scan_end"]
    if end == ScanEnd.POLICY_ADMIT:
        return s.cfg["policy_admit_reads"]
    if end == ScanEnd.CAP and s.st["own_cap_binds"]:
        return s.cfg["policy_cap_reads"]
    if s.cfg["record"] and end in (ScanEnd.CAP, ScanEnd.EMPTY):
        return s.cfg["policy_cap_reads"]
    return Reads.STEADY


@helper
def policy_repeats(s):
    """Whether the coming scans can be known to end as the last one did, as far as the policy decides.

    With keys that change, another request may be the first: then only a scan that looked at none of them repeats.
    """
    end = s.st["scan_end"]
    looked = end not in (ScanEnd.CAP, ScanEnd.BUDGET, ScanEnd.EMPTY)
    if looked and s.cfg["policy_queue_changes"] and s.st["waiting"] > 1:
        return False
    reads = _reads(s)
    return reads != Reads.HITS and (reads != Reads.STEPS or s.st["scheduled"] == 0)


@helper
def stops_at_arrivals(s):
    """Whether an arrival inside a jump would be given a key, or change an answer, of another time."""
    return s.cfg["policy_queue_moves"] or s.st["scan_end"] == ScanEnd.POLICY_ADMIT or _reads(s) != Reads.STEADY


@helper
def watches_steps(s):
    """Whether each step of a jump has to ask."""
    return s.cfg["policy"] and _reads(s) == Reads.STEPS


@helper
def opens_at(s, now_us, free, steps):
    """Whether, after so many more steps of a jump, the answer would no longer be that of the last scan."""
    before = s.st["now_us"], s.st["free"], s.st["prefill_tokens"]
    s.st["now_us"] = now_us
    s.st["free"] = free
    s.st["prefill_tokens"] = 0
    s.tot["steps"] += steps
    if s.st["scan_end"] == ScanEnd.POLICY_ADMIT:
        opens = ask(s.cfg["policy_admit"], s, s.st["candidate"]) != 0.0
    else:
        others = min(s.cfg["max_num_active_seqs"], s.st["cap"])
        own = own_cap(s)
        full = s.st["running"] >= min(own, others)
        opens = full != (s.st["scan_end"] == ScanEnd.CAP) or (full and (own < others) != (s.st["own_cap_binds"] != 0))
    s.st["now_us"] = before[0]
    s.st["free"] = before[1]
    s.st["prefill_tokens"] = before[2]
    s.tot["steps"] -= steps
    return opens
