"""A CSV with the plain CSV's three columns under other common names; what is doubtful is asked, not guessed.

A time column that names its unit (`timestamp_ms`) is read in it. One that does not is seconds if a value has a
fraction, or a date and time; Unix times are told by their size. Whole numbers from 0 on may be seconds or
milliseconds: refused.
"""

import re
from pathlib import Path

import numpy as np
import polars as pl

from fastsim.errors import InputError
from fastsim.workload.readers.table import Floats, TraceRows, length_faults, numbers, read_table, since_first_us
from fastsim.workload.trace import Format, Head, Trace, noted

UNITS = {"_s": 1.0, "_sec": 1.0, "_secs": 1.0, "_seconds": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
ARRIVAL = (
    *("arrival", "arrival_time", "arrival_timestamp", "arrived_at", "timestamp", "ts", "time", "start", "start_time"),
    *("request_time", "request_timestamp", "request_start_time", "send_time", "sent_at", "created_at", "submit_time"),
)
PROMPT = (
    *("prompt_tokens", "input_tokens", "num_prompt_tokens", "num_input_tokens", "n_prompt_tokens", "n_input_tokens"),
    *("prompt_len", "prompt_length", "input_len", "input_length", "context_tokens", "contexttokens", "isl"),
    *(
        "prefill_tokens",
        "num_prefill_tokens",
        "request_tokens",
        "input_toks",
        "prompt_token_count",
        "input_token_count",
    ),
)
OUTPUT = (
    *("output_tokens", "completion_tokens", "generated_tokens", "num_output_tokens", "num_completion_tokens"),
    *("num_generated_tokens", "n_output_tokens", "n_completion_tokens", "output_len", "output_length", "osl"),
    *(
        "completion_len",
        "completion_length",
        "decode_tokens",
        "num_decode_tokens",
        "response_tokens",
        "generatedtokens",
    ),
    *("output_toks", "completion_token_count", "output_token_count"),
)
UNIX = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e9, 1.0))
"""From this value on, a time since 1970 is in nanoseconds, microseconds, milliseconds, seconds."""


def read(path: Path) -> Trace:
    """Read such a CSV.

    Raises
    ------
    InputError
        When two columns could be the same thing, or the unit of time is not known.
    """
    with path.open("rb") as file:
        columns = Head.of(path, file.read(64 * 1024)).columns
    arrival, prompt, output = (_one(path, columns, kind) for kind in ("arrival", "prompt", "output"))
    texts: list[pl.Series] = []

    def batch(frame: pl.DataFrame) -> TraceRows:
        texts.append(frame[arrival])
        seconds = _numbers_or_dates(frame, arrival)
        lengths = numbers(frame, prompt), numbers(frame, output)
        faults = [(f"a {arrival} that is neither a number nor a date and time", ~np.isfinite(seconds))]
        faults += length_faults(*lengths, prompt, output)
        return TraceRows(faults, {"time": seconds, "prompt_tokens": lengths[0], "output_tokens": lengths[1]})

    table = read_table(path, (arrival, prompt, output), (), batch)
    scale, unit = _scale(path, arrival, table.arrays["time"], dates=any(_has_dates(each) for each in texts))
    trace = table.trace(path, FORMAT.name, since_first_us(table.arrays["time"] * scale))
    return noted(trace, f"columns were taken as arrival = {arrival} ({unit}), prompt = {prompt}, output = {output}")


def _plain(column: str) -> str:
    return re.sub(r"[\s-]+", "_", column.strip().lower())


def _unit(column: str) -> str | None:
    """The unit that a column's name ends with."""
    name = _plain(column)
    return next((unit for unit in UNITS if name.endswith(unit) and name.removesuffix(unit) in ARRIVAL), None)


def _candidates(columns: tuple[str, ...], kind: str) -> list[str]:
    if kind == "arrival":
        return [column for column in columns if _plain(column) in ARRIVAL or _unit(column) is not None]
    names = PROMPT if kind == "prompt" else OUTPUT
    return [column for column in columns if _plain(column) in names]


def _one(path: Path, columns: tuple[str, ...], kind: str) -> str:
    found = _candidates(columns, kind)
    if len(found) > 1:
        name = {"arrival": "arrival_s", "prompt": "prompt_tokens", "output": "output_tokens"}[kind]
        raise InputError(
            f"{path}: columns {' and '.join(found)} could each be {name}, but one was expected: rename the right one "
            f"to {name} and drop the other"
        )
    return found[0]


def _has_dates(texts: pl.Series) -> bool:
    return bool(texts.str.contains(r"^\d{4}-\d\d-\d\d").any())


def _numbers_or_dates(frame: pl.DataFrame, column: str) -> Floats:
    """Times as numbers; dates and times as seconds since 1970."""
    values = numbers(frame, column)
    if not _has_dates(frame[column]):
        return values
    text = frame[column].str.replace("T", " ").str.replace(r"(Z|[+-]\d\d:?\d\d)$", "")
    times = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")
    return np.where(np.isfinite(values), values, times.dt.timestamp("us").cast(pl.Float64).fill_null(np.nan) / 1e6)


def _scale(path: Path, column: str, values: Floats, *, dates: bool) -> tuple[float, str]:
    """Seconds a unit of the column, and the unit in words.

    Raises
    ------
    InputError
        When whole numbers from 0 on could be seconds or milliseconds.
    """
    if dates:
        return 1.0, "date and time"
    if (unit := _unit(column)) is not None:
        return UNITS[unit], unit.removeprefix("_")
    least = float(values.min(initial=np.inf))
    for bound, scale in UNIX:
        if bound <= least < np.inf:
            return scale, {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}[scale]
    if bool(np.any(values != np.floor(values))) or len(values) < 2:
        return 1.0, "s"
    raise InputError(
        f"{path}: column {column} holds whole numbers and does not name their unit, but arrival_s, arrival_ms or "
        "arrival_us was expected as its name"
    )


def _detect(head: Head) -> bool:
    return all(_candidates(head.columns, kind) for kind in ("arrival", "prompt", "output"))


FORMAT = Format("named", "CSV with other names", (), _detect, read)
