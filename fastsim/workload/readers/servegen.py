"""ServeGen's client data: windows of arrival processes and of length distributions, from which requests are drawn.

A client is a `chunk-N-trace.csv` (no header: window start in s, rate, cv, pattern, two parameters) with a
`chunk-N-dataset.json` (window start -> distributions of `input_tokens` and `output_tokens`, written as Python dicts).
Given is a folder of clients, or one client's trace. The first parameter of Gamma and Weibull patterns is the shape.
The gaps of a window are drawn from the pattern and scaled so that the window has its rate.
"""

import csv
import io
import json
import math
import re
from ast import literal_eval
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.model import shown, shown_name
from fastsim.workload.readers.files import MAX_LINE_BYTES, read_text
from fastsim.workload.readers.table import Floats, microseconds
from fastsim.workload.synthetic import choices
from fastsim.workload.trace import Format, Head, Trace, Window, noted
from fastsim.workload.workload import INT32_MAX, Report

STREAM = 12
"""Seed word of the stream."""
CLIENT = re.compile(r"^chunk-(\d+)-trace\.csv$")
WINDOW_S = 600.0
"""Length of a client's last window; the others end where the next begins."""
PATTERNS = ("", "Poisson", "Exponential", "Gamma", "Weibull")
MOST_REQUESTS = 10**7


@dataclass(frozen=True)
class Arrivals:
    """One window of a client: requests per second from `start_s` to `end_s`, gaps of a pattern."""

    start_s: float
    end_s: float
    rate_per_s: float
    pattern: str
    shape: float


@dataclass(frozen=True)
class Pdf:
    """A distribution of token counts."""

    values: Floats
    weights: Floats


@dataclass(frozen=True)
class LengthHistograms:
    """Length distributions from `start_s` on."""

    start_s: float
    prompt: Pdf
    output: Pdf


def draw(path: Path, seed: int, window: Window) -> Trace:
    """Draw the requests of all clients inside the window.

    Raises
    ------
    InputError
        When files are not in this format, or no client has lengths.
    """
    files = sorted(_clients(path).items())
    if not files:
        raise InputError(f"{path}: has no chunk-N-trace.csv, but ServeGen's clients were expected")
    without = [number for number, file in files if _dataset(file) is None]
    if len(without) == len(files):
        raise InputError(f"{files[0][1]}: has no dataset beside it, but {_dataset_name(files[0][1])} was expected")
    parts: list[tuple[Floats, Floats, Floats]] = []
    total = 0
    for number, file in files:
        dataset = _dataset(file)
        if dataset is None:
            continue
        rng = np.random.default_rng([seed, STREAM, number])
        lengths = _read_lengths(dataset)
        for arrivals in _read_arrivals(file):
            wanted = arrivals.rate_per_s * (arrivals.end_s - arrivals.start_s) if _overlap(arrivals, window) else 0.0
            if total + wanted > MOST_REQUESTS:
                raise InputError(f"{path}: makes more than {MOST_REQUESTS} requests, but a smaller window was expected")
            parts.append(_requests(arrivals, lengths, window, rng))
            total += len(parts[-1][0])
    if total == 0:
        raise InputError(f"{path}: no client sends a request in the window, but at least one was expected")
    time_s, prompt, output = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(time_s, kind="stable")  # clients send at the same time
    trace = Trace(
        str(path),
        FORMAT.name,
        microseconds(time_s[order] - window.start_s),
        prompt[order].astype(np.int32),
        output[order].astype(np.int32),
        Report(total, total),
    )
    notes = [f"{len(without)} of {len(files)} clients have no dataset of lengths and send nothing"] if without else []
    return noted(trace, *notes)


def _clients(path: Path) -> dict[int, Path]:
    files = path.iterdir() if path.is_dir() else [path]
    return {int(match[1]): file for file in files if (match := CLIENT.match(file.name))}


def _dataset_name(file: Path) -> str:
    return file.name.replace("-trace.csv", "-dataset.json")


def _dataset(file: Path) -> Path | None:
    """The dataset of a client; names with a suffix before .json are taken too."""
    stem = _dataset_name(file).removesuffix(".json")
    return next(iter(sorted(file.parent.glob(f"{stem}*.json"))), None)


def _read_arrivals(file: Path) -> list[Arrivals]:
    try:
        text = read_text(file, "ServeGen's windows", MAX_LINE_BYTES)
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise InputError(f"{file}: cannot be read ({error}), but ServeGen's windows were expected") from None
    starts = [_window_number(file, index, row, 0) for index, row in enumerate(rows)]
    if starts != sorted(set(starts)):
        raise InputError(f"{file}: windows do not start one after the other, but ascending starts were expected")
    found = []
    for index, row in enumerate(rows):
        pattern = row[3].strip() if len(row) > 3 else ""
        if pattern not in PATTERNS:
            raise InputError(
                f"{file}: row {index + 1} has the pattern {shown(pattern)}, "
                "but one of Gamma, Weibull, Poisson was expected"
            )
        rate = _window_number(file, index, row, 1)
        shaped = pattern in ("Gamma", "Weibull")
        shape = _window_number(file, index, row, 4) if shaped else 1.0
        if rate < 0 or (shaped and rate > 0 and not 0.01 <= shape <= 1e6):
            raise InputError(
                f"{file}: row {index + 1} has rate {rate:g} and shape {shape:g}, but a rate of at least 0 and a shape "
                "from 0.01 to 1e6 were expected"
            )
        end = starts[index + 1] if index + 1 < len(rows) else starts[index] + WINDOW_S
        if rate > 0:
            found.append(Arrivals(starts[index], end, rate, pattern, shape))
    return found


def _window_number(file: Path, index: int, row: list[str], column: int) -> float:
    text = row[column] if column < len(row) else ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{file}: row {index + 1} has {shown(text)} in column {column + 1}, but a number was expected")
    return value


def _read_lengths(file: Path) -> list[LengthHistograms]:
    try:
        document = json.loads(read_text(file, "ServeGen's distributions"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not readable JSON ({error}), but ServeGen's distributions were expected") from None
    if not isinstance(document, dict) or not document:
        raise InputError(f"{file}: has no windows, but ServeGen's distributions by window were expected")
    try:
        found = [
            LengthHistograms(
                float(start), _pdf(file, start, entry, "input_tokens"), _pdf(file, start, entry, "output_tokens")
            )
            for start, entry in document.items()
        ]
    except ValueError:
        raise InputError(f"{file}: a window starts at no number, but seconds were expected") from None
    return sorted(found, key=lambda item: item.start_s)


def _pdf(file: Path, start: str, entry: Any, key: str) -> Pdf:
    """A distribution written as a Python dict in a string (or as a JSON object)."""
    raw = entry.get(key) if isinstance(entry, dict) else None
    try:
        pairs: Any = literal_eval(raw) if isinstance(raw, str) else raw
        values = np.array([float(value) for value in pairs], np.float64)
        weights = np.array([float(weight) for weight in pairs.values()], np.float64)
    except (ValueError, TypeError, SyntaxError, AttributeError, OverflowError, RecursionError, MemoryError):
        values = weights = np.zeros(0)
    usable = (values >= 1) & (values <= INT32_MAX) & (weights > 0) & np.isfinite(weights)
    if not usable.any():
        raise InputError(
            f"{file}: window {shown_name(start)} has no usable {key}, but token counts with weights were expected"
        )
    return Pdf(values[usable], weights[usable])


def _requests(
    arrivals: Arrivals, lengths: list[LengthHistograms], window: Window, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Times, prompts and outputs of one window; every window draws alike, whatever part of it is wanted."""
    seed = rng.integers(2**63)
    if not _overlap(arrivals, window):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    own = np.random.default_rng(seed)
    span = arrivals.end_s - arrivals.start_s
    count = math.floor(arrivals.rate_per_s * span + own.random())
    match arrivals.pattern:
        case "Gamma":
            gaps = own.standard_gamma(arrivals.shape, count + 1)
        case "Weibull":
            gaps = own.weibull(arrivals.shape, count + 1)
        case _:
            gaps = own.standard_exponential(count + 1)
    times = np.cumsum(gaps)
    time_s = arrivals.start_s + span * times[:-1] / times[-1] if times[-1] > 0 else np.full(count, arrivals.start_s)
    current = lengths[max(bisect_right([item.start_s for item in lengths], arrivals.start_s) - 1, 0)]
    prompt = current.prompt.values[choices(current.prompt.weights, own.random(count))]
    output = current.output.values[choices(current.output.weights, own.random(count))]
    inside = time_s >= window.start_s
    if window.end_s is not None:
        inside &= time_s < window.end_s
    return time_s[inside], prompt[inside], output[inside]


def _overlap(arrivals: Arrivals, window: Window) -> bool:
    return arrivals.end_s > window.start_s and (window.end_s is None or arrivals.start_s < window.end_s)


def _detect(head: Head) -> bool:
    return bool(_clients(head.path))


FORMAT = Format("servegen", "ServeGen folder", (), _detect, draw=draw)
