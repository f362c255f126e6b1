"""BLIS's TraceV2: a pair in its shape, its odd rows, and a sentence for each fault."""

from pathlib import Path

import numpy as np
import pytest

from fastsim.config import WorkloadConfig
from fastsim.workload import build_workload, load_trace

from .sentences import bad_input

COLUMNS = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,"
    "input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,"
    "server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,"
    "error_message,finish_reason"
)
HEADER = """trace_version: 3
time_unit: microseconds
mode: {mode}
warm_up_requests: {warmup}
server:
    type: vllm
    max_num_seqs: 256
goodput_slo_targets:
    critical:
        ttft_ms: 200
"""


def row(number: int = 0, **cells: object) -> str:
    values = dict.fromkeys(COLUMNS.split(","), "") | {
        "request_id": number,
        "streaming": "true",
        "round_index": 0,
        "prefix_length": 0,
        "input_tokens": 100,
        "output_tokens": 10,
        "deadline_us": 0,
        "server_input_tokens": 0,
        "arrival_time_us": 1000 * number,
        "send_time_us": 0,
        "first_chunk_time_us": 0,
        "last_chunk_time_us": 0,
        "status": "ok",
    }
    return ",".join(str(value) for value in (values | cells).values())


def pair(folder: Path, *rows: str, mode: str = "generated", warmup: int = 0, columns: str = COLUMNS) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join((columns, *rows)) + "\n")
    path.with_suffix(".yaml").write_text(HEADER.format(mode=mode, warmup=warmup))
    return path


def test_a_pair_by_either_file(tmp_path: Path) -> None:
    path = pair(tmp_path, row(0), row(1, input_tokens=7), row(2, slo_class="critical"))
    trace = load_trace(path)
    assert trace.format == "BLIS TraceV2"
    assert trace.arrival_us.tolist() == [0, 1000, 2000]
    assert trace.prompt_tokens.tolist() == [100, 7, 100]
    assert trace.output_tokens.tolist() == [10, 10, 10]
    assert trace.priority is not None
    assert trace.priority.tolist() == [1, 1, 0]
    assert trace.report.notes == ("its times are BLIS's own (mode generated), not measured",)
    by_header = load_trace(path.with_suffix(".yaml"))
    assert np.array_equal(by_header.prompt_tokens, trace.prompt_tokens)
    named = build_workload(WorkloadConfig(trace=str(path), format="blis"))
    assert named.workload_id == build_workload(WorkloadConfig(trace=str(path))).workload_id
    alone = path.rename(tmp_path / "alone.csv")
    assert load_trace(alone).report.notes == ()


def test_requests_are_those_of_blis_replay(tmp_path: Path) -> None:
    """Sent when it was sent, as long as the server counted, the group's first prefix length in front."""
    trace = load_trace(
        pair(
            tmp_path,
            row(0, arrival_time_us=5_000_000, send_time_us=5_000_400, server_input_tokens=130,
                first_chunk_time_us=5_050_400, last_chunk_time_us=5_200_400),
            row(1, arrival_time_us=5_100_000, prefix_group="sys", prefix_length=64, server_input_tokens=170),
            row(2, arrival_time_us=5_200_000, prefix_group="sys", prefix_length=32),
            row(3, arrival_time_us=5_300_000, prefix_group="none"),
            mode="real",
            warmup=2,
        )
    )  # fmt: skip
    assert trace.arrival_us.tolist() == [0, 99_600, 199_600, 299_600]
    assert trace.prompt_tokens.tolist() == [130, 164, 164, 100]
    assert trace.prefix_group is not None
    assert trace.prefix_tokens is not None
    assert trace.ttft_us is not None
    assert trace.e2e_us is not None
    assert trace.prefix_group.tolist() == [-1, 0, 0, -1]
    assert trace.prefix_tokens.tolist() == [0, 64, 64, 0]
    assert trace.ttft_us[0] == 50_000
    assert trace.e2e_us[0] == 200_000
    assert np.isnan(trace.ttft_us[1:]).all()
    assert trace.report.notes == ("the first 2 requests are its warm-up: metrics.warmup_s leaves them out",)


def test_priorities_that_were_sent_go_first(tmp_path: Path) -> None:
    columns = COLUMNS.replace("slo_class,", "slo_class,vllm_priority,")
    rows = [row(0, slo_class="critical,3"), row(1, slo_class="batch,5")]
    priority = load_trace(pair(tmp_path, *rows, columns=columns)).priority
    assert priority is not None
    assert priority.tolist() == [3, 5]


def test_odd_rows(tmp_path: Path) -> None:
    trace = load_trace(
        pair(
            tmp_path,
            row(0),
            row(1, output_tokens=0),
            row(2, input_tokens="x"),
            row(3, arrival_time_us=-4),
            row(4, send_time_us="soon"),
            row(5, prefix_length=-1),
            row(
                6, session_id="s", round_index=1, image_tokens=50, adapter="", status="timeout", error_message='"a, b"'
            ),
            row(7, arrival_time_us=500),
        )
    )
    assert trace.arrival_us.tolist() == [0, 500, 6000]
    assert trace.report.unusable == {
        "output_tokens of 0": 1,
        "input_tokens that are not a whole number of at least 1": 1,
        "an arrival_time_us that is not a whole number of at least 0": 1,
        "a send_time_us that is not a whole number of at least 0": 1,
        "a prefix_length that is not a whole number of at least 0": 1,
    }
    assert trace.report.notes == (
        "rows were sorted by arrival",
        "its times are BLIS's own (mode generated), not measured",
        "1 requests are later rounds of a session and come when they came",
        "1 requests have images, audio or video, counted as tokens only",
        "1 requests failed when they were recorded and are served here",
    )


@pytest.mark.parametrize(
    ("deadlines", "note"),
    [
        ((300_000_000, 300_001_000), "its deadlines are not read: workload.timeout_s=300 is what they say"),
        ((300_000_000, 5_000_000), "the deadlines of 2 requests differ and are not modelled"),
        ((300_000_000, 0), "the deadlines of 1 requests differ and are not modelled"),
    ],
)
def test_deadlines(tmp_path: Path, deadlines: tuple[int, int], note: str) -> None:
    rows = [row(number, deadline_us=deadline) for number, deadline in enumerate(deadlines)]
    notes = load_trace(pair(tmp_path, *rows)).report.notes
    assert note in notes


def test_faults(tmp_path: Path) -> None:
    path = pair(tmp_path, row(0))
    header = path.with_suffix(".yaml")
    text = header.read_text()
    header.write_text(text.replace("trace_version: 3", "trace_version: 9"))
    bad_input(lambda: load_trace(path), "trace.yaml", 'trace_version is "9"', "2 or 3")
    header.write_text(text.replace("microseconds", "seconds"))
    bad_input(lambda: load_trace(path), "trace.yaml", 'time_unit is "seconds"')
    header.write_text(text)
    path.unlink()
    bad_input(lambda: load_trace(header), "trace.yaml", "trace.csv")
    path = pair(tmp_path, columns=COLUMNS)
    bad_input(lambda: load_trace(path), "no rows")
    pair(tmp_path, row(0), columns=COLUMNS.replace("arrival_time_us", "arrival"))
    bad_input(lambda: load_trace(path), "arrival_time_us is missing", "BLIS TraceV2")
    pair(tmp_path, row(0, output_tokens=0))
    bad_input(lambda: load_trace(path), "none of 1 rows can be used", "output_tokens of 0")
    big = {"prefix_group": "g", "prefix_length": 2**31 - 1}
    pair(tmp_path, row(0, **big), row(1, **big))
    bad_input(lambda: load_trace(path), "trace.csv", "prefix_length")
