"""What vLLM refuses at its start: one setting is refused, in vLLM's words; in a sweep it is a row that says so."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fastsim.config import check_rules
from fastsim.config.rules import start_fault
from fastsim.config.spec import spec_from_mapping
from fastsim.errors import InputError
from fastsim.metrics import FLOAT_COLUMNS, by_name
from fastsim.simulation import simulate
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store.scan import scan
from tests.processes import run

SMALL = {"engine.num_gpu_blocks": 200, "workload.num_requests": 5, "workload.output.dist": "constant"}
SMALL |= {"workload.output.mean": 20}
REFUSALS = [
    (
        {"engine.max_num_batched_tokens": 128, "engine.max_num_seqs": 129},
        '("max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (129)."',
        {"engine.max_num_batched_tokens": 129},
    ),
    (
        {"engine.max_num_active_seqs": 9, "engine.max_num_seqs": 8},
        "engine.max_num_active_seqs = 9, but at most engine.max_num_seqs = 8 was expected: vLLM does not start",
        {"engine.max_num_active_seqs": 8},
    ),
    (
        {"engine.long_prefill_token_threshold": 1001, "engine.max_model_len": 1000},
        '("long_prefill_token_threshold (1001) cannot be greater than the max_model_len (1000).")',
        {"engine.long_prefill_token_threshold": 1000},
    ),
]


@pytest.mark.parametrize(("table", "words", "mended"), REFUSALS)
def test_a_setting_that_vllm_refuses_is_refused(table: dict[str, Any], words: str, mended: dict[str, Any]) -> None:
    config = spec_from_mapping(SMALL | table).base
    with pytest.raises(InputError) as error:
        check_rules(config, "spec.toml")
    assert str(error.value).startswith("spec.toml: engine.")
    assert words in str(error.value)
    for attempt in (lambda: simulate(config), lambda: Grid.from_mapping(SMALL | table)):
        with pytest.raises(InputError, match="vLLM does not start"):
            attempt()
    assert simulate(spec_from_mapping(SMALL | table | mended).base).metrics["completed"] == 5


def test_releases_and_engines_differ() -> None:
    """0.16.0 does not look at the threshold; other engines ask for none of this."""
    long = {"engine.long_prefill_token_threshold": 1001, "engine.max_model_len": 1000}
    few = {"engine.max_num_batched_tokens": 2, "engine.max_num_seqs": 3}

    def fault(table: dict[str, Any], engine: str) -> str | None:
        return start_fault(spec_from_mapping(table | {"engine.name": engine}).base.value)

    assert fault(long, "vllm-0.16.0") is None
    assert fault(long, "vllm-0.33.0-async") is not None
    assert all(fault(few, engine) for engine in ("vllm-0.16.0", "vllm-0.33.0", "vllm-0.33.0-async"))
    assert not any(fault(few, engine) for engine in ("blis", "vllm-rlt"))


@pytest.mark.parametrize("verb", ["run", "check", "sweep"])
def test_the_commands_refuse_in_one_sentence(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "s.toml"
    spec.write_text("engine.num_gpu_blocks = 200\nengine.max_num_batched_tokens = 128\n")
    out = ["--out", tmp_path / "out"] if verb == "sweep" else []
    code, printed, said = run(capsys, verb, spec, *out)
    assert (code, printed) == (2, "")
    assert " ".join(said.split()).count("must be greater than or equal to max_num_seqs (256).") == 1
    assert not (tmp_path / "out").exists()


MIXED = {
    "sweep": {
        "seeds": 2,
        "axes": {"engine.max_num_seqs": [64, 256], "engine.max_num_batched_tokens": [128, 512]},
        "zip": [{"engine.watermark": [0, 0.05, 0.1], "engine.boost_after": [0, 1, 2]}],
    }
}


def test_a_grid_counts_the_configurations_that_vllm_refuses() -> None:
    grid = Grid.from_mapping(SMALL | MIXED)
    assert grid.size == 24
    assert "with 6 of 24 configurations no server starts; they become rows of status refused." in grid.warnings[0]
    assert "max_num_batched_tokens (128)" in grid.warnings[0]
    assert int(grid.refused(np.arange(24)).sum()) == 6
    assert not Grid.from_mapping(SMALL | {"sweep": {"axes": {"engine.max_num_seqs": [64, 256]}}}).some_refused
    labels = {"sweep": {"choice": {"c": {"a": {"engine.max_num_seqs": 300}, "b": {"engine.watermark": 0.1}}}}}
    tokens = {"engine.max_num_batched_tokens": 299}
    assert "with 1 of 2 configurations" in Grid.from_mapping(SMALL | labels | tokens).warnings[0]


def test_a_sweep_stores_them_as_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "s.toml"
    lines = [f"{key} = {value!r}" for key, value in SMALL.items()]
    axes = (
        "[sweep]\nseeds = 2\n[sweep.axes]\nengine.max_num_seqs = [64, 256]\nengine.max_num_batched_tokens = [128, 512]"
    )
    spec.write_text("\n".join([*lines, axes]).replace("'", '"'))
    folder = tmp_path / "out"
    code, _, said = run(capsys, "sweep", spec, "--out", folder, "--workers", 1)
    assert code == 0
    assert "with 2 of 8 configurations no server starts" in " ".join(said.split())
    rows = scan(folder).collect()
    refused = rows.filter(pl.col("status").cast(pl.String) == "refused")
    assert refused.select("engine.max_num_seqs", "engine.max_num_batched_tokens").unique().rows() == [(256, 128)]
    assert refused.height == 2
    metrics = [name for name in rows.columns if name in by_name() and name != "status"]
    assert len(metrics) >= len(FLOAT_COLUMNS)
    assert refused.select(pl.col(metrics).is_null().all()).row(0) == (True,) * len(metrics)
    ran = rows.filter(pl.col("status").cast(pl.String) == "ok")
    assert ran.height == 6
    alone = simulate(Grid.from_toml(spec).config(int(ran["config_id"][0]))).metrics
    assert ran["e2e_p99_ms"][0] == alone["e2e_p99_ms"]
    code, _, said = run(capsys, "run", folder, "--config-id", int(refused["config_id"][0]))
    assert (code, "vLLM does not start" in " ".join(said.split())) == (2, True)
    code, printed, _ = run(capsys, "compare", folder, "--by", "engine.max_num_batched_tokens", "--metric", "e2e_p99_ms")
    assert code == 0
    code, printed, _ = run(capsys, "status", folder)
    assert (code, "complete" in printed) == (0, True)
