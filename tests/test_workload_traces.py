"""Recorded requests: both formats, their odd rows, and a sentence for each fault."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastsim.config import ArrivalConfig, LengthConfig, PrefixConfig, PriorityConfig, WorkloadConfig
from fastsim.workload import build_workload, load_trace

from .sentences import bad_input, one_line_or_none

AZURE = Path(__file__).parent / "data" / "azure2023_conv_first2000.csv"


def written(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


# --- Azure --------------------------------------------------------------------------------


def test_the_azure_sample_as_read_by_hand() -> None:
    rows = [line.split(",") for line in AZURE.read_text().splitlines()[1:]]

    def tenths_us(stamp: str) -> int:
        clock = stamp.split(" ")[1]
        hours, minutes, seconds = clock.split(":")
        whole, fraction = seconds.split(".")
        return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 10**7 + int(fraction)

    first = tenths_us(rows[0][0])
    trace = load_trace(AZURE)
    assert trace.format == "Azure CSV"
    assert trace.arrival_us.tolist() == [(tenths_us(row[0]) - first) // 10 for row in rows]
    assert trace.prompt_tokens.tolist() == [int(row[1]) for row in rows]
    assert trace.output_tokens.tolist() == [int(row[2]) for row in rows]
    assert (trace.report.rows_read, trace.report.rows_used, trace.report.unusable) == (2000, 2000, {})
    assert trace.priority is None


def test_azure_stamps_with_and_without_fraction_and_offset(tmp_path: Path) -> None:
    stamps = [
        "2024-05-12 00:00:00+00:00",
        "2024-05-12 00:00:00.5+00:00",
        "2024-05-12T00:00:01Z",
        "2024-05-12 02:00:01.0000019+02:00",
        "2024-05-11 23:00:02.123456789-01:00",
        "2024-05-12 00:00:03",
    ]
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "".join(f"{stamp},10,5\r\n" for stamp in stamps)
    assert load_trace(written(tmp_path, text)).arrival_us.tolist() == [
        0,
        500_000,
        1_000_000,
        1_000_001,
        2_123_456,
        3_000_000,
    ]


def test_azure_rows_that_cannot_be_used_are_counted_by_reason(tmp_path: Path) -> None:
    text = (
        "NumImages,GeneratedTokens,TIMESTAMP,ContextTokens\n"  # other columns, another order
        "0,5,2023-11-16 18:15:46.6805900,374\n"
        "0,0,2023-11-16 18:15:47,374\n"
        "0,0,2023-11-16 18:15:48,374\n"
        "0,-1,2023-11-16 18:15:48,374\n"
        "0,5,2023-11-16 25:15:48,374\n"
        "0,5,2023-02-30 05:15:48,374\n"
        "0,5,soon,374\n"
        "0,5,,374\n"
        "0,5,2023-11-16 18:15:49,\n"
        "0,5,2023-11-16 18:15:49,1.5\n"
        "0,5,2023-11-16 18:15:49,99999999999\n"
        '"0","6","2023-11-16 18:15:50","7"\n'
    )
    trace = load_trace(written(tmp_path, text))
    assert trace.output_tokens.tolist() == [5, 6]
    assert trace.report.rows_read == 12
    assert trace.report.rows_used == 2
    assert trace.report.unusable == {
        "a TIMESTAMP that cannot be read": 4,
        "ContextTokens that are not a whole number of at least 1": 3,
        "GeneratedTokens of 0": 2,
        "GeneratedTokens that are not a whole number of at least 1": 1,
    }


def test_unsorted_rows_are_sorted_and_said_so(tmp_path: Path) -> None:
    rows = ["2024-01-01 00:00:02,1,1", "2024-01-01 00:00:01,2,2", "2024-01-01 00:00:02,3,3"]
    text = "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows])
    trace = load_trace(written(tmp_path, text))
    assert trace.arrival_us.tolist() == [0, 1_000_000, 1_000_000]
    assert trace.prompt_tokens.tolist() == [2, 1, 3]
    assert trace.report.notes == ("rows were sorted by arrival",)


# --- plain --------------------------------------------------------------------------------


def test_a_plain_csv_with_all_columns(tmp_path: Path) -> None:
    text = (
        "\ufeffarrival_s, prompt_tokens,output_tokens,priority,prefix_group,prefix_tokens\n"
        "0.5,10,20,1,0,8\n"
        "1.25,11,21,,,\n"
        "1.5,12.0, 22 ,-3,-1,0\n"
    )
    trace = load_trace(written(tmp_path, text))
    assert trace.format == "plain CSV"
    assert trace.arrival_us.tolist() == [500_000, 1_250_000, 1_500_000]
    assert trace.output_tokens.tolist() == [20, 21, 22]
    workload = build_workload(WorkloadConfig(trace=str(tmp_path / "t.csv")))
    assert workload.priority.tolist() == [1, 0, -3]
    assert workload.prefix_group.tolist() == [0, -1, -1]
    assert workload.prefix_tokens.tolist() == [8, 0, 0]


def test_plain_rows_that_cannot_be_used_are_counted_by_reason(tmp_path: Path) -> None:
    text = (
        "arrival_s,prompt_tokens,output_tokens,priority\n"
        "0,1,1,0\n"
        "-1,1,1,0\n"
        "nan,1,1,0\n"
        "inf,1,1,0\n"
        "1e300,1,1,0\n"
        "1,0,1,0\n"
        "1,1,0,0\n"
        "1,1,1,high\n"
        "1,1\n"
        "2,1,1,0\n"
    )
    trace = load_trace(written(tmp_path, text))
    assert trace.arrival_us.tolist() == [0, 2_000_000]
    assert trace.report.unusable == {
        "an arrival_s that is not a number of at least 0": 4,
        "prompt_tokens that are not a whole number of at least 1": 1,
        "output_tokens of 0": 1,
        "output_tokens that are not a whole number of at least 1": 1,
        "a priority that is not a whole number": 1,
    }
    assert sum(trace.report.unusable.values()) + trace.report.rows_used == trace.report.rows_read


# --- in a workload --------------------------------------------------------------------------------


def test_rate_scale_divides_gaps() -> None:
    once = build_workload(WorkloadConfig(trace=str(AZURE)))
    twice = build_workload(WorkloadConfig(trace=str(AZURE), rate_scale=2.0))
    assert (twice.arrival_us == once.arrival_us // 2).all()
    assert twice.prompt_tokens.tolist() == once.prompt_tokens.tolist()


def test_the_first_requests_of_a_trace() -> None:
    workload = build_workload(WorkloadConfig(trace=str(AZURE), num_requests=10))
    assert workload.num_requests == 10
    assert workload.report.rows_read == 2000
    assert workload.report.rows_used == 10


def test_lengths_of_a_trace_with_other_arrivals() -> None:
    workload = build_workload(WorkloadConfig(trace=str(AZURE), arrival=ArrivalConfig(kind="constant", rate_per_s=1.0)))
    assert workload.arrival_us[:2].tolist() == [1_000_000, 2_000_000]
    assert workload.prompt_tokens[:2].tolist() == [374, 396]
    closed = build_workload(WorkloadConfig(trace=str(AZURE), concurrency=8))
    assert not closed.arrival_us.any()
    assert closed.prompt_tokens.tolist() == workload.prompt_tokens.tolist()


def test_arrivals_of_a_trace_with_other_lengths_prefixes_and_priorities() -> None:
    workload = build_workload(
        WorkloadConfig(
            trace=str(AZURE),
            output=LengthConfig(dist="constant", mean=9.0),
            prefix=PrefixConfig(groups=2, tokens=4),
            priority=PriorityConfig(values=(0, 1)),
        )
    )
    assert set(workload.output_tokens.tolist()) == {9}
    assert set(workload.prefix_group.tolist()) == {0, 1}
    assert workload.priority.sum() == 1000
    assert workload.prompt_tokens[0] == 374


def test_an_edited_trace_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    assert load_trace(path).prompt_tokens.tolist() == [1]
    written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n0,22,1\n")
    assert load_trace(path).prompt_tokens.tolist() == [22]


# --- faults --------------------------------------------------------------------------------


FAULTS = [
    ("", ["is empty"]),
    ("\n\n", ["is empty"]),
    ("arrival_s,prompt_tokens,output_tokens\n", ["header but no rows"]),
    ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n", ["header but no rows"]),
    ("arrival_s,prompt_tokens\n0,1\n", ["output_tokens is missing", "plain CSV"]),
    ("TIMESTAMP,ContextTokens\n", ["GeneratedTokens is missing", "Azure CSV"]),
    ("a,b,c\n1,2,3\n", ["not a known trace format", "arrival_s,prompt_tokens,output_tokens", "TIMESTAMP"]),
    ("arrival_s,prompt_tokens,output_tokens\n0,0,1\n0,1,0\n", ["none of 2 rows", "1 with output_tokens of 0"]),
    ("arrival_s,prompt_tokens,output_tokens\n0,1,1,7,7\n", ["not a readable CSV"]),
    ("arrival_s,arrival_s,prompt_tokens,output_tokens\n0,0,1,1\n", ["arrival_s", "twice"]),
    ("\x00\x01\x02", ["not a known trace format"]),
]


@pytest.mark.parametrize(("text", "named"), FAULTS, ids=[repr(text[:40]) for text, _ in FAULTS])
def test_a_bad_trace_is_one_sentence(tmp_path: Path, text: str, named: list[str]) -> None:
    path = written(tmp_path, text)
    bad_input(lambda: load_trace(path), "t.csv", *named)


def test_a_trace_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    bad_input(lambda: load_trace(tmp_path / "no.csv"), "no.csv", "cannot be read")
    bad_input(lambda: load_trace(tmp_path), "cannot be read")
    bad_input(lambda: build_workload(WorkloadConfig(trace=str(tmp_path / "no.csv"))), "no.csv")


def test_more_requests_than_rows_is_one_sentence() -> None:
    config = WorkloadConfig(trace=str(AZURE), num_requests=2001)
    bad_input(lambda: build_workload(config), "workload.num_requests = 2001", "at most 2000")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["", "arrival_s,prompt_tokens,output_tokens\n", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"]),
    st.one_of(st.binary(max_size=80), st.text(alphabet='0123456789.,-:" \r\n+eT', max_size=80).map(str.encode)),
)
def test_no_trace_ends_in_a_traceback(tmp_path: Path, header: str, body: bytes) -> None:
    path = tmp_path / "fuzz.csv"
    path.write_bytes(header.encode() + body)
    load_trace.__globals__["_load"].cache_clear()
    one_line_or_none(load_trace, path)


def test_a_long_trace_is_read_whole(tmp_path: Path) -> None:
    rows = 100_000
    rng = np.random.default_rng(0)
    seconds = np.sort(rng.integers(0, 86_400, rows)).tolist()
    prompt, output = rng.integers(1, 4000, rows), rng.integers(0, 900, rows)
    lines = [
        f"2024-05-12 {s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}.1234567+00:00,{p},{o}"
        for s, p, o in zip(seconds, prompt.tolist(), output.tolist(), strict=True)
    ]
    trace = load_trace(written(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "\r\n".join(lines) + "\r\n"))
    zeros = int((output == 0).sum())
    assert trace.report.unusable == {"GeneratedTokens of 0": zeros}
    assert len(trace.arrival_us) == rows - zeros
    assert trace.prompt_tokens.tolist() == prompt[output > 0].tolist()
