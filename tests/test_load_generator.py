"""The load generator as part of the system: a rate and a cap on what is out, a ramp, and the client's own wait."""

import heapq
import json

import numpy as np
import pytest

from fastsim.cli import main
from fastsim.config import Config, check_rules, with_values
from fastsim.simulation import simulate
from fastsim.workload import build_workload

from .sentences import bad_input

SETTINGS = {
    "engine.num_gpu_blocks": 900,
    "engine.max_num_seqs": 16,
    "workload.num_requests": 150,
    "workload.arrival.kind": "poisson",
    "workload.arrival.rate_per_s": 20.0,
    "workload.output.dist": "uniform",
    "workload.output.min": 2,
    "workload.output.max": 120,
}


def config_of(**more: object) -> Config:
    """Poisson arrivals at a small server."""
    return with_values(Config(), SETTINGS | {key.replace("__", "."): value for key, value in more.items()})


@pytest.mark.parametrize("engine", ["vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async"])
@pytest.mark.parametrize("fast_forward", [True, False])
def test_requests_go_out_as_a_semaphore_lets_them(engine: str, fast_forward: bool) -> None:
    config = config_of(engine__name=engine, workload__concurrency=6)
    workload = build_workload(config.workload)
    log = simulate(config, workload, fast_forward=fast_forward).requests
    # First come, first served: a request takes the place that was freed first
    free: list[int] = [0] * 6
    for scheduled, sent, done in zip(workload.arrival_us, log.arrival_us, log.finish_us, strict=True):
        assert sent == max(scheduled, heapq.heappop(free))
        heapq.heappush(free, int(done))
    out = [int(np.count_nonzero((log.arrival_us <= at) & (at < log.finish_us))) for at in log.arrival_us.tolist()]
    assert max(out) == 6


def test_a_cap_that_nobody_reaches_changes_nothing_and_one_of_no_rate_is_a_closed_loop() -> None:
    open_loop, capped = (simulate(config_of(workload__concurrency=cap)).requests for cap in (None, 150))
    assert np.array_equal(open_loop.finish_us, capped.finish_us)
    crowd, closed = (
        simulate(config_of(workload__concurrency=4, workload__arrival__kind=kind)).requests
        for kind in ("all_at_once", "closed_loop")
    )
    assert np.array_equal(crowd.finish_us, closed.finish_us)


def test_the_rate_grows_over_the_ramp() -> None:
    config = config_of(workload__arrival__ramp_up_s=10.0, workload__num_requests=4000)
    arrival_s = build_workload(config.workload).arrival_us / 1e6
    plain_s = build_workload(config_of(workload__num_requests=4000).workload).arrival_us / 1e6
    moved = np.where(plain_s < 5, np.sqrt(20 * plain_s), plain_s + 5)  # the integral of t / 10, inverted
    assert arrival_s == pytest.approx(moved, abs=2e-5)
    clients = config_of(
        workload__arrival__kind="closed_loop", workload__concurrency=5, workload__arrival__ramp_up_s=10.0
    )
    workload = build_workload(clients.workload)
    assert workload.arrival_us[:6].tolist() == [0, 2_000_000, 4_000_000, 6_000_000, 8_000_000, 0]
    assert simulate(clients, workload).requests.arrival_us[:5].tolist() == workload.arrival_us[:5].tolist()


def test_the_clients_own_wait_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    sets = [text for key, value in SETTINGS.items() for text in ("--set", f"{key}={value}")]
    with pytest.raises(SystemExit):
        main(["run", *sets, "--rate", "20", "--concurrency", "6", "--json"])
    wait = json.loads(capsys.readouterr().out)["client_wait"]
    config = config_of(workload__concurrency=6)
    waits = simulate(config).requests.arrival_us - build_workload(config.workload).arrival_us
    assert wait["mean_ms"] == pytest.approx(waits.mean() / 1e3)
    assert wait["most_ms"] == pytest.approx(waits.max() / 1e3)
    assert (wait["never_sent"], wait["waited_share"]) == (0, pytest.approx(np.mean(waits > 0)))
    with pytest.raises(SystemExit):
        main(["run", *sets, "--rate", "20", "--concurrency", "6"])
    assert "the client had at most 6 requests out" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", *sets])
    assert "the client had" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"workload__arrival__kind": "all_at_once"}, ["ramp_up_s = 3.0", "no rate that could grow"]),
        ({"workload__arrival__surge_factor": 2.0}, ["ramp_up_s = 3.0", "surge_factor = 2.0"]),
    ],
)
def test_a_ramp_that_makes_no_sense_is_one_sentence(more: dict[str, object], named: list[str]) -> None:
    bad_input(lambda: check_rules(config_of(workload__arrival__ramp_up_s=3.0, **more)), *named)
