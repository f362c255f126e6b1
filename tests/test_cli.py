"""The command line as its users meet it: verbs, exit codes, one sentence for bad input."""

import gzip
import json
import os
import re
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from fastsim.cli import VERBS, main
from fastsim.metrics import COLUMNS
from fastsim.sweeps.store.lock import FolderLock
from tests.processes import run

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
DISCUSSION = ROOT / "sweeps" / "discussion.toml"
SMALL = ["--set", "engine.num_gpu_blocks=500", "--set", "workload.num_requests=20"]


@pytest.fixture
def fastsim(capsys):
    """Run the command line in this process: exit code, stdout, stderr."""
    return partial(run, capsys)


@pytest.fixture(scope="module")
def discussion(tmp_path_factory):
    """The folder of the discussion's sweep, and what it printed."""
    out = tmp_path_factory.mktemp("discussion")
    command = [sys.executable, "-m", "fastsim", "sweep", str(DISCUSSION), "--out", str(out), "--workers", "2"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return out, done.stdout, done.stderr


# --- help -----------------------------------------------------------------------------------------------------------


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys\ntry:\n    from fastsim.cli import main\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numba', 'polars', 'pydantic', 'numpy', 'scipy', 'altair'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.35


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(fastsim, verb):
    code, output, errors = fastsim(verb, "--help")
    assert (code, errors) == (0, "")
    assert f"Usage: fastsim {verb}" in output


@pytest.mark.parametrize("words", [["sweep"], ["workload"], ["workload", "show"]])
def test_a_verb_alone_shows_its_help_line_by_line(fastsim, words):
    _, output, errors = fastsim(*words)
    assert (output + errors).startswith(f"Usage: fastsim {' '.join(words)}")
    assert max(map(len, (output + errors).splitlines())) <= 120


def test_importing_the_package_loads_nothing():
    code = "import sys, fastsim\nassert not {'numba', 'polars', 'pydantic', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_public_names_are_there():
    import fastsim as package

    for name in set(package.__all__) - {"__version__"}:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_columns_are_listed(fastsim):
    code, output, _ = fastsim("columns")
    assert code == 0
    assert sum(not line.startswith(" ") for line in output.splitlines()) == len(COLUMNS)
    code, output, _ = fastsim("columns", "kv_use")
    assert " ".join(output.split()).count("(vllm:kv_cache_usage_perc)") == 2
    assert output.startswith("kv_use_mean [share]: ")


# --- run ------------------------------------------------------------------------------------------------------------


def test_run_prints_the_verdict_first(fastsim):
    code, output, errors = fastsim("run", DISCUSSION)
    assert code == 0, errors
    lines = output.splitlines()
    assert lines[0] == "thrash: 11.7 % of the busy time went into computing tokens again (43.3 % of all"
    assert lines[1] == "  scheduled tokens, 1,042 preemptions)"
    assert "256 is more than the 32 requests" in lines[2]
    assert all(len(line) <= 80 or line.startswith("note") for line in lines)
    assert re.fullmatch(r"vllm-0.33.0: kernel [\d.]+ ms, [\d.]+ s in all", lines[-1])


def test_run_says_what_ended_too_soon(fastsim):
    code, output, _ = fastsim("run", *SMALL, "--set", "run.horizon_s=0.5")
    assert code == 0
    assert "note: no request completed before the end of the run (run.horizon_s = 0.5)" in output
    lengths = ["workload.prompt.dist=constant", "workload.prompt.mean=100", "workload.output.dist=constant"]
    sets = [word for text in [*lengths, "workload.output.mean=50"] for word in ("--set", text)]
    code, output, _ = fastsim("run", *SMALL, *sets, "--set", "engine.max_model_len=149")
    assert "note: 20 of 20 outputs end at engine.max_model_len = 149 tokens" in " ".join(output.split())
    code, output, _ = fastsim("run", *SMALL, *sets, "--set", "engine.max_model_len=150")
    assert "outputs end at" not in output


def test_run_as_json_has_every_column(fastsim):
    code, output, _ = fastsim("run", *SMALL, "--json", "--repeat", 3)
    assert code == 0
    metrics = json.loads(output)
    assert list(metrics) == ["workload_id", *(column.name for column in COLUMNS), "kernel_ms"]
    assert metrics["completed"] == 20
    assert metrics["kernel_ms"] > 0


def test_run_takes_a_model_and_a_gpu(fastsim):
    from fastsim.presets import gpu_names, model_names

    model, gpu = model_names()[0], gpu_names()[0]
    code, output, errors = fastsim(
        "run", "--model", "llama-3.1-8b", "--gpu", "h100", "--set", "workload.num_requests=5", "--json"
    )
    assert code == 0, errors
    assert "step times from a shipped table" in errors
    assert "no load given" not in errors
    _, _, errors = fastsim("run", "--model", "llama-3.1-8b", "--gpu", "h100", "--set", "run.horizon_s=1")
    assert "no load given: 300 requests at 10/s, prompts of ~300, outputs of ~3,400" in " ".join(errors.split())
    usable = json.loads(output)["usable_blocks"]
    assert usable > 10_000
    code, output, _ = fastsim("run", "--model", "llama-3.1-8b", "--gpu", "h100", *SMALL, "--json")
    assert json.loads(output)["usable_blocks"] == 499
    code, _, errors = fastsim("run", "--model", model)
    assert (code, "both or neither were expected" in errors) == (2, True)
    code, _, errors = fastsim("run", "--gpu", gpu, "--model", "nonsense")
    assert (code, "nonsense" in errors, len(errors.splitlines())) == (2, True, 1)


def test_run_without_fast_forward_gives_the_same(fastsim):
    def metrics(*options):
        found = json.loads(fastsim("run", DISCUSSION, "--json", *options)[1])
        del found["kernel_ms"]
        return found

    assert metrics("--no-fast-forward") == metrics()


def test_run_stores_requests_and_steps(fastsim, tmp_path):
    requests, steps = tmp_path / "requests.parquet", tmp_path / "steps.parquet"
    code, output, _ = fastsim("run", *SMALL, "--requests", requests, "--steps", steps, "--json")
    assert code == 0
    metrics = json.loads(output)
    table = pl.read_parquet(requests)
    assert table.height == 20
    assert (table["status"] == "finished").sum() == metrics["completed"]
    assert pl.read_parquet(steps).height == metrics["steps"]
    assert pl.read_parquet(steps)["scheduled_tokens"].list.sum().sum() == metrics["scheduled_tokens"]


def test_any_row_of_a_sweep_is_reproduced(fastsim, discussion):
    rows = pl.scan_parquet(discussion[0] / "parts" / "*.parquet").collect()
    for row in rows.rows(named=True):
        for source in (discussion[0], DISCUSSION):
            code, output, errors = fastsim("run", source, "--config-id", row["config_id"], "--json")
            assert code == 0, errors
            metrics = json.loads(output)
            del metrics["kernel_ms"]
            assert metrics == {name: row[name] for name in metrics}


# --- sweep, status, check -------------------------------------------------------------------------------------------

EXPECTED = {
    ("300 at 10/s", 256, "vllm-0.33.0"): (256, 1042, 120.0),
    ("300 at 10/s", 256, "vllm-0.16.0"): (243, 1269, 120.0),
    ("300 at 10/s", 32, "vllm-0.33.0"): (162, 0, 120.0),
    ("300 at 10/s", 32, "vllm-0.16.0"): (162, 0, 120.0),
    ("50 at once", 256, "vllm-0.33.0"): (50, 16, 28.57),
    ("50 at once", 256, "vllm-0.16.0"): (50, 186, 34.46),
    ("50 at once", 32, "vllm-0.33.0"): (50, 0, 40.36),
    ("50 at once", 32, "vllm-0.16.0"): (50, 0, 40.36),
}
"""Completed, preemptions and seconds as the real schedulers had them."""


def test_the_discussions_rows_are_vllms_own(discussion):
    rows = pl.scan_parquet(discussion[0] / "parts" / "*.parquet").collect()
    real = rows.filter(pl.col("engine.preemption_mode") == "recompute")
    found = {
        (row["choice.scenario"], row["engine.max_num_seqs"], row["engine.name"]): (
            row["completed"],
            row["preemptions"],
            round(row["simulated_s"], 2),
        )
        for row in real.rows(named=True)
    }
    assert {key: (*value[:2], min(value[2], 120.0)) for key, value in found.items()} == EXPECTED
    assert rows.row(0, named=True)["engine.max_num_seqs"] == 256


def test_a_sweep_prints_its_answer_and_says_how_it_got_on(discussion):
    _, output, errors = discussion
    assert output.startswith("Answer: request throughput, requests/s: from 1.21 (scenario 50 at once, ")
    assert "\nQuestion: What do over-admission and right-sizing cost on real vLLM?\n" in output
    assert "16 rows in" in output
    assert re.search(r"16 of 16 rows, .* rows/s", errors)


def test_a_finished_sweep_is_not_computed_again(fastsim, discussion):
    code, output, errors = fastsim("sweep", DISCUSSION, "--out", discussion[0])
    assert code == 0
    assert "16 of 16 rows are there already" in errors
    assert "(0 computed now)" in output


def test_status_says_how_far_it_is(fastsim, discussion):
    code, output, _ = fastsim("status", discussion[0])
    assert code == 0
    assert output.startswith("complete: 16 of 16 rows (100.0%)\n")
    part = next(discussion[0].glob("parts/*.parquet"))
    aside = part.rename(part.with_suffix(".aside"))
    code, output, _ = fastsim("status", discussion[0])
    aside.rename(part)
    assert output.startswith("incomplete: 0 of 16 rows (0.0%)\n")
    with FolderLock(discussion[0]):
        code, output, _ = fastsim("status", discussion[0])
    assert output.startswith(f"running (process {os.getpid()} on ")


def test_quickstart_is_a_thousand_configurations_with_a_question(fastsim, tmp_path):
    quickstart = ROOT / "sweeps" / "quickstart.toml"
    code, output, _ = fastsim("sweep", quickstart, "--dry-run")
    assert code == 0
    assert output.startswith("1,080 configurations in ")
    assert not list(tmp_path.iterdir())
    code, output, errors = fastsim(
        "sweep", quickstart, "--out", tmp_path, "--axis", "workload.rate_scale=2,3", "--axis", "engine.watermark=0,0.02"
    )
    assert code == 0, errors
    answer = output.partition("\n\n")[0].replace("\n  ", " ")
    assert re.search(
        r"^Answer: engine.max_num_seqs = \d+, engine.watermark = 0.02 meets ttft_p99_ms <= 2000 ", answer, re.M
    )
    assert "at 2 of 2 values of workload.rate_scale (2 to 3), as many as any setting" in answer
    assert "40 rows in" in output


def test_check_names_what_can_never_fit(fastsim):
    code, output, _ = fastsim("check", DISCUSSION)
    assert code == 0
    assert "every request fits" in output
    output = " ".join(output.split())
    assert "max_num_seqs 256, but 7,462 blocks / 230 a request at full decode = 32 requests" in output
    code, output, _ = fastsim("check", DISCUSSION, "--set", "engine.num_gpu_blocks=200")
    assert code == 1
    assert (
        "16 of 16 configurations have requests that can never be served: of 300 requests 300 with too few KV blocks at "
        in " ".join(output.split())
    )


def test_check_of_a_huge_grid_says_how_much_it_looked_at(fastsim, tmp_path):
    spec = tmp_path / "huge.toml"
    spec.write_text("engine.num_gpu_blocks = 5000\nworkload.num_requests = 3\n[sweep]\nseeds = 1000000000\n")
    code, output, _ = fastsim("check", spec)
    assert code == 0
    assert output.startswith("1,000,000,000 configurations")
    assert "looked at 256 of 1,000,000,000 configurations" in output


# --- verify ---------------------------------------------------------------------------------------------------------


def test_verify_replays_cases(fastsim):
    cases = sorted((GOLDEN / "vllm-0.33.0").glob("*.json.gz"))[:3]
    code, output, _ = fastsim("verify", *cases)
    assert (code, output) == (0, "3/3 identical\n")
    code, output, _ = fastsim(
        "verify", *cases, *sorted((GOLDEN / "vllm-0.16.0").glob("*.json.gz"))[:2], "--engine", "vllm-0.16.0"
    )
    assert (code, output) == (0, "2/2 identical\n")


def test_verify_names_the_first_difference(fastsim, tmp_path):
    path = sorted((GOLDEN / "vllm-0.33.0").glob("*.json.gz"))[0]
    case = json.loads(gzip.decompress(path.read_bytes()))
    case["totals"]["steps"] += 1
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "case.json.gz").write_bytes(gzip.compress(json.dumps(case).encode()))
    code, output, _ = fastsim("verify", tmp_path)
    first, last = output.splitlines()
    assert code == 1
    assert first.startswith(f"vllm-0.33.0/{case['name']}: ")
    assert "steps" in first
    assert last == "0/1 identical"


# --- bad input ------------------------------------------------------------------------------------------------------


def write(path, text):
    path.write_text(text)
    return path


BAD = {
    "run alone": (["run"], "nothing to run: a spec, or --model and --gpu, was expected"),
    "two engines": (
        ["run", *SMALL, "--set", "engine.name=blis", "--vllm-version", "0.19.0"],
        "--vllm-version 0.19.0 with --set engine.name=blis, but one of them was expected",
    ),
    "no such verb": (["fly"], "fly"),
    "no such option": (["run", "--fly"], "--fly"),
    "option without value": (["run", "--set"], "--set"),
    "missing spec": (["run", "missing.toml"], "missing.toml"),
    "not a number": (["run", *SMALL, "--repeat", "many"], "many"),
    "repeat zero": (["run", *SMALL, "--repeat", "0"], "--repeat 0"),
    "unknown key": (["run", "--set", "engine.max_num_seq=3"], "engine.max_num_seqs"),
    "wrong type": (["run", *SMALL, "--set", "engine.max_num_seqs=many"], "engine.max_num_seqs"),
    "negative": (["run", *SMALL, "--set", "engine.max_num_seqs=-1"], "-1"),
    "nan": (["run", *SMALL, "--set", "engine.watermark=nan"], "engine.watermark"),
    "config-id without spec": (["run", "--config-id", "3"], "--config-id 3"),
    "config-id too large": (["run", DISCUSSION, "--config-id", "16"], "0 to 15"),
    "folder without spec": (["run", ROOT / "tests", "--config-id", "1"], "spec.toml"),
    "folder without config-id": (["run", ROOT / "sweeps"], "--config-id"),
    "missing trace": (["run", "--set", "engine.num_gpu_blocks=500", "--trace", "missing.csv"], "missing.csv"),
    "unwritable requests": (["run", *SMALL, "--requests", "/no/such/folder/x.parquet"], "--requests /no/such/folder"),
    "no out": (["sweep", DISCUSSION], "--out"),
    "bad shard": (["sweep", DISCUSSION, "--shard", "3"], "--shard 3"),
    "shard out of range": (["sweep", DISCUSSION, "--shard", "3/2", "--dry-run"], "--shard 3/2"),
    "limit and sample": (["sweep", DISCUSSION, "--limit", "1", "--sample", "1", "--dry-run"], "--limit"),
    "limit zero": (["sweep", DISCUSSION, "--limit", "0", "--dry-run"], "--limit 0"),
    "no workers": (["sweep", DISCUSSION, "--workers", "0", "--out", "/tmp/never"], "--workers 0"),
    "unknown backend": (["sweep", DISCUSSION, "--backend", "slurm", "--dry-run"], "--backend slurm"),
    "empty axis": (["sweep", DISCUSSION, "--axis", "engine.watermark=", "--dry-run"], "engine.watermark"),
    "unwritable out": (["sweep", DISCUSSION, "--out", "/proc/sweep"], "/proc/sweep"),
    "foreign folder": (["sweep", DISCUSSION, "--out", ROOT / "sweeps" / "data"], "not a sweep's folder"),
    "status of nothing": (["status", "missing"], "missing"),
    "verify nothing": (["verify", "missing"], "missing"),
    "verify a folder without cases": (["verify", ROOT / "sweeps"], "no golden cases"),
    "verify something else": (["verify", DISCUSSION], "gzip JSON"),
    "verify unknown engine": (["verify", GOLDEN, "--engine", "sglang"], "--engine sglang"),
    "unknown column": (["columns", "nonsense"], "nonsense"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_sentence_and_exit_2(fastsim, what):
    arguments, named = BAD[what]
    code, output, errors = fastsim(*arguments)
    assert code == 2, (output, errors)
    assert len(errors.strip().splitlines()) == 1
    assert named in errors
    assert "Traceback" not in errors


def test_an_unexpected_error_keeps_its_traceback(monkeypatch):
    from fastsim.cli import verify

    def broken(paths):
        raise RuntimeError("a bug")

    monkeypatch.setattr(verify, "case_files", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["verify", str(GOLDEN)])
