"""Whatever summary of a measurement a file or a folder holds."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fastsim.analysis.measured import aiperf, console, engine_log, guidellm, inference_perf, prometheus, vllm_bench
from fastsim.analysis.measured.result import MeasuredLoad, name_of
from fastsim.errors import InputError
from fastsim.workload.readers.files import read_text

KINDS = (
    "vllm bench serve --save-result, vllm bench sweep, SGLang's bench_serving, AIPerf, guidellm, inference-perf's "
    "lifecycle metrics, the console's table, vLLM's log or /metrics"
)
OBJECTS: tuple[tuple[Callable[[Any], bool], Callable[[str, Any], MeasuredLoad]], ...] = (
    (vllm_bench.is_result, vllm_bench.read),
    (aiperf.is_result, aiperf.read),
    (inference_perf.is_result, inference_perf.read),
)
TEXTS: tuple[tuple[Callable[[str], bool], Callable[[str, str], MeasuredLoad]], ...] = (
    (console.is_result, console.read),
    (engine_log.is_result, engine_log.read),
    (prometheus.is_result, prometheus.read),
)


def result_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files of the arguments; of a folder all results below it, in order of their names, without its summaries."""
    found: list[Path] = []
    for each in map(Path, paths):
        if not each.is_dir():
            found.append(each)
            continue
        below = sorted(path for pattern in ("*.json", "*.jsonl") for path in each.rglob(pattern) if path.is_file())
        runs = [path for path in below if path.name.startswith("run=")]
        found += runs or [path for path in below if path.name not in ("meta.json", "summary.json")] or below
    return found


def is_summary(paths: Sequence[str | Path]) -> bool:
    """Whether the arguments are results without per-request times: several files, or one that holds only figures."""
    first = Path(paths[0])
    if len(paths) > 1:
        return True
    if first.is_dir():
        return not (first / "requests.jsonl").is_file() and bool(result_files(paths))
    if not first.is_file():
        return False
    try:
        parts = list(_parts(first))
    except InputError:
        return False
    if any(_has_requests(document) for _, document in parts):
        return False
    return bool(parts)


def read_results(paths: Sequence[str | Path]) -> list[MeasuredLoad]:
    """Read the results of files and folders.

    Raises
    ------
    InputError
        When a file is none, or holds neither figures nor settings.
    """
    files = result_files(paths)
    if not files:
        raise InputError(f"{paths[0]}: a folder without *.json or *.jsonl, but results were expected: {KINDS}")
    results = []
    for file in files:
        parts = list(_parts(file))
        if not parts:
            raise InputError(f"{file}: not a result that is known, but one of these was expected: {KINDS}")
        for source, document in parts:
            result = _result(source, document)
            if not result.figures and not result.engine:
                raise InputError(_nothing(file, document))
            results.append(result)
    return results


def _parts(file: Path) -> Iterable[tuple[str, Any]]:
    """The results in a file, each with its name: objects of known tools, or the whole text."""
    text = read_text(file, "a result")
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        documents = _lines(text)
    if len(documents) == 1 and isinstance(documents[0], list):
        documents = documents[0]
    if documents:
        many = len(documents) > 1
        for index, document in enumerate(documents):
            part = f"[{index}]" if many else ""
            if guidellm.is_result(document):
                benchmarks = document["benchmarks"]
                for k, benchmark in enumerate(benchmarks):
                    yield name_of(file, f"[{k}]" if len(benchmarks) > 1 else part), benchmark
            elif any(known(document) for known, _ in OBJECTS):
                yield name_of(file, part), document
        return
    if console.is_result(text):
        tables = console.tables(text)
        yield from ((name_of(file, f"[{k}]" if len(tables) > 1 else ""), table) for k, table in enumerate(tables))
    elif any(known(text) for known, _ in TEXTS):
        yield name_of(file), text


def _lines(text: str) -> list[Any]:
    """Objects of JSON lines; none if any line is something else."""
    documents = []
    for line in text.splitlines():
        if line.strip():
            try:
                documents.append(json.loads(line))
            except (ValueError, RecursionError):
                return []
    return documents


def _result(source: str, document: Any) -> MeasuredLoad:
    if isinstance(document, str):
        return next(read for known, read in TEXTS if known(document))(source, document)
    for known, read in OBJECTS:
        if known(document):
            return read(source, document)
    return guidellm.read(source, document)


def _has_requests(document: Any) -> bool:
    """Whether a result holds all its requests one by one, so that it is read as a trace."""
    if not isinstance(document, dict):
        return False
    if vllm_bench.is_result(document):
        return bool(document.get("ttfts"))
    stored, made = guidellm.stored_and_made(document)
    return stored > 0 and (made is None or stored >= made)


def _nothing(file: Path, document: Any) -> str:
    """Why there is nothing to use, and what to do about it."""
    if isinstance(document, dict) and "requests" in document:
        stored, made = guidellm.stored_and_made(document)
        total = "" if made is None else f" of {made}"
        return (
            f"{file}: stores {stored}{total} requests and no percentiles, but all requests or percentiles were "
            "expected: guidellm stores every request unless --sample-requests says otherwise"
        )
    return f"{file}: holds no times and no settings, but percentiles, or the pool of an engine, were expected"
