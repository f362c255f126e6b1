"""Each policy of the oracle on a case small enough to work out by hand.

A step takes 1,000 us whatever it holds, unless a test says otherwise; blocks hold one token, so C is what a request
holds; requests are (arrival, prompt, output, priority).
"""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.reference.policies import Backpressure, RunningCap, VictimChooser, complete, splitmix64
from tests.reference.requests import RequestState
from tests.reference.vllm import Outcome, Request, simulate

STEP = {
    "b0_us": 1000.0,
    "b1_us_per_prefill_token": 0.0,
    "b2_us_per_decode_token": 0.0,
    "block_size": 1,
    "enable_prefix_caching": False,
}


def run(requests: Sequence[tuple[int, ...] | Request], usable: int, **config: Any) -> Outcome:
    specs = [r if isinstance(r, Request) else Request(*r) for r in requests]
    return simulate(STEP | {"num_gpu_blocks": usable + 1} | config, specs)


def scheduled(outcome: Outcome, step: int) -> list[int]:
    assert outcome.steps is not None
    return list(outcome.steps[step][1])


def preempted(outcome: Outcome, step: int) -> list[int]:
    assert outcome.steps is not None
    return list(outcome.steps[step][2])


# --- Who is preempted ----------------------------------------------------------------------------------------------

# Before step 3: C = 4, 9, 6 and G = 3, 2, 1; one block is free. Request 0 gets it, request 1 finds none.
SHORTAGE = [(0, 2, 9, 9), (1000, 8, 9, 5), (2000, 6, 9, 5)]


@pytest.mark.parametrize(
    ("victim", "expected"),
    [
        ("tail", 2),
        ("priority", 0),
        ("least_computed", 0),
        ("most_computed", 1),
        ("least_generated", 2),
        ("most_blocks", 1),
        ("random", splitmix64(0) % 3),
    ],
)
def test_victim(victim: str, expected: int) -> None:
    outcome = run(SHORTAGE, usable=20, victim=victim, max_steps=4)
    assert preempted(outcome, 3)[0] == expected
    others = [i for i in (0, 1, 2) if i != expected]
    assert scheduled(outcome, 3) == [x for i in others for x in (i, 1)]


@pytest.mark.parametrize(("victim", "expected"), [("priority", 0), ("least_computed", 2), ("least_generated", 2)])
def test_ties_between_victims(victim: str, expected: int) -> None:
    """vLLM's priority victim is the first of equals, every other the last."""
    outcome = run([(0, 3, 6)] * 3, usable=9, victim=victim, max_steps=2)
    assert preempted(outcome, 1)[0] == expected


def test_tail_victim_ends_the_running_loop_and_others_do_not() -> None:
    requests = [(0, 1, 3), (0, 7, 3), (0, 1, 3)]
    # Step 1: request 0 takes the free block; request 1 is its own victim under most_computed; request 2 goes on.
    outcome = run(requests, usable=10, victim="most_computed", max_steps=2)
    assert (preempted(outcome, 1), scheduled(outcome, 1)) == ([1], [0, 1, 2, 1])
    old = run(requests, usable=10, victim="most_computed", max_steps=2, engine="vllm-0.16.0")
    assert (preempted(old, 1), scheduled(old, 1)) == ([1], [0, 1])


def test_boost_moves_to_the_head_of_the_queue() -> None:
    # Request 1 is preempted at 1,000. At 2,000 one block is free: sjf alone gives it to the short request 2, but
    # request 1 is protected and stands before it; both enter when request 0 has finished.
    requests = [(0, 3, 3), (0, 3, 4), (500, 1, 1)]
    plain = run(requests, usable=6, queue_order="sjf")
    boosted = run(requests, usable=6, queue_order="sjf", boost_after=1)
    assert preempted(plain, 1) == preempted(boosted, 1) == [1]
    assert scheduled(plain, 2) == [0, 1, 2, 1]
    assert (scheduled(boosted, 2), scheduled(boosted, 3)) == ([0, 1], [1, 4, 2, 1])


def test_boost_protects_from_preemption() -> None:
    config = complete({"num_gpu_blocks": 10, "boost_after": 2, "victim": "random"})
    running = [RequestState(i, Request(arrival, 3, 3)) for i, arrival in enumerate((5, 9, 9, 1))]
    for request, preemptions in zip(running, (1, 2, 3, 2), strict=True):
        request.num_preemptions = preemptions
    choose = VictimChooser(config)
    assert choose(running) is running[0]  # the only one that is not protected
    running[0].num_preemptions = 2
    assert choose(running) is running[2]  # all are: latest arrival, then index
    assert choose.random_decisions == 1


# --- What a preemption costs ---------------------------------------------------------------------------------------


def test_recompute_restart_and_swap() -> None:
    # Request 1 is preempted in step 1 with C = 3, G = 1 and comes back when request 0 has finished (step 2).
    requests = [(0, 3, 2), (0, 3, 3)]
    common: dict[str, Any] = {"usable": 6}
    recompute = run(requests, **common)
    assert scheduled(recompute, 2) == [1, 4]
    assert recompute.requests[1].finish_us == 4000
    assert recompute.totals["recomputed_tokens"] == 3
    assert recompute.requests[1].gaps_us == [2000, 1000]

    restart = run(requests, **common, preemption_mode="restart")
    assert scheduled(restart, 2) == [1, 3]
    assert restart.requests[1].finish_us == 5000
    assert restart.totals["discarded_tokens"] == 1
    assert (restart.requests[1].first_life_token_us, restart.requests[1].first_token_us) == (1000, 3000)
    assert restart.requests[1].gaps_us == [1000, 1000]

    swap = run(requests, **common, preemption_mode="swap", swap_space_blocks=3, swap_us_per_block=10.0)
    assert scheduled(swap, 2) == [1, 1]  # three blocks come back, and a decode goes on
    assert [row[0] for row in swap.steps or []] == [0, 1000, 2030, 3060]
    assert swap.totals["swapped_out_blocks"] == swap.totals["swapped_in_blocks"] == 3
    assert swap.totals["recomputed_tokens"] == 0
    assert swap.totals["decode_tokens"] == 3

    small = run(requests, **common, preemption_mode="swap", swap_space_blocks=2, swap_us_per_block=10.0)
    assert small.totals["swap_fallbacks"] == 1
    assert small.steps == recompute.steps


# --- Who is admitted -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "running"),
    [
        ({}, 3),
        ({"projection": "oracle"}, 2),  # 3 + 5 each: 24 of 20
        ({"projection": "oracle", "overcommit": 1.2}, 3),
        ({"projection": "max_tokens"}, 1),  # 3 + 12 each
        ({"projection": "mean"}, 2),
    ],
)
def test_projected_admission(config: dict[str, Any], running: int) -> None:
    requests: list[Any] = [Request(0, 3, 5, max_tokens=12)] * 3
    outcome = run(requests, usable=20, admission="projected" if config else "greedy", max_steps=1, **config)
    assert len(scheduled(outcome, 0)) == 2 * running


# Request 0 runs for long, request 1 does not fit beside it, and one small request arrives in every step.
BYPASS: list[Any] = [(0, 10, 12), (0, 16, 1), *((1000 * i, 1, 1) for i in range(1, 6))]


@pytest.mark.parametrize(("limit", "passed"), [(1, 1), (2, 2), (4, 4), (8, 5)])
def test_bypass_is_bounded(limit: int, passed: int) -> None:
    outcome = run(BYPASS, usable=25, bypass=True, max_admission_bypasses=limit, max_steps=7)
    assert sum(r.status == "finished" for r in outcome.requests) == passed
    assert outcome.requests[1].first_scheduled_us == -1


def test_without_bypass_the_head_blocks() -> None:
    outcome = run(BYPASS, usable=25, max_steps=7)
    assert not any(r.status == "finished" for r in outcome.requests)


def test_scan_limit() -> None:
    """Only as many waiting requests are looked at: with 1 nobody passes the head."""
    outcome = run(BYPASS, usable=25, bypass=True, admission_scan_limit=1, max_steps=7)
    assert not any(r.status == "finished" for r in outcome.requests)


@pytest.mark.parametrize(("order", "expected"), [("fcfs", [1, 2, 3]), ("priority", [3, 1, 2]), ("sjf", [2, 3, 1])])
def test_queue_order(order: str, expected: list[int]) -> None:
    requests: list[Any] = [(0, 1, 3), (1, 9, 1, 5), (2, 1, 1, 7), (3, 2, 1, 1)]
    outcome = run(requests, usable=20, max_num_seqs=1, queue_order=order)
    assert sorted((1, 2, 3), key=lambda i: outcome.requests[i].first_scheduled_us) == expected


@pytest.mark.parametrize(("per_s", "expected"), [(1.0, [2, 1]), (1000.0, [2, 1]), (2000.0, [1, 2])])
def test_aging(per_s: float, expected: list[int]) -> None:
    """Two levels of priority weigh as much as 1 ms of arrival at 2,000 per second: then the index decides."""
    requests: list[Any] = [(0, 1, 3), (0, 1, 1, 2), (1000, 1, 1, 0)]
    outcome = run(requests, usable=20, max_num_seqs=1, queue_order="aging", aging_per_s=per_s)
    assert sorted((1, 2), key=lambda i: outcome.requests[i].first_scheduled_us) == expected


def test_slot_preemption() -> None:
    requests: list[Any] = [(0, 2, 9, 1), (0, 2, 9, 5), (0, 2, 9, 5), (1500, 2, 2, 0)]
    common: dict[str, Any] = {"usable": 50, "max_num_seqs": 3, "policy": "priority", "max_steps": 3}
    plain = run(requests, **common)
    assert plain.totals["preemptions"] == 0
    slot = run(requests, **common, slot_preempt=True)
    assert preempted(slot, 2) == [1]  # the first of the least urgent
    assert scheduled(slot, 2) == [0, 1, 2, 1, 3, 2]
    equal = run([*requests[:3], (1500, 2, 2, 5)], **common, slot_preempt=True)
    assert equal.totals["preemptions"] == 0
    boosted = run(requests, **common, slot_preempt=True, boost_after=1)
    assert preempted(boosted, 2) == [1]


def test_slot_preemption_in_vain() -> None:
    """The urgent one needs more blocks than one victim gives back."""
    requests: list[Any] = [(0, 5, 9, 1), (0, 3, 9, 5), (1500, 9, 2, 0)]
    common: dict[str, Any] = {"usable": 14, "max_num_seqs": 2, "policy": "priority", "max_steps": 3}
    tested = run(requests, **common, slot_preempt=True)
    assert (tested.totals["preemptions"], tested.totals["ineffective_preemptions"]) == (0, 0)
    blind = run(requests, **common, slot_preempt=True, slot_preempt_preflight=False)
    assert (preempted(blind, 2), scheduled(blind, 2)) == ([1], [0, 1])
    assert blind.totals["ineffective_preemptions"] == 1


# --- How many run, and what is refused -----------------------------------------------------------------------------


def cap(**config: Any) -> RunningCap:
    defaults = {"num_gpu_blocks": 101, "max_num_seqs": 10, "running_cap": "feedback", "feedback_window": 4}
    return RunningCap(complete(defaults | config), [Request(0, 100, 60), Request(0, 41, 40)])


def test_auto_cap() -> None:
    """Mean 120.5 tokens are 8 blocks of 16: twelve fit into 100."""
    assert cap(running_cap="auto", max_num_seqs=256).cap == 12
    assert cap(running_cap="auto").cap == 10
    assert cap(running_cap="auto", num_gpu_blocks=4).cap == 1


def test_feedback_threshold_and_recovery() -> None:
    c = cap(feedback_threshold=0.25, feedback_recovery=3)
    for preemptions in (1, 1, 0):
        c.after_step(preemptions, 8)
    assert c.cap == 10  # the window is not full
    c.after_step(0, 8)
    assert (c.cap, c.cap_min) == (7, 7)  # 2 of 4 steps
    for preemptions in (0, 0, 0, 1, 0, 0, 0):
        c.after_step(preemptions, 7)
    assert c.cap == 9  # three calm steps twice; 1 of 4 is not above the threshold
    for _ in range(30):
        c.after_step(0, 7)
    assert c.cap == 10
    assert c.cap_steps == 4 * 10 + 3 * 7 + 4 * 8 + 3 * 9 + 27 * 10


def test_feedback_proportional_and_consecutive() -> None:
    c = cap(feedback_rule="proportional", feedback_threshold=0.25)
    for _ in range(4):
        c.after_step(1, 7)
    assert c.cap == 1  # floor(7 x 0), at least 1
    for preemptions in (1, 1, 0, 0):
        c.after_step(preemptions, 7)
    assert c.cap == 3
    c = cap(feedback_rule="consecutive")
    for _ in range(12):
        c.after_step(2, 7)
    assert c.cap == 10
    c.after_step(2, 7)  # the window was full in steps 4 to 13
    assert c.cap == 6


def test_backpressure_window() -> None:
    config = complete({"num_gpu_blocks": 10, "backpressure_threshold": 0.25, "backpressure_window": 4})
    pressure = Backpressure(config)
    pressure.after_step(1)
    assert not pressure.exceeded()
    pressure.after_step(1)
    assert pressure.exceeded()  # 2 of 4, two of which are still to come
    for _ in range(3):
        pressure.after_step(0)
    assert not pressure.exceeded()


# With 7 blocks request 1 is preempted at 1,000: the two that arrive in that step find the threshold exceeded at 2,000.
PRESSURE: list[Any] = [(0, 3, 4), (0, 3, 4), (1500, 1, 1), (1600, 1, 1)]


def test_backpressure_rejects() -> None:
    outcome = run(PRESSURE, usable=8, backpressure_threshold=0.02, backpressure_window=4)
    assert [r.status for r in outcome.requests] == ["finished"] * 4  # with one block more the shortage comes later
    outcome = run(PRESSURE, usable=7, backpressure_threshold=0.02, backpressure_window=50)
    assert [r.status for r in outcome.requests] == ["finished"] * 4  # 1 of 50 does not exceed it
    outcome = run(PRESSURE, usable=7, backpressure_threshold=0.02, backpressure_window=4)
    assert [r.status for r in outcome.requests] == ["finished", "finished", "rejected", "rejected"]
    assert outcome.totals["rejected"] == 2


def test_backpressure_paces() -> None:
    """One is let in for each completion, in order: request 0 completes at 4,000, request 2 at 5,000."""
    outcome = run(PRESSURE, usable=7, backpressure_threshold=0.02, backpressure_window=4, backpressure_action="pace")
    assert outcome.totals["held"] == 2
    assert [r.first_scheduled_us for r in outcome.requests] == [0, 0, 4000, 5000]
    assert all(r.status == "finished" for r in outcome.requests)


def test_queue_limits() -> None:
    requests: list[Any] = [(0, 4, 9), *((10, 4, 1) for _ in range(4))]
    by_count = run(requests, usable=50, max_num_seqs=1, max_num_queued_reqs=2)
    assert [r.status for r in by_count.requests] == ["finished"] * 3 + ["rejected"] * 2
    by_tokens = run(requests, usable=50, max_num_seqs=1, max_num_queued_tokens=9)
    assert [r.status for r in by_tokens.requests] == ["finished"] * 4 + ["rejected"]


def test_client_timeout() -> None:
    # The deadline of both is 2,500. Request 0 runs from 500 to 1,500, then request 1 until its client goes.
    outcome = run([(500, 1, 1), (500, 1, 9), (2600, 1, 1)], usable=20, max_num_seqs=1, timeout_s=0.002)
    assert [r.status for r in outcome.requests] == ["finished", "timed_out", "finished"]
    assert outcome.requests[1].finish_us == 2500
    assert outcome.requests[1].num_generated == 1
    assert outcome.requests[2].first_scheduled_us == 2600


def test_closed_loop() -> None:
    requests = [Request(0, 1, 2), Request(0, 1, 1), Request(0, 1, 1, think_us=700), Request(0, 1, 1, think_us=0)]
    outcome = run([*requests], usable=20, concurrency=2)
    # Request 1 finishes at 1,000, request 0 at 2,000; request 2 at 2,000 + a step.
    assert [r.arrival_us for r in outcome.requests] == [0, 0, 1700, 2000]


def test_a_refused_client_comes_back_later() -> None:
    requests = [Request(0, 1, 9), Request(0, 1, 1), Request(0, 1, 1), Request(0, 1, 1, think_us=5)]
    outcome = run([*requests], usable=20, concurrency=3, max_num_seqs=1, max_num_queued_reqs=1, retry_after_s=0.002)
    # At t = 0 all three find nobody running yet: one may wait, and two are refused.
    assert [r.status for r in outcome.requests][1:3] == ["rejected", "rejected"]
    assert outcome.requests[3].arrival_us == 2005


# --- What can never run, and runs that would never end ------------------------------------------------------------


def test_unservable() -> None:
    requests: list[Any] = [(0, 5, 5), (0, 6, 5), (0, 1, 1)]
    outcome = run(requests, usable=9)
    assert [r.status for r in outcome.requests] == ["finished", "unservable", "finished"]
    assert outcome.totals["unservable"] == 1
    assert run(requests, usable=9, max_model_len=8).totals["unservable"] == 0  # truncated at 8 tokens
    assert run(requests, usable=9, max_model_len=6).totals["unservable"] == 1  # prompt of 6


@pytest.mark.parametrize("mode", ["reject", "spin"])
def test_a_prompt_without_room_for_an_output_is_refused_before_the_first_step(mode: str) -> None:
    requests: list[Any] = [(0, 7, 5), (0, 6, 5), (0, 5, 5), (0, 1, 1)]
    outcome = run(requests, usable=9, max_model_len=6, unservable=mode)
    assert [r.status for r in outcome.requests] == ["unservable", "unservable", "finished", "finished"]
    assert [r.scheduled_tokens for r in outcome.requests] == [0, 0, 5, 1]
    assert (outcome.totals["unservable"], outcome.totals["stop"]) == (2, "drained")


def test_livelock_of_a_repeated_state() -> None:
    outcome = run([(0, 12, 5)], usable=9, unservable="spin")
    assert (outcome.totals["stop"], outcome.totals["livelock_kind"]) == ("livelock", 1)
    assert (outcome.totals["livelock_step"], outcome.totals["livelock_us"]) == (1, 2000)
    pending = run([(0, 12, 5), (5000, 1, 1)], usable=9, unservable="spin")
    assert pending.totals["livelock_step"] > 4


def test_livelock_without_progress() -> None:
    """Admitted, grown to the last block, preempted by its own need, admitted again: a cycle of several steps."""
    outcome = run(
        [(0, 5, 9)],
        usable=9,
        unservable="spin",
        scheduler_reserve_full_isl=False,
        max_num_batched_tokens=4,
        livelock_steps=50,
        max_steps=500,
    )
    assert (outcome.totals["stop"], outcome.totals["livelock_kind"]) == ("livelock", 2)
    # Nine blocks hold five prompt tokens and four outputs; the fifth output is sampled in step 5, with the last block.
    assert outcome.requests[0].num_generated == 5
    assert outcome.totals["livelock_step"] == 5 + 50
