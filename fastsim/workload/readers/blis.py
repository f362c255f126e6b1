"""BLIS's TraceV2: a CSV of requests, and beside it a YAML header that says what recorded them.

`blis run --trace-output P` and `blis replay --trace-output P` write `P.csv` and `P.yaml`, `blis observe` the two files
it is told. Either file of the pair is given here; a CSV is read without its header too. Requests are what `blis replay`
makes of the rows: sent at `send_time_us` (where there is none, at `arrival_time_us`), as long as the server counted,
a shared prefix in front of `input_tokens`. Rule source: BLIS f90a1e3a.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.errors import InputError
from fastsim.model import shown
from fastsim.workload.readers.table import (
    Floats,
    TraceRows,
    has_columns,
    length_faults,
    not_whole,
    numbers,
    optional_numbers,
    read_table,
)
from fastsim.workload.trace import Format, Head, Trace, check_columns, noted, read_head
from fastsim.workload.workload import INT32_MAX, LATEST_US, Int32Array

REQUIRED = ("input_tokens", "output_tokens", "arrival_time_us")
TIMES = ("deadline_us", "send_time_us", "first_chunk_time_us", "last_chunk_time_us")
COUNTS = ("prefix_length", "server_input_tokens", "round_index", "image_tokens", "audio_tokens", "video_tokens")
TEXTS = ("slo_class", "prefix_group", "status", "adapter")
PRIORITY = {"critical": 0, "batch": 5, "sheddable": 6, "background": 7}
"""Priorities of BLIS's service classes, smaller being more urgent; a standard, unknown or empty class has 1."""

HEADER_BYTES = 2**20
"""Top-level scalars stand in the beginning."""
VERSIONS = ("2", "3")
HEADER_NAMES = {"data": "header", "trace_data": "trace_header"}
_TOP_LEVEL = re.compile(r"^([A-Za-z_]\w*):[ \t]*(.*?)\s*$", re.MULTILINE)


def read(path: Path) -> Trace:
    """Read a TraceV2 by its CSV or by its header.

    Raises
    ------
    InputError
        When the CSV is not there or lacks columns, or the header is of another version or time unit.
    """
    file, header = _pair(path)
    head = read_head(file)
    check_columns(head, Format("blis", FORMAT.name, REQUIRED, FORMAT.detect))
    says = _header(header) if header is not None else {}
    table = read_table(file, REQUIRED, (*TIMES, *COUNTS, *TEXTS, "vllm_priority"), _batch)
    rows = table.arrays
    group, prefix_tokens = _prefixes(file, rows)
    sent_us = np.where(rows["send_time_us"] > 0, rows["send_time_us"], rows["arrival_time_us"]).astype(np.int64)
    real = says.get("mode") == "real"
    start_us = int(sent_us.min(initial=2**62)) if real and len(sent_us) else 0
    answered = (rows["first_chunk_time_us"] > 0) & (rows["last_chunk_time_us"] >= rows["first_chunk_time_us"])
    trace = table.trace(
        path,
        FORMAT.name,
        sent_us - start_us,
        priority=_priorities(rows),
        prefix_group=group,
        prefix_tokens=prefix_tokens,
        ttft_us=np.where(answered, rows["first_chunk_time_us"] - sent_us, np.nan),
        e2e_us=np.where(answered, rows["last_chunk_time_us"] - sent_us, np.nan),
    )
    return noted(trace, *_notes(says, rows, sent_us))


def _pair(path: Path) -> tuple[Path, Path | None]:
    """The CSV, and its header if it has one."""
    if path.is_dir():
        raise InputError(f"{path}: a folder, but one file of a TraceV2 was expected")
    if path.suffix.lower() not in (".yaml", ".yml"):
        stems = (path.stem, HEADER_NAMES.get(path.stem, path.stem))
        headers = [path.with_name(stem + suffix) for stem in stems for suffix in (".yaml", ".yml")]
        return path, next((header for header in headers if header.is_file()), None)
    data_names = {header: data for data, header in HEADER_NAMES.items()}
    candidates = [path.with_name(f"{stem}.csv") for stem in (path.stem, data_names.get(path.stem, path.stem))]
    for file in candidates:
        if file.is_file():
            return file, path
    raise InputError(f"{path}: the header of a TraceV2, but its rows were expected beside it in {candidates[0].name}")


def _header(path: Path) -> dict[str, str]:
    """Top-level scalars of a header.

    Raises
    ------
    InputError
        When it cannot be read, or is of another version or time unit.
    """
    try:
        with path.open("rb") as file:
            text = file.read(HEADER_BYTES).decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}), but the header of a TraceV2 was expected"
        ) from None
    says = {match[1]: match[2].strip("\"'") for match in _TOP_LEVEL.finditer(text)}
    version = says.get("trace_version", "missing")
    if version not in VERSIONS:
        raise InputError(f"{path}: trace_version is {shown(version)}, but {' or '.join(VERSIONS)} was expected")
    unit = says.get("time_unit", "microseconds")
    if unit not in ("microseconds", "us", ""):
        raise InputError(f"{path}: time_unit is {shown(unit)}, but microseconds was expected")
    return says


def _batch(frame: pl.DataFrame) -> TraceRows:
    arrays: dict[str, npt.NDArray[Any]] = {
        name: optional_numbers(frame, name, 0) for name in (*TIMES, *COUNTS, "vllm_priority")
    }
    for name in TEXTS:
        column = frame[name].fill_null("") if name in frame.columns else pl.Series([""] * frame.height, dtype=pl.String)
        arrays[name] = column.to_numpy().astype(str)
    arrays["has_vllm_priority"] = np.full(frame.height, "vllm_priority" in frame.columns)
    arrival_us, output = numbers(frame, "arrival_time_us"), numbers(frame, "output_tokens")
    server = arrays["server_input_tokens"]
    # The server's count holds the prefix too, to which input_tokens are added.
    counted = (server > 0) & (arrays["prefix_group"] == "")
    prompt = np.where(counted, server, numbers(frame, "input_tokens"))
    faults = [
        ("an arrival_time_us that is not a whole number of at least 0", _not_time(arrival_us)),
        *((f"a {name} that is not a whole number of at least 0", _not_time(arrays[name])) for name in TIMES),
        ("a prefix_length that is not a whole number of at least 0", not_whole(arrays["prefix_length"], 0)),
        ("a vllm_priority that is not a whole number of at least 0", not_whole(arrays["vllm_priority"], 0)),
        *length_faults(prompt, output, "input_tokens", "output_tokens"),
    ]
    arrays |= {"arrival_time_us": arrival_us, "prompt_tokens": prompt, "output_tokens": output}
    return TraceRows(faults, arrays)


def _not_time(values: Floats) -> npt.NDArray[np.bool_]:
    whole: npt.NDArray[np.bool_] = (values >= 0) & (values <= LATEST_US) & (values == np.floor(values))
    return ~whole


def _prefixes(path: Path, rows: dict[str, npt.NDArray[Any]]) -> tuple[Int32Array | None, Int32Array | None]:
    """Prefix group and length of each row; lengthens its prompt by it. A group is as long as its first row says."""
    names, first, index = np.unique(rows["prefix_group"], return_index=True, return_inverse=True)
    length = np.zeros(len(names), np.int64)
    for group, name in enumerate(names):
        lengths = rows["prefix_length"][index == group]
        length[group] = next((int(each) for each in lengths if each > 0), 0) if name else 0
    shared = np.flatnonzero(length > 0)
    if not len(shared):
        return None, None
    number = np.full(len(names), -1, np.int64)
    number[shared[np.argsort(first[shared])]] = np.arange(len(shared))
    rows["prompt_tokens"] = rows["prompt_tokens"] + length[index]
    if rows["prompt_tokens"].max() > INT32_MAX:
        raise InputError(
            f"{path}: a prompt has {rows['prompt_tokens'].max():.0f} tokens with its prefix_length, but "
            f"at most {INT32_MAX} were expected"
        )
    return number[index].astype(np.int32), length[index].astype(np.int32)


def _priorities(rows: dict[str, npt.NDArray[Any]]) -> Int32Array | None:
    """What was sent to the server, or else what the class stands for; None where all are alike."""
    if rows["has_vllm_priority"].any():
        values = rows["vllm_priority"]
    else:
        classes, index = np.unique(rows["slo_class"], return_inverse=True)
        values = np.array([PRIORITY.get(name, 1) for name in classes.tolist()], np.int64)[index]
    return values.astype(np.int32) if len(np.unique(values)) > 1 else None


def _notes(says: dict[str, str], rows: dict[str, npt.NDArray[Any]], sent_us: npt.NDArray[np.int64]) -> list[str]:
    """What of the trace is not in the requests made of it."""
    notes = []
    if (warmup := says.get("warm_up_requests", "0")) not in ("", "0"):
        notes.append(f"the first {warmup} requests are its warm-up: metrics.warmup_s leaves them out")
    if says.get("mode") in ("generated", "replayed"):
        notes.append(f"its times are BLIS's own (mode {says['mode']}), not measured")
    limits = np.unique((rows["deadline_us"] - sent_us)[rows["deadline_us"] > 0])
    if len(limits) == 1 and (rows["deadline_us"] > 0).all():
        notes.append(f"its deadlines are not read: workload.timeout_s={limits[0] / 1e6:g} is what they say")
    elif len(limits):
        notes.append(f"the deadlines of {int((rows['deadline_us'] > 0).sum())} requests differ and are not modelled")
    counts = {
        "are later rounds of a session and come when they came": rows["round_index"] > 0,
        "have images, audio or video, counted as tokens only": sum(
            rows[f"{kind}_tokens"] for kind in ("image", "audio", "video")
        )
        > 0,
        "use an adapter, which is not modelled": rows["adapter"] != "",
        "failed when they were recorded and are served here": ~np.isin(rows["status"], ("", "ok")),
    }
    return notes + [f"{int(where.sum())} requests {what}" for what, where in counts.items() if where.any()]


def _detect(head: Head) -> bool:
    if head.path.suffix.lower() in (".yaml", ".yml"):
        return re.search(r"^trace_version:", head.text, re.MULTILINE) is not None
    return has_columns("request_id", "input_tokens", "output_tokens")(head) and bool(
        {"arrival_time_us", "slo_class", "prefix_group"} & set(head.columns)
    )


FORMAT = Format("blis", "BLIS TraceV2", (), _detect, read)
