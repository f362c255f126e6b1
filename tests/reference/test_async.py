"""Policies on the asynchronous engine: the recorded worked example, with one knob turned."""

from typing import Any

from tests.reference.golden import FOLDER, from_golden, load_case
from tests.reference.vllm import Outcome, simulate

# In the recording request 2 is preempted by the call at 3,550 while its prefill of 4 tokens is in flight; the token
# that this prefill samples reaches it at 4,790, and the call at that time schedules it again.


def worked_example(**config: Any) -> Outcome:
    recorded, requests = from_golden(load_case(FOLDER / "vllm-0.33.0-async" / "t00_worked_example.json.gz"))
    return simulate(recorded | config, requests)


def scheduled_at(outcome: Outcome, t_us: int) -> list[int]:
    return next(row[1] for row in outcome.steps or [] if row[0] == t_us)


def test_recompute_keeps_the_token_in_flight() -> None:
    assert scheduled_at(worked_example(), 4790) == [2, 5]


def test_restart_discards_the_token_in_flight() -> None:
    outcome = worked_example(preemption_mode="restart")
    assert scheduled_at(outcome, 4790) == [2, 4]
    assert outcome.totals["discarded_tokens"] == 1
    assert outcome.requests[2].first_life_token_us == outcome.requests[2].first_token_us > 4790
    assert outcome.requests[2].num_generated == 2


def test_swap_keeps_tokens_in_flight_too() -> None:
    outcome = worked_example(preemption_mode="swap", swap_space_blocks=1, swap_us_per_block=7.0)
    assert scheduled_at(outcome, 4790) == [2, 1]
    assert outcome.requests[2].first_token_us == 4790
    rows = {row[0]: row for row in outcome.steps or []}
    assert rows[3550][9] - rows[3550][8] == 1000 + 100 + 7  # one decode, one block out
    assert rows[4790][9] - rows[4790][8] == 1000 + 100 + 7  # one decode, one block in


def test_an_aborted_request_counts_as_finished() -> None:
    """The engine is called once more after an abort, and output in flight for it is dropped."""
    outcome = worked_example(timeout_s=0.003)
    # Requests 0 and 1 are aborted by the call at 3,550, when they have three tokens, and one more is in flight.
    assert [r.status for r in outcome.requests[:2]] == ["timed_out", "timed_out"]
    assert [r.num_generated for r in outcome.requests[:2]] == [3, 3]
    assert outcome.requests[0].finish_us == 3000
