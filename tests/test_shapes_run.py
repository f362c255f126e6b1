"""Every shape of traffic in a spec, from `fastsim run` to the figure that shows it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastsim.cli import main

BASE = """
engine.num_gpu_blocks = 4000
workload.num_requests = 400
workload.prompt = { dist = "constant", mean = 200 }
workload.output = { dist = "constant", mean = 50 }
"""


@pytest.fixture
def row_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(text: str, *sets: str) -> dict[str, Any]:
        path = tmp_path / "spec.toml"
        path.write_text(BASE + text)
        with pytest.raises(SystemExit) as ended:
            main(["run", str(path), "--json", *(part for each in sets for part in ("--set", each))])
        assert ended.value.code == 0
        row: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert row["completed"] == 400
        return row

    return run


def test_a_day_that_swings_has_longer_queues_at_noon(row_of: Any) -> None:
    text = 'workload.arrival = { kind = "poisson", rate_per_s = 20 }\nengine.max_num_seqs = 8\n'
    flat = row_of(text)
    day = row_of(text, "workload.arrival.diurnal_amplitude=0.9", "workload.arrival.diurnal_period_s=20")
    assert day["ttft_p90_ms"] > 2 * flat["ttft_p90_ms"]
    assert day["waiting_peak"] > flat["waiting_peak"]


def test_a_surge_fills_the_queue_while_it_lasts(row_of: Any) -> None:
    text = 'workload.arrival = { kind = "poisson", rate_per_s = 10, surge_start_s = 5, surge_duration_s = 5'
    calm, surge = row_of(text + " }"), row_of(text + ", surge_factor = 12 }")
    assert surge["running_peak"] > 2 * calm["running_peak"]


def test_spikes_come_all_at_once_again_and_again(row_of: Any) -> None:
    row = row_of('workload.arrival = { kind = "spikes", spike_requests = 100, spike_interval_s = 30 }\n')
    assert row["running_peak"] + row["waiting_peak"] >= 100
    assert 90 < row["simulated_s"] < 100


def test_conversations_find_what_was_said_before(row_of: Any) -> None:
    text = "workload.arrival.rate_per_s = 5\nworkload.sessions = { turns = 5, gap_s = 20 }\n"
    found = row_of(text)
    assert found["prefix_hit_share"] > 0.5
    assert found["prompt_tokens"] == sum((200 + turn * 250) * 80 for turn in range(5))
    assert row_of(text, "engine.enable_prefix_caching=false")["prefix_hit_share"] == 0
    assert row_of(text, "workload.sessions.max_prompt_tokens=300")["prompt_tokens"] == 400 * 200


def test_clients_of_a_closed_loop_think(row_of: Any) -> None:
    text = "workload.concurrency = 16\n"
    busy = row_of(text)
    assert busy["running_peak"] <= 16
    think = row_of(text, "workload.think.dist=constant", "workload.think.mean_s=2")
    cycle_s = 2 + think["e2e_served_mean_ms"] / 1e3
    assert think["request_throughput_req_per_s"] == pytest.approx(16 / cycle_s, rel=0.05)
    assert busy["request_throughput_req_per_s"] > 3 * think["request_throughput_req_per_s"]


def test_classes_meet_in_one_queue(row_of: Any) -> None:
    text = """
workload.arrival.rate_per_s = 40
engine.policy = "priority"
engine.max_num_seqs = 8
[workload.classes.chat]
share = 1
[workload.classes.batch]
priority.values = [9]
"""
    assert row_of(text)["ttft_p99_ms"] > 4 * row_of(text, "engine.max_num_seqs=256")["ttft_p99_ms"]
