"""BLIS's metrics object beside a run of fastsim."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fastsim.analysis.beside.blis_metrics import COLUMN_OF, blis_rows, read_blis_metrics
from fastsim.cli import main
from fastsim.metrics import COLUMNS

from .sentences import bad_input

GOLDEN = Path(__file__).parent / "golden" / "blis"


def recorded() -> dict[str, Any]:
    """The spike of 50 requests as BLIS f90a1e3a served it: what it was given, and its metrics object."""
    with gzip.open(GOLDEN / "w2_seed7_spike50_burst__c00_base.json.gz", "rt") as file:
        case: dict[str, Any] = json.load(file)
    return case


def files(folder: Path) -> tuple[Path, list[str]]:
    """The metrics of a recorded run as BLIS writes them, and the settings that make the same run here."""
    case = recorded()
    metrics = folder / "metrics.json"
    metrics.write_text(json.dumps({"instance_id": "cluster"} | case["aggregate"] | {"requests": [{"ttft_ms": 1.0}]}))
    trace = folder / "trace.csv"
    columns = "request_id,slo_class,prefix_group,input_tokens,output_tokens,arrival_time_us"
    rows = [f"{k},,,{prompt},{output},{time}" for k, (time, prompt, output, *_) in enumerate(case["requests"])]
    trace.write_text("\n".join([columns, *rows]) + "\n")
    return metrics, [
        f"workload.trace={trace}",
        "engine.num_gpu_blocks=7463",
        "run.horizon_s=120",
        "latency.b0_us=5752.71",
        "latency.b1_us_per_prefill_token=17.25",
        "latency.b2_us_per_decode_token=6.0",
    ]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_a_recorded_run_is_the_same_in_every_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics, settings = files(tmp_path)
    assert recorded()["latency"]["alpha"] == [232.46, 1.75, 3357.44]
    sets = [part for setting in settings for part in ("--set", setting)]
    blis = [*sets, "--set", "engine.name=blis", "--set", "latency.alpha=[232.46,1.75,3357.44]"]
    lines = run(capsys, *blis, "--beside", str(metrics)).splitlines()
    assert lines[0] == "All 27 metrics are those of metrics.json."
    assert max(map(len, lines[: lines.index("", 2)])) <= 80
    assert sum(line.endswith("same") for line in lines) == 27
    lines = run(capsys, *sets, "--beside", str(metrics)).splitlines()
    assert lines[0].startswith("vllm-0.33.0 completes 50 requests with")
    assert max(map(len, lines[: lines.index("", 2)])) <= 80
    figures = json.loads(run(capsys, *sets, "--beside", str(metrics), "--json"))
    rows = {row["metric"]: row for row in figures["beside"]}
    assert rows["preemption_count"] == {
        "metric": "preemption_count",
        "column": "preemptions",
        "measured": 150,
        "fastsim": figures["preemptions"],
        "relative": (figures["preemptions"] - 150) / 150,
    }
    assert rows["ttft_p99_ms"]["fastsim"] == figures["ttft_served_p99_ms"]


def test_what_comes_closest_are_columns() -> None:
    assert set(COLUMN_OF.values()) <= {column.name for column in COLUMNS}


def test_shapes_of_the_object(tmp_path: Path) -> None:
    path = tmp_path / "printed.txt"
    one = {"instance_id": "instance_0", "completed_requests": 1, "responses_per_sec": 0.5, "preemption_count": 0}
    whole = one | {"instance_id": "cluster", "completed_requests": 2}
    printed = "".join(f"=== Simulation Metrics ===\n{json.dumps(each, indent=1)}\n" for each in (whole, one))
    path.write_text(f"some log\n{printed}=== Fitness ===\n")
    assert read_blis_metrics(path)["completed_requests"] == 2
    path.write_text(json.dumps(one))
    found = read_blis_metrics(path)
    assert found == {name: value for name, value in one.items() if name != "instance_id"}
    row, *_ = blis_rows(found, {"completed": 0})
    assert (row.relative, row.same) == (-1.0, False)
    assert blis_rows(found, {"preemptions": 3})[0].relative is None
    assert blis_rows(found, {"preemptions": 0})[0].same


def test_faults(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    bad_input(lambda: read_blis_metrics(path), "metrics.json", "cannot be read")
    for text, words in {
        "not json": ["not readable JSON"],
        "[1]": ["blis replay --results-path", "--metrics-path"],
        "3": ["a int"],
        "{}": ["completed_requests = None"],
        '{"completed_requests": 1, "responses_per_sec": "x", "preemption_count": 1}': ["responses_per_sec = 'x'"],
    }.items():
        path.write_text(text)
        bad_input(lambda: read_blis_metrics(path), "metrics.json", *words)
