"""The trace of a run: the format's own rules, and what it shows against the run."""

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fastsim.analysis.explain import timeline
from fastsim.analysis.explain.history import history_of
from fastsim.analysis.explain.timeline import REQUESTS, SCHEDULER, Timeline, make_timeline
from fastsim.cli import main
from fastsim.config import load_config
from fastsim.engines.tape import Reason
from fastsim.simulation import Result, simulate

SPIKE = ["workload.arrival.kind=all_at_once", "workload.num_requests=50"]


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(load_config("sweeps/discussion.toml", SPIKE), record_steps=True)


@pytest.fixture(scope="module")
def whole(result: Result) -> Timeline:
    return make_timeline(history_of(result), "vllm-0.33.0")


def events(trace: Timeline, phase: str) -> list[dict[str, Any]]:
    return [event for event in trace.trace["traceEvents"] if event["ph"] == phase]


def request_slices(trace: Timeline) -> list[dict[str, Any]]:
    return [event for event in events(trace, "X") if event["pid"] == REQUESTS]


def by_track(trace: Timeline) -> dict[int, list[dict[str, Any]]]:
    tracks = defaultdict(list)
    for event in request_slices(trace):
        tracks[event["tid"]].append(event)
    return tracks


REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "C": {"name", "pid", "ts", "args"},
    "i": {"name", "s", "pid", "tid", "ts"},
    "M": {"name", "pid", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}
"""What the trace-event format asks of each phase."""


def test_every_event_has_what_the_format_asks_for(whole: Timeline) -> None:
    trace = json.loads(json.dumps(whole.trace))
    assert trace["displayTimeUnit"] == "ms"
    assert {event["ph"] for event in trace["traceEvents"]} == set(REQUIRED)
    for event in trace["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys(), event
        assert type(event.get("ts", 0)) is int
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        assert event["tid"] > 0 or event["ph"] in "MC", "viewers drop thread 0"
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())


def test_tracks_have_neither_gaps_nor_overlaps(whole: Timeline, result: Result) -> None:
    tracks = by_track(whole)
    assert len(tracks) == 50
    for number, slices in tracks.items():
        request = number - timeline.FIRST_TRACK
        assert slices[0]["ts"] == result.requests.arrival_us[request]
        for a, b in pairwise(slices):
            assert a["ts"] + a["dur"] == b["ts"]
        assert slices[-1]["ts"] + slices[-1]["dur"] == result.requests.finish_us[request]


def test_slices_add_up_to_the_run(whole: Timeline, result: Result) -> None:
    tokens: dict[str, int] = defaultdict(int)
    for event in request_slices(whole):
        tokens[event["cat"]] += event.get("args", {}).get("tokens", 0)
    assert tokens["decode"] == result.totals["decode_tokens"]
    assert tokens["prefill"] + tokens["recompute"] == result.totals["prefill_tokens"]
    preempted = [event for event in events(whole, "X") if event["cat"] == "preempted"]
    assert len(preempted) == result.metrics["preemptions"] == 16
    marks = [event for event in events(whole, "i") if event["pid"] == REQUESTS and "victim" in event["args"]]
    assert len(marks) == 16


def test_what_the_queue_waits_for_is_that_of_the_kernel(whole: Timeline, result: Result) -> None:
    """While anybody waits there is a slice; in each step it names what ended the scan of that step."""
    slices = [event for event in events(whole, "X") if event["pid"] == SCHEDULER]
    assert len({event["name"] for event in slices}) > 3
    assert result.tape is not None
    for step, call in zip(result.tape.steps, result.tape.calls, strict=True):
        around = [event["name"] for event in slices if event["ts"] <= step.t_us < event["ts"] + event["dur"]]
        assert around == ([] if call.reason is Reason.EMPTY else [call.reason.value])


def test_arrows_begin_and_end_inside_slices(whole: Timeline) -> None:
    """A flow binds to the slice around it: the evictor's, and the one that begins with the victim's preemption."""
    tracks = by_track(whole)
    starts, ends = events(whole, "s"), events(whole, "f")
    assert len(starts) == len(ends) == 16
    for event in starts + ends:
        assert any(s["ts"] <= event["ts"] < s["ts"] + s["dur"] for s in tracks[event["tid"]]), event
    for start, end in zip(starts, ends, strict=True):
        assert start["id"] == end["id"]
        assert start["tid"] != end["tid"]
        assert any(s["ts"] == end["ts"] and s["cat"] == "preempted" for s in tracks[end["tid"]])


def test_a_large_run_is_thinned_by_rule(result: Result, whole: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    assert whole.notes == ()
    assert whole.trace["otherData"]["thinned"] == "no"
    for name, value in (("MAX_REQUESTS", 20), ("MAX_POINTS", 100), ("MAX_INSTANTS", 5)):
        monkeypatch.setattr(timeline, name, value)
    thin = make_timeline(history_of(result), "vllm-0.33.0")
    names = {e["args"]["name"] for e in events(thin, "M") if e["name"] == "thread_name" and e["pid"] == REQUESTS}
    assert names == {f"request {i}" for i in range(0, 50, 3)}
    assert set(by_track(thin)) == {timeline.FIRST_TRACK + i for i in range(0, 50, 3)}
    counters = defaultdict(list)
    for event in events(thin, "C"):
        counters[event["name"]].append(next(iter(event["args"].values())))
    assert 50 < len(counters["free KV"]) <= 100
    assert result.steps is not None
    assert min(counters["free KV"]) == min(step.free_mid for step in result.steps), "the tightest moment is kept"
    assert len([e for e in events(thin, "i") if e["pid"] == SCHEDULER]) == 4
    assert thin.trace["otherData"]["thinned"] == "; ".join(thin.notes)
    assert len(thin.notes) == 3
    assert "every 3rd request: 17 of 50" in thin.notes[0]


def test_slices_are_bounded_too(result: Result, whole: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_SLICES", len(request_slices(whole)) // 4)
    thin = make_timeline(history_of(result), "vllm-0.33.0")
    assert len(request_slices(thin)) <= timeline.MAX_SLICES
    assert thin.notes


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run.json"
    with pytest.raises(SystemExit) as stop:
        main(["run", "sweeps/discussion.toml", "--set", SPIKE[0], "--set", SPIKE[1], "--timeline", str(out)])
    assert stop.value.code == 0
    assert "ui.perfetto.dev" in capsys.readouterr().err
    assert json.loads(out.read_text())["otherData"]["requests"] == 50


@pytest.mark.parametrize("engine", ["blis", "vllm-rlt"])
def test_engines_without_a_record_say_so(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(
            [
                "run",
                "--set",
                f"engine.name={engine}",
                "--set",
                "engine.num_gpu_blocks=500",
                "--timeline",
                f"{tmp_path}/x",
            ]
        )
    assert stop.value.code == 2
    message = capsys.readouterr().err.strip()
    assert engine in message
    assert "\n" not in message


def test_a_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    no = ["--timeline", str(tmp_path / "no" / "x.json")]
    with pytest.raises(SystemExit) as stop:
        main(["run", "sweeps/discussion.toml", "--set", SPIKE[0], "--set", "workload.num_requests=2", *no])
    assert stop.value.code == 2
    assert "--timeline" in capsys.readouterr().err
