"""Who arrives when: requests by themselves, and in a closed loop those that a client sends when it is free."""

from fastsim._jit import helper
from fastsim.engines.trtllm.codes import NO_LIMIT, UNSERVABLE, WAITING


@helper
def client_sends_next(st, s, at_us):
    """Closed loop: a client is free, and sends the next request at once."""
    if st["clients"] == 0:
        return
    if st["next_client"] == st["num_requests"]:
        return
    i = st["next_client"]
    st["next_client"] += 1
    s.log.arrival_us[i] = at_us
    sent = s.lists.sent
    at = st["num_sent"]
    while at > st["next_sent"] and s.log.arrival_us[sent[at - 1]] > at_us:
        sent[at] = sent[at - 1]
        at -= 1
    sent[at] = i
    st["num_sent"] += 1


@helper
def next_own_us(st, s):
    """When the next request arrives by itself; NO_LIMIT: none does."""
    if st["next_own"] == st["num_own"]:
        return NO_LIMIT
    return s.log.arrival_us[s.wl.order[st["next_own"]]]


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
def is_too_long(cfg, s, i):
    """Whether a prompt leaves no room for an output or, without chunks, does not fit in a step."""
    prompt = s.wl.prompt_tokens[i]
    return prompt >= cfg["longest"] or prompt > cfg["longest_input"]


@helper
def arrive(cfg, st, s, tot):
    """Everybody who has arrived by now joins `active`, by (arrival, index); who can never be served is refused."""
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
        if is_too_long(cfg, s, i):
            s.req.status[i] = UNSERVABLE
            tot["unservable"] += 1
            client_sends_next(st, s, s.log.arrival_us[i])
            continue
        s.req.status[i] = WAITING
        s.req.waiting_since_us[i] = s.log.arrival_us[i]
        s.lists.active[st["num_active"]] = i
        st["num_active"] += 1
        if st["blocked"] == 0:  # it may enter at once
            st["plain"] = 0
        note_waiting(st)
