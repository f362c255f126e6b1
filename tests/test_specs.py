"""Random valid specs of every engine, policy and workload: none crashes, hangs, or reads or writes outside an array.

`python -m tests.specs --count 20000` runs as many as one likes.
"""

import json
import os
from typing import Any

import pytest

from fastsim.config import KEYS, check_rules
from fastsim.config.spec import spec_from_mapping
from fastsim.engines.outputs import Status, Stop
from fastsim.errors import InputError
from fastsim.simulation import simulate
from tests.processes import run_elsewhere
from tests.specs import __main__ as specs
from tests.specs.draw import random_spec
from tests.specs.live import REFUSED, outcome

COUNT = int(os.environ.get("FASTSIM_CASES", "400"))
NOT_DRAWN = {"latency.preset", "workload.sample_share"}
"""A preset only stands for coefficients; a sample of a trace for another trace."""


@pytest.mark.timeout(900)
def test_no_spec_leaves_its_arrays() -> None:
    endings, troubles = specs.run(0, COUNT)
    assert troubles == []
    assert endings["ran"] > 0.9 * COUNT, endings


def test_specs_draw_every_key() -> None:
    """Whatever can be set is set, to something that is not its default."""
    drawn: dict[str, set[Any]] = {}
    for seed in range(1500):
        for key, value in random_spec(seed).items():
            drawn.setdefault(key, set()).add(json.dumps(value))
    missing = {name for name, key in KEYS.items() if not drawn.get(name, set()) - {json.dumps(key.default)}} - NOT_DRAWN
    assert {name for name in missing if not name.startswith("hardware.")} == set()  # these stand for values of others
    assert any(key.startswith("workload.classes.chat.sessions.") for key in drawn)


CRASHED: dict[str, dict[str, Any]] = {
    # Hashing followed prompts that were longer than the blocks counted for them
    "conversations beyond max_model_len": {
        "engine.num_gpu_blocks": 108,
        "engine.max_model_len": 4,
        "engine.unservable": "spin",
        "workload.sessions.turns": 3,
        "run.max_steps": 20_000,
    },
    "shared prefixes beyond max_model_len": {
        "engine.num_gpu_blocks": 108,
        "engine.max_model_len": 100,
        "engine.unservable": "spin",
        "workload.prefix.groups": 2,
        "workload.prefix.tokens": 50,
    },
}


@pytest.mark.parametrize("name", CRASHED)
@pytest.mark.parametrize("mode", ["spin", "reject"])
def test_specs_that_once_crashed(name: str, mode: str) -> None:
    result = simulate(spec_from_mapping(CRASHED[name] | {"engine.unservable": mode}).base)
    limit = result.config.engine.max_model_len
    assert (result.workload.prompt_tokens >= limit).all()
    assert (result.requests.status == Status.UNSERVABLE).all()
    assert (result.totals["steps"], result.totals["stop"]) == (0, Stop.DRAINED)
    assert result.metrics["unservable"] == 300


def test_a_clock_that_passes_what_32_bits_hold() -> None:
    """Four requests of 900 million tokens, one after the other: the decode clock is set back on the way."""
    table = {
        "engine.num_gpu_blocks": 2_000_000,
        "engine.block_size": 4096,
        "engine.max_model_len": 2**31 - 1,
        "engine.max_num_seqs": 1,
        "workload": {
            "num_requests": 4,
            "arrival.kind": "all_at_once",
            "prompt": {"dist": "constant", "mean": 10},
            "output": {"dist": "constant", "mean": 900_000_000},
        },
        "latency": {"b0_us": 1.0, "b1_us_per_prefill_token": 0.0, "b2_us_per_decode_token": 0.0},
        "run.max_steps": 10**10,
    }
    for engine in ("vllm-0.33.0", "vllm-0.33.0-async", "blis"):
        mine = {key: value for key, value in table.items() if engine != "blis" or key != "engine.max_model_len"}
        extra = {"latency.alpha": [0.0, 0.0, 0.0]} if engine == "blis" else {}
        result = simulate(spec_from_mapping(mine | extra | {"engine.name": engine}).base)
        assert (result.metrics["completed"], result.requests.num_generated.tolist()) == (4, [900_000_000] * 4)
        assert result.totals["decode_tokens"] == 4 * 899_999_999
        assert result.totals["busy_us"] == 4 * 900_000_000


def test_a_clock_set_back_changes_nothing() -> None:
    """The clock set back every few steps, against the clock left alone."""
    program = (
        "import fastsim.engines.vllm.schedule as schedule; schedule.LATEST_CLOCK = {}; "
        "from tests.test_vllm_modes import TINY, digests; print(*digests(25, TINY))"
    )
    often, never = (run_elsewhere(program.format(latest), NUMBA_DISABLE_JIT="1") for latest in (3, 2**30))
    assert often.returncode == never.returncode == 0, often.stderr
    assert often.stdout == never.stdout


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"engine.block_size": 2**31 - 1}, "an integer from 1 to 1048576 was expected"),
        ({"workload.prefix.groups": 2**31 - 1, "workload.prefix.tokens": 9}, "an integer from 0 to 10000000"),
        (
            {"engine.block_size": 1, "workload.prefix": {"groups": 1, "tokens": 2**30}}
            | {"workload.prompt": {"dist": "constant", "mean": 2**30}, "engine.max_model_len": 2**31 - 1},
            "lower engine.max_num_seqs",
        ),
        (
            {"engine.name": "blis", "engine.block_size": 1, "workload.num_requests": 9}
            | {"workload.prompt": {"dist": "constant", "mean": 2**29}},
            "the blocks of all prompts take",
        ),
        (
            {"engine.name": "vllm-rlt", "engine.block_size": 1, "workload.num_requests": 9}
            | {"engine.rlt.prefix_caching": True, "workload.prompt": {"dist": "constant", "mean": 2**29}},
            "the pages of all prompts take",
        ),
        ({"engine.name": "blis", "workload.sessions.turns": 2}, "sessions.turns = 2, but 1 was expected"),
        (
            {"engine.name": "vllm-rlt", "workload.classes.chat.sessions.turns": 2},
            "workload.classes.chat.sessions.turns = 2, but 1 was expected",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(table: dict[str, Any], words: str) -> None:
    def attempt() -> None:
        config = spec_from_mapping({"engine.num_gpu_blocks": 100} | table).base
        check_rules(config)
        simulate(config)

    with pytest.raises(InputError) as error:
        attempt()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_any_number_of_blocks_runs() -> None:
    """Arrays follow what the requests can use, or are never touched; where there is no memory a sentence says so."""
    for engine in ("vllm-0.33.0", "blis", "vllm-rlt"):
        table = {"engine.name": engine, "engine.num_gpu_blocks": 2**31 - 1, "workload.num_requests": 3}
        if engine == "vllm-rlt":
            table |= {"engine.rlt.prefix_caching": True}
        try:
            result = simulate(spec_from_mapping(table).base)
        except InputError as error:
            assert "for which there is no memory" in str(error)  # noqa: PT017
        else:
            assert result.metrics["completed"] == 3


def test_a_refused_spec_says_why() -> None:
    """Whatever is refused, is refused in one line; and few are."""
    refused = [found for seed in range(300) if (found := outcome(seed)).startswith(REFUSED)]
    assert len(refused) < 15
    assert all(" expected" in found and found.isprintable() for found in refused)


def test_a_process_that_dies_or_hangs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process goes on behind the seed that killed the last one."""
    child = """
import os, time
for seed in range({first}, {last}):
    print("start", seed, flush=True)
    if seed == 2:
        os.abort()
    if seed == 4:
        time.sleep(60)
    print("end", seed, "FAILED it" if seed == 5 else "a hash", flush=True)
"""
    monkeypatch.setattr(specs, "CHILD", child)
    monkeypatch.setattr(specs, "SECONDS", 2.0)
    endings, troubles = specs.run(0, 7)
    assert endings == {"ran": 4, "in trouble": 3}
    assert [trouble.split(":")[0] for trouble in troubles] == ["seed 2", "seed 4", "seed 5"]
    assert "the process died (-6)" in troubles[0]
    assert troubles[2] == "seed 5: FAILED it"
