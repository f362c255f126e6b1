"""Against the scheduler of an installed vLLM: on recorded cases, and on random ones that nobody has recorded.

Most of this needs vLLM 0.33.0 or 0.16.0 in the same environment, but no GPU, and is skipped without. `FASTSIM_CASES`
sets how many random cases of each engine are run, `FASTSIM_SEED` the first of them.
"""

import os
import random
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from fastsim.cli.verify import read_case
from fastsim.engines.vllm import installed
from fastsim.engines.vllm.drive import decisions
from fastsim.engines.vllm.golden import REQUEST_COLUMNS
from fastsim.engines.vllm.installed import installed_engines
from fastsim.engines.vllm.runtime import RUNTIME
from fastsim.errors import InputError
from tests.processes import run
from tests.reference.cases import random_case

GOLDEN = Path(__file__).parent / "golden"
FIRST_SEED = int(os.environ.get("FASTSIM_SEED", "0"))
NUM_CASES = int(os.environ.get("FASTSIM_CASES", "60"))
ENGINES = [engine for engines in installed.ENGINES.values() for engine in engines]


def needs(engine: str) -> None:
    """Skip unless the installed vLLM can replay an engine's cases."""
    try:
        there = installed_engines()
    except InputError as error:
        pytest.skip(str(error))
    if engine not in there:
        pytest.skip(f"{engine}: the installed vLLM replays {', '.join(there)}")


def unrecorded(seed: int, engine: str) -> dict[str, Any]:
    """A random case with what vLLM itself has, in the form of a recorded one, without its decisions."""
    family = "async" if engine.endswith("-async") else "vllm"
    drawn, requests = random_case(random.Random(seed), family=family, engine=engine)
    steps = ("b0_us", "b1_us_per_prefill_token", "b2_us_per_decode_token")
    config = {f"beta{k}": drawn[name] for k, name in enumerate(steps)}
    config |= {key: drawn[key] for key in ("block_size", "num_gpu_blocks", "max_model_len", "enable_prefix_caching")}
    config |= {key: drawn[key] for key in ("horizon_us", "max_steps", *installed._SCHEDULER_KEYS)}
    if config["scheduler_reserve_full_isl"] is None:
        config["scheduler_reserve_full_isl"] = True
    if config["max_num_active_seqs"] is not None:  # vLLM refuses more than max_num_seqs
        config["max_num_active_seqs"] = min(config["max_num_active_seqs"], config["max_num_seqs"])
    if engine == "vllm-0.16.0":
        config |= installed._OFF
    rows = [
        [r.arrival_us, r.prompt_tokens, r.output_tokens, r.priority, r.prefix_group, r.prefix_tokens] for r in requests
    ]
    return {"name": f"seed {seed}", "engine": engine, "config": config, "requests": rows}


# --- With vLLM --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_vllm_takes_the_recorded_decisions(engine: str) -> None:
    """What is driven here is what was recorded: the driver is right, whatever our kernel does."""
    needs(engine)
    paths = sorted((GOLDEN / engine).glob("*.json.gz"), key=lambda path: path.stat().st_size)
    for path in paths[: len(paths) // 2]:
        case = read_case(path)
        live = decisions(case)
        scheduled: list[int] = []
        for row in case["steps"]:
            scheduled = row[1] = scheduled if row[1] == 0 else row[1]  # 0: the list of the step before
        for key in ("steps", "requests_out", "totals"):
            assert live[key] == case[key], (path.name, key)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_random_cases_are_decided_as_by_vllm(engine: str) -> None:
    needs(engine)
    for seed in range(FIRST_SEED, FIRST_SEED + NUM_CASES):
        assert RUNTIME.verify_live(unrecorded(seed, engine)) is None, f"{engine}, seed {seed}"


# --- Without ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fastsim(capsys):
    """Run the command line in this process: exit code, stdout, stderr."""
    return partial(run, capsys)


def no_vllm(_name: str) -> str:
    raise PackageNotFoundError("vllm")


def test_says_that_vllm_is_missing(fastsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", no_vllm)
    code, output, error = fastsim("verify", GOLDEN / "vllm-0.33.0", "--against", "vllm")
    assert (code, output) == (2, "")
    assert error.strip() == (
        "--against vllm: vllm is not installed, but 0.16.0 or 0.33.0 was expected (pip install vllm)"
    )


def test_says_that_the_release_is_unknown(fastsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda _name: "0.34.1+cpu")
    code, _, error = fastsim("verify", GOLDEN / "vllm-0.33.0", "--against", "vllm")
    assert code == 2
    assert error.strip() == "--against vllm: vllm 0.34.1 is installed, but 0.16.0 or 0.33.0 was expected"


def test_leaves_out_other_engines(fastsim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "version", lambda _name: "0.16.0")
    code, _, error = fastsim("verify", GOLDEN / "vllm-rlt", "--against", "vllm")
    assert code == 2
    assert "28 cases of engines other than vllm-0.16.0" in error
    assert "no cases, but some of vllm-0.16.0 were expected" in error


def test_unknown_reference(fastsim) -> None:
    code, _, error = fastsim("verify", GOLDEN, "--against", "sglang")
    assert (code, error.strip()) == (2, "--against sglang, but vllm was expected")


def test_random_cases_have_the_form_of_recorded_ones() -> None:
    recorded = read_case(GOLDEN / "vllm-0.33.0" / "b00_fcfs_pc.json.gz")
    for engine in ENGINES:
        case = unrecorded(3, engine)
        assert case["config"].keys() == recorded["config"].keys()
        assert len(case["requests"][0]) == len(recorded["requests"][0])
    assert len(recorded["requests_out"][0]) == len(REQUEST_COLUMNS)
