"""Why a request can never be served: the key that is to blame, for every engine, as the kernel finds it."""

import random
import re
from typing import Any

import numpy as np
import pytest

from fastsim.analysis.check.unservable import cause_of, causes, causes_text
from fastsim.config import KEYS, Config
from fastsim.config.engine import ENGINE_NAMES
from fastsim.config.spec import spec_from_mapping
from fastsim.engines.outputs import Status
from fastsim.metrics import COLUMNS
from fastsim.simulation import simulate
from fastsim.workload import Workload
from tests.processes import run

KEY = re.compile(r"\b(?:engine|latency|workload|run|metrics|slo)\.[a-z][a-z0-9_.]*[a-z0-9]")


def config_of(**engine: Any) -> Config:
    return spec_from_mapping({"engine": {"num_gpu_blocks": 11, "block_size": 10} | engine}).base


def requests(*lengths: tuple[int, int]) -> Workload:
    prompt, output = zip(*lengths, strict=True)
    return Workload.from_arrays(np.arange(len(lengths)), prompt, output)


CASES = {
    "vllm": (
        config_of(max_model_len=90),
        requests((90, 1), (200, 9), (89, 500), (10, 5)),
        "2 with too long a prompt: it leaves no room for an output in engine.max_model_len = 90 tokens (90 to 200)",
    ),
    "vllm, blocks": (
        config_of(),
        requests((101, 1), (90, 11), (90, 12), (50, 97)),
        "3 with too few KV blocks at its end: 10 are usable, and it takes 11 to 15",
    ),
    "vllm, both": (
        config_of(max_model_len=150),
        requests((150, 1), (120, 1), (1, 1)),
        "1 with too long a prompt: it leaves no room for an output in engine.max_model_len = 150 tokens (150); "
        "1 with too few KV blocks at its end: 10 are usable, and it takes 12",
    ),
    "blis": (
        config_of(name="blis", blis={"max_model_len": 100}),
        requests((100, 1), (50, 51), (50, 50), (120, 1)),
        "3 with too long a prompt and output in engine.blis.max_model_len = 100 tokens (101 to 121)",
    ),
    "blis, blocks": (
        config_of(name="blis"),
        requests((110, 500), (111, 1), (5, 5)),
        "1 with too few KV blocks for its prompt: 11 are usable, and it takes 12",
    ),
    "vllm-rlt": (
        config_of(name="vllm-rlt", rlt={"max_loops": 2}),
        requests((10, 41), (10, 42), (5, 5)),
        "1 with too few KV blocks for its prompt and declared output: 11 are usable, and it takes 12",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_the_real_one(name: str) -> None:
    config, workload, expected = CASES[name]
    found = causes(config, workload)
    assert causes_text(found) == expected
    refused = simulate(config, workload).requests.status == Status.UNSERVABLE
    assert sum(cause.count for cause in found) == int(refused.sum())
    for request in range(workload.num_requests):
        assert (cause_of(config, workload, request) is not None) == bool(refused[request])


def test_causes_are_the_kernels_own() -> None:
    """Random lengths around every border: who has a cause is who the kernel refuses."""
    for seed in range(60):
        rng = random.Random(seed)
        name = ENGINE_NAMES[seed % len(ENGINE_NAMES)]
        own: dict[str, Any] = {"max_model_len": rng.randint(20, 200)} if name[:6] in ("vllm-0", "sglang") else {}
        if name == "blis":
            own = {"blis": {"max_model_len": rng.choice((0, 60, 100))}}
        if name == "vllm-rlt":
            own = {"rlt": {"max_loops": rng.randint(1, 3), "layout": rng.choice(("shared", "last_exited"))}}
        config = config_of(name=name, **own)
        workload = requests(*((rng.randint(1, 150), rng.randint(1, 60)) for _ in range(12)))
        refused = simulate(config, workload).requests.status == Status.UNSERVABLE
        mine = [cause_of(config, workload, request) is not None for request in range(12)]
        assert mine == refused.tolist(), (seed, name)


def test_run_and_check_say_the_cause(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["engine.num_gpu_blocks=500", "engine.max_model_len=250", "workload.output.mean=5", "run.max_steps=500"]
    options = [part for text in sets[:2] for part in ("--set", text)]
    _, printed, _ = run(capsys, "run", *options)
    said = " ".join(printed.split())
    assert re.search(
        r"unservable: \d+ of 300 requests can never be served: \d+ with too long a prompt: it leaves", said
    )
    assert "engine.max_model_len = 250 tokens" in said
    assert "KV blocks at its end" not in said
    few = ["--set", "engine.num_gpu_blocks=100"]
    _, printed, _ = run(capsys, "run", *few)
    assert "with too few KV blocks at its end: 99 are usable, and it takes" in " ".join(printed.split())


def test_columns_and_policies_name_keys_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    named = {key: column.name for column in COLUMNS for key in KEY.findall(column.description)}
    assert named
    known = {*KEYS, "workload.classes"}
    assert {key: column for key, column in named.items() if key not in known} == {}
    for verb in ("columns", "policies"):
        _, printed, _ = run(capsys, verb)
        said = {key for key in KEY.findall(printed) if not any(name.startswith(key) for name in known)}
        assert said == set()
