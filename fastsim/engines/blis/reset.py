"""The start of a run, in place, and its end."""

from fastsim._jit import helper
from fastsim.engines.blis.blocks import reset_blocks
from fastsim.engines.blis.clock import generated_tokens, leave_clock
from fastsim.engines.blis.codes import DRAINED, NONE, PENDING
from fastsim.engines.blis.gaps import finish_gaps, reset_gaps
from fastsim.engines.blis.preemption import end_life
from fastsim.engines.blis.tier import reset_tier
from fastsim.engines.blis.update import close_step
from fastsim.engines.heap import heap_reset
from fastsim.engines.outputs import NEVER


@helper
def reset_run(cfg, st, s, itl):
    """Forget the run before this one."""
    for i in range(s.wl.arrival_us.shape[0]):
        s.req.progress[i] = 0
        s.req.lane[i] = NONE
        s.req.highest_tokens[i] = 0
        s.req.ranges[i] = NONE
        s.blis.ttft_us[i] = 0
        s.blis.e2e_us[i] = 0
        s.blis.scheduling_delay_us[i] = NEVER
        s.blis.itl_sum_us[i] = 0
        s.blis.itl_count[i] = 0
        reset_log(s.log, s.wl, i)
    s.lists.lane_size[:] = 0
    itl.histogram[:] = 0
    heap_reset(s.queueing)
    heap_reset(s.waiting)
    heap_reset(s.deadlines)
    reset_blocks(cfg, st, s)
    reset_gaps(st, s.gaps)
    if cfg["kv_cpu_blocks"] > 0:
        reset_tier(st, s)


@helper
def reset_log(log, wl, i):
    """Nothing has happened to request `i`."""
    log.arrival_us[i] = wl.arrival_us[i]
    log.first_scheduled_us[i] = NEVER
    log.first_token_us[i] = NEVER
    log.first_life_token_us[i] = NEVER
    log.last_token_us[i] = NEVER
    log.finish_us[i] = NEVER
    log.num_generated[i] = 0
    log.num_preemptions[i] = 0
    log.prefix_hit_tokens_first[i] = NEVER
    log.prefix_hit_tokens[i] = 0
    log.scheduled_tokens[i] = 0
    log.admission_wait_us[i] = 0
    log.admission_wait_end_us[i] = 0
    log.status[i] = PENDING


@helper
def finish_run(cfg, st, s, tot, itl, stop):
    """Close the books on requests that are still running, and on the run."""
    for at in range(st["running"] - 1, -1, -1):
        i = s.lists.running[at]
        s.log.num_generated[i] = generated_tokens(st, s, i)
        if s.req.lane[i] != NONE:
            leave_clock(st, s, i)
        end_life(s, tot, i)
    finish_gaps(st, s.gaps, tot, itl)
    close_step(st, tot, st["end_us"])
    tot["end_us"] = st["end_us"]
    tot["usable_blocks"] = cfg["total_kv_blocks"]
    tot["cap_min"] = cfg["max_num_seqs"]
    tot["cap_final"] = cfg["max_num_seqs"]
    tot["cap_steps"] = cfg["max_num_seqs"] * (tot["steps"] - tot["empty_steps"])
    if s.wl.order.shape[0] > 0:
        tot["first_arrival_us"] = s.wl.arrival_us[s.wl.order[0]]
    ended = tot["completed"] + tot["timed_out"] + tot["unservable"]
    tot["stop"] = DRAINED if ended == s.wl.order.shape[0] else stop
