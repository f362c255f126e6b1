"""Who arrives when: requests by themselves, and in a closed loop those that a client sends when it is free."""

from fastsim._jit import helper
from fastsim.engines.trtllm.codes import NO_LIMIT, PENDING, WAITING


@helper
def client_sends_next(st, s, at_us):
    """Closed loop: a client is free, and sends the next request that can be served."""
    if st["clients"] == 0:
        return
    while st["next_client"] < st["num_requests"]:
        i = st["next_client"]
        st["next_client"] += 1
        if s.req.status[i] == PENDING:
            s.log.arrival_us[i] = at_us
            sent = s.lists.sent
            at = st["num_sent"]
            while at > st["next_sent"] and s.log.arrival_us[sent[at - 1]] > at_us:
                sent[at] = sent[at - 1]
                at -= 1
            sent[at] = i
            st["num_sent"] += 1
            return


@helper
def next_own_us(st, s):
    """When the next request arrives by itself; one that can never be served does not."""
    while st["next_own"] < st["num_own"]:
        i = s.wl.order[st["next_own"]]
        if s.req.status[i] == PENDING:
            return s.log.arrival_us[i]
        st["next_own"] += 1
    return NO_LIMIT


@helper
def next_arrival_us(st, s):
    """When anybody arrives next; NO_LIMIT: nobody."""
    at_us = next_own_us(st, s)
    if st["next_sent"] < st["num_sent"]:
        at_us = min(at_us, s.log.arrival_us[s.lists.sent[st["next_sent"]]])
    return at_us


@helper
def note_waiting(st):
    """Somebody waits more than before."""
    st["waiting_peak"] = max(st["waiting_peak"], st["num_active"] - st["num_started"])


@helper
def arrive(st, s):
    """Everybody who has arrived by now joins `active`, by (arrival, index)."""
    while True:
        own_us = next_own_us(st, s)
        sent_us = NO_LIMIT
        if st["next_sent"] < st["num_sent"]:
            sent_us = s.log.arrival_us[s.lists.sent[st["next_sent"]]]
        if min(own_us, sent_us) > st["now_us"]:
            return
        if own_us <= sent_us:  # those that arrive by themselves have the smaller indices
            i = s.wl.order[st["next_own"]]
            st["next_own"] += 1
        else:
            i = s.lists.sent[st["next_sent"]]
            st["next_sent"] += 1
        s.req.status[i] = WAITING
        s.req.waiting_since_us[i] = s.log.arrival_us[i]
        s.lists.active[st["num_active"]] = i
        st["num_active"] += 1
        if st["blocked"] == 0:  # it may enter at once
            st["plain"] = 0
        note_waiting(st)
