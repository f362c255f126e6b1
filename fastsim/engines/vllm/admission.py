"""The waiting loop: who is admitted in this step."""

from fastsim._jit import helper
from fastsim.engines.outputs import NEVER, Status
from fastsim.engines.vllm.blocks import cache_blocks, find_hits, take_blocks, take_hits
from fastsim.engines.vllm.codes import Admission
from fastsim.engines.vllm.lanes import lane_insert, running_append
from fastsim.engines.vllm.preemption import count_scheduled
from fastsim.engines.vllm.scan import ScanEnd
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.waiting import dequeue, queue_front

RUNNING = int(Status.RUNNING)
ADMITTED = 0
SKIPPED = int(ScanEnd.SKIPPED)
EMPTY = int(ScanEnd.EMPTY)
CAP = int(ScanEnd.CAP)
BUDGET = int(ScanEnd.BUDGET)
BLOCKS = int(ScanEnd.BLOCKS)
CHUNKING = int(ScanEnd.CHUNKING)
DEFERRED = int(ScanEnd.DEFERRED)


@helper
def waiting_loop(cfg, st, tot, wl, req, q, blk, log, rec):
    """vLLM's waiting loop: admit from the head of the queue until something stops it. Skipped after a preemption."""
    if st["preempted"] > 0:
        st["scan_end"] = SKIPPED
        return
    cap = min(cfg["max_num_active_seqs"], st["cap"])
    while True:
        if st["token_budget"] <= 0 or st["batch_budget"] <= 0:
            st["scan_end"] = BUDGET
            return
        if st["running"] >= cap:
            st["scan_end"] = CAP
            return
        head = queue_front(st, q)
        if head == NONE:
            st["scan_end"] = EMPTY
            return
        refusal = try_admit(cfg, st, tot, wl, req, q, blk, log, head)
        if refusal != ADMITTED:
            st["scan_end"] = refusal
            return


@helper
def try_admit(cfg, st, tot, wl, req, q, blk, log, i):
    """Admit waiting request `i` if it passes every test; else say which one it failed (ScanEnd)."""
    hits = 0
    evictable = 0
    if cfg["enable_prefix_caching"]:
        hits, evictable = find_hits(cfg, st, wl, req, blk, i)
    computed = hits * cfg["block_size"]
    if st["defer"] and computed < req.num_tokens[i] - 1:
        return DEFERRED
    tokens = req.num_tokens[i] - computed
    if 0 < st["threshold"] < tokens:
        tokens = st["threshold"]
    budget = min(st["token_budget"], st["batch_budget"])
    if not cfg["enable_chunked_prefill"] and tokens > budget:
        return CHUNKING
    tokens = min(tokens, budget)
    if not allocate_slots(cfg, st, wl, req, blk, i, tokens, hits, evictable):
        return BLOCKS
    admit(cfg, st, tot, wl, req, q, blk, log, i, computed, tokens)
    return ADMITTED


@helper
def allocate_slots(cfg, st, wl, req, blk, i, tokens, hits, evictable):
    """vLLM's allocate_slots for a waiting request: the full-sequence gate, the watermark, then the blocks."""
    block_size = cfg["block_size"]
    watermark = int(cfg["watermark"] * cfg["num_gpu_blocks"]) if st["running"] > 0 else 0
    limit = cfg["max_model_len"]
    if cfg["scheduler_reserve_full_isl"]:
        whole = (min(req.num_tokens[i], limit) + block_size - 1) // block_size
        if max(whole - hits, 0) + evictable + watermark > st["free"]:
            return False
    computed = hits * block_size
    needed = max((min(computed + tokens, limit) + block_size - 1) // block_size - hits, 0)
    if needed + evictable + watermark > st["free"]:
        return False
    if cfg["enable_prefix_caching"]:
        if req.shared_blocks[i] > 0:
            st["rows_free"] -= 1
            req.holding_row[i] = blk.free_rows[st["rows_free"]]
        req.life[i] += 1
        take_hits(cfg, st, wl, req, blk, i, hits)
        req.num_cached_blocks[i] = hits
    take_blocks(cfg, st, req, blk, needed)
    req.num_blocks[i] = hits + needed
    if cfg["enable_prefix_caching"]:
        cache_blocks(cfg, st, wl, req, blk, i, min(computed + tokens, req.num_tokens[i]) // block_size)
    return True


@helper
def admit(cfg, st, tot, wl, req, q, blk, log, i, computed, tokens):
    """Move waiting request `i` to the end of the running list and onto this step's list."""
    dequeue(st, wl, req, q, log, i)
    running_append(st, req, i)
    lane_insert(req, q, cfg["block_size"], i)
    st["protected"] += req.protected[i]
    st["admitted"] += 1
    if computed < req.num_tokens[i] - 1:
        st["prefill_ran"] = 1
    req.num_computed_tokens[i] = computed
    req.scheduled[i] = tokens
    q.scheduled[st["scheduled"]] = i
    st["scheduled"] += 1
    st["token_budget"] -= tokens
    st["batch_budget"] -= tokens
    count_scheduled(st, wl, req, i, tokens, 1)
    log.status[i] = RUNNING
    log.prefix_hit_tokens[i] += computed
    log.admission_wait_us[i] = max(log.admission_wait_us[i], st["now_us"] - req.waiting_since_us[i])
    if log.first_scheduled_us[i] == NEVER:
        log.first_scheduled_us[i] = st["now_us"]
        log.prefix_hit_tokens_first[i] = computed
    else:
        tot["salvaged_tokens"] += computed
