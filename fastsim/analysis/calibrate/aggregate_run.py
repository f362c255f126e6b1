"""Results that hold only means and percentiles, one a load, as a calibration takes them: a recipe and its figures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.analysis.measured.read import read_results
from fastsim.analysis.measured.result import THROUGHPUT, MeasuredLengths, MeasuredLoad
from fastsim.config import Config, WorkloadConfig, load_spec
from fastsim.config.derived import with_values
from fastsim.engines import check_ability
from fastsim.errors import InputError
from fastsim.metrics import FLOAT_COLUMNS
from fastsim.workload import Workload, build_workload
from fastsim.workload.workload import Int32Array

FITTED = ("ttft", "tpot", "itl", "e2e")
"""Latencies whose figures are fitted, beside the throughput."""


@dataclass(frozen=True)
class LoadLevel:
    """One result.

    Attributes
    ----------
    source
        Its file.
    recipe
        The requests as a description: number, rate, burstiness, lengths.
    lengths
        Prompt and output tokens of each request where they were recorded, int32 arrays; else None.
    figures
        What was measured, by result column: times in ms, and the throughput.
    config
        The settings under which it was measured: those given, and those that the file itself states.
    load
        How requests were sent, in words.
    """

    source: str
    recipe: WorkloadConfig
    lengths: tuple[Int32Array, Int32Array] | None
    figures: dict[str, float]
    config: Config
    load: str

    def workload(self, seed: int) -> Workload:
        """Its requests, drawn anew for each seed."""
        drawn = build_workload(self.recipe.model_copy(update={"seed": seed}))
        if self.lengths is None:
            return drawn
        return Workload.from_arrays(drawn.arrival_us, *self.lengths, concurrency=drawn.concurrency)


@dataclass(frozen=True)
class Levels:
    """Results of one server: the engine's settings, the levels, sentences on what was assumed."""

    config: Config
    levels: tuple[LoadLevel, ...]
    provenance: dict[str, str]
    notes: tuple[str, ...]
    results: tuple[MeasuredLoad, ...] = ()


def read_levels(paths: Sequence[str | Path], sets: Sequence[str] = ()) -> Levels:
    """Read results of one server, one a load.

    Parameters
    ----------
    paths
        Files, or a folder of them (`read_results`).
    sets
        `key=value` settings of the engine that served them, and of what results do not record
        (`workload.prompt.dist`, ...); they win over what a file states.

    Raises
    ------
    InputError
        When a file is no such result, does not say what was sent, or a setting is wrong.
    """
    results = read_results(paths)
    given = load_spec(None, sets).settings
    config = with_values(Config(), given)
    check_ability(config.engine.name, "has_sessions", "calibration runs them thousands of times in one memory")
    notes: dict[str, None] = dict.fromkeys(note for result in results for note in result.notes)
    levels = [_level(result, config, given, notes) for result in results]
    models = {result.provenance.get("model", "") for result in results}
    if len(models) > 1:
        raise InputError(f"results of {', '.join(sorted(models))}, but those of one model were expected")
    if any("SGLang" in result.tool for result in results):
        notes["an SGLang server is simulated by vLLM's rules here: its coefficients take in what differs"] = None
    name = models.pop()
    longest = max(_longest(level) for level in levels)
    if longest > config.engine.max_model_len:
        longer = {"engine.max_model_len": longest}
        config = with_values(config, longer)
        levels = [replace(level, config=with_values(level.config, longer)) for level in levels]
        notes[f"engine.max_model_len is not given: taken as the longest request, {longest}"] = None
    return Levels(config, tuple(levels), {"model": name} if name else {}, tuple(notes), tuple(results))


def _level(result: MeasuredLoad, config: Config, given: dict[str, Any], notes: dict[str, None]) -> LoadLevel:
    if not any(_is_fitted(name) and name != THROUGHPUT for name in result.figures):
        raise InputError(_no_times(result))
    stated = {key: value for key, value in result.engine.items() if key not in given}
    missing = {key: what for key, what in result.missing.items() if not any(_same(key, each) for each in given)}
    if "workload" in missing:
        raise InputError(
            f"{result.source}: {result.tool} does not say {missing['workload']}; run --beside shows it beside a run"
        )
    if missing:
        raise InputError(f"{result.source}: does not say {next(iter(missing.values()))}; that was expected (--set)")
    own = config.workload
    count = int(result.load["workload.num_requests"])
    values = {key: value for key, value in result.load.items() if key not in given}
    lengths = result.pairs
    drawn: list[Int32Array | None] = []
    for seed, (name, each) in enumerate((("prompt", result.prompt), ("output", result.output))):
        declared = getattr(own, name).dist is not None
        drawn.append(None if declared else each.drawn(count, seed))
        if not declared and lengths is None:
            values |= _constant(result, name, each, notes, spread=drawn[-1] is not None)
        elif not declared:
            values |= {f"workload.{name}.dist": "constant", f"workload.{name}.mean": 1.0}
    if lengths is None and drawn[0] is not None and drawn[1] is not None:
        lengths = (drawn[0], drawn[1])
        notes["lengths are drawn from their recorded percentiles, prompts and outputs apart"] = None
    figures = {name: value for name, value in result.figures.items() if _is_fitted(name)}
    return LoadLevel(
        source=result.source,
        recipe=with_values(Config(workload=own), values).workload,
        lengths=lengths,
        figures=figures,
        config=with_values(config, stated) if stated else config,
        load=result.load_in_words,
    )


def _no_times(result: MeasuredLoad) -> str:
    """Why nothing can be fitted, and what to do about it."""
    expected = "means or percentiles of TTFT, TPOT, ITL or E2E were expected"
    if result.tool == "guidellm":
        return (
            f"{result.source}: stores no requests and no times, but {expected}: guidellm stores every request without "
            "--sample-requests"
        )
    if "workload" in result.missing:
        return (
            f"{result.source}: {result.tool} does not hold times to fit, but {expected}; --from-log takes a log's pool "
            "for another run"
        )
    return f"{result.source}: has no times to fit, but {expected}"


def _same(key: str, given: str) -> bool:
    """Whether a given key answers a missing one: arrivals may be given in several ways."""
    arrivals = ("workload.arrival.", "workload.concurrency", "workload.trace")
    return key == given or (key.startswith(arrivals[0]) and given.startswith(arrivals))


def _constant(
    result: MeasuredLoad, name: str, lengths: MeasuredLengths, notes: dict[str, None], *, spread: bool
) -> dict[str, Any]:
    """Lengths that are all alike, as the mean is all that is known."""
    if lengths.mean is None:
        raise InputError(
            f"{result.source}: does not say how long {name}s were, but workload.{name}.dist and workload.{name}.mean "
            "were expected then (--set KEY=VALUE)"
        )
    if not spread:
        notes[
            f"{name} lengths are not recorded: all are taken as their mean, unless workload.{name}.dist says otherwise"
        ] = None
    return {f"workload.{name}.dist": "constant", f"workload.{name}.mean": max(lengths.mean, 1.0)}


def _is_fitted(column: str) -> bool:
    return column == THROUGHPUT or (column.partition("_")[0] in FITTED and column in FLOAT_COLUMNS)


def _longest(level: LoadLevel) -> int:
    workload = level.workload(0)
    return int((workload.prompt_tokens.astype(np.int64) + workload.output_tokens).max())
