"""`fastsim workload`: what it prints and writes."""

import json
from pathlib import Path

import pytest

from fastsim.cli.workload import app
from fastsim.config import WorkloadConfig
from fastsim.workload import build_workload

from .sentences import bad_input

DATA = Path(__file__).parent / "data"
AZURE = str(DATA / "azure2023_conv_first2000.csv")
MOONCAKE = str(DATA / "mooncake_conversation_first300.jsonl")


def run(*arguments: str) -> None:
    app(args=list(arguments), standalone_mode=False)


def test_show(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("show", AZURE)
    out = " ".join(capsys.readouterr().out.split())
    assert "2,000 rows, 2,000 requests over 424.3 s" in out
    assert "prefixes none are shared" in out
    run("show", MOONCAKE)
    assert "300 requests share prefixes" in capsys.readouterr().out
    bad = tmp_path / "bad.csv"
    bad.write_text("arrival_s,prompt_tokens,output_tokens\n1,2,3\n0,2,0\n0.5,4,4\n")
    run("show", str(bad))
    out = capsys.readouterr().out
    assert "3 rows, 2 requests" in out
    assert "1 row cannot be used: output_tokens of 0" in out
    assert "rows were sorted by arrival" in out


def test_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", AZURE, "--json", "--start-s", "100", "--end-s", "200", "--set", "workload.num_requests=50")
    figures = json.loads(capsys.readouterr().out)
    assert figures["num_requests"] == 50
    assert figures["rows_read"] == 2000
    assert figures["prompt_tokens"]["min"] >= 1


def test_convert_merges_and_scales(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = str(tmp_path / "out.csv")
    run("convert", AZURE, MOONCAKE, "--out", out, "--rate", "20")
    assert "2,300 requests" in capsys.readouterr().out
    workload = build_workload(WorkloadConfig(trace=out))
    assert workload.num_requests == 2300
    assert 2299 / (workload.arrival_us[-1] / 1e6) == pytest.approx(20, rel=1e-4)
    assert int((workload.prefix_group >= 0).sum()) == 300
    bad_input(lambda: run("convert", AZURE, "-o", out, "--rate", "2", "--rate-scale", "2"), "--rate-scale")
    bad_input(lambda: run("convert", AZURE, "-o", out, "--rate", "-2"), "--rate -2")


def test_make(tmp_path: Path) -> None:
    out = str(tmp_path / "out.csv")
    run("make", "--out", out, "--set", "workload.num_requests=7", "--set", "workload.seed=3")
    made = build_workload(WorkloadConfig(trace=out))
    assert made.workload_id == build_workload(WorkloadConfig(num_requests=7, seed=3)).workload_id
    bad_input(lambda: run("make", "-o", out, "--set", "workload.concurrency=3"), "closed loop")
