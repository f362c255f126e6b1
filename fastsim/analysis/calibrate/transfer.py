"""A calibration carried to other hardware: what the run's GPU made of its data sheet, term by term, the next may too.

Kernels are carried by the ratio of what was fitted to what the presets say of the run's own hardware; the host's time,
which the GPU does not change, as it is. The pool is that of the new data sheet. How far this can be wrong is not known
from one run: the range spans the new data sheet alone and the carried terms, each with slower and with faster steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsim.analysis.calibrate.calibrate import Calibration
from fastsim.analysis.calibrate.prior import COEFFICIENTS, FRONTEND, PREFILL_STEP, SCALE, preset_of
from fastsim.config import Config, check_rules, with_values
from fastsim.engines import server_of
from fastsim.errors import InputError
from fastsim.presets import Estimate, deployed_on, estimate, load_gpu, load_model
from fastsim.simulation import simulate

STEP_ERROR = 0.15
"""Of step times from tables and data sheets, nine times in ten (`benchmarks accuracy`)."""
SCALED_TERMS = (
    *COEFFICIENTS,
    "b4_us_per_prefill_pair",
    PREFILL_STEP,
    "b6_us_per_window_token",
    SCALE,
)
STEEP = 3.0
"""A time that changes so many times as much as the steps do is mostly queue."""


@dataclass(frozen=True)
class Means:
    """Mean times of the run's requests, in milliseconds; None where nobody got there."""

    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None

    @classmethod
    def of(cls, config: Config, calibration: Calibration) -> "Means":
        """Of the run's requests under a configuration."""
        row = simulate(config, calibration.run.workload).metrics
        return cls(*(row[f"{name}_served_mean_ms"] for name in ("ttft", "tpot", "e2e")))


@dataclass(frozen=True)
class Transfer:
    """A calibration on other hardware.

    Attributes
    ----------
    name
        `llama-3.1-8b on rtx-pro-6000`.
    config
        The run's settings with the carried step times and the pool of the new data sheet.
    coefficients, ranges
        Terms by name, and from the least to the largest that the data sheet, the ratio and the fit's interval allow.
    ratios
        Fit over the presets' figure for the run's own hardware; 1 for what is carried as it is.
    ways
        The run's requests as each way of carrying has them, by its name.
    low, high
        The range of their means.
    steepness
        How many times as much as step times the mean TTFT changes.
    """

    name: str
    config: Config
    coefficients: dict[str, float]
    ranges: dict[str, tuple[float, float]]
    ratios: dict[str, float]
    ways: dict[str, Means]
    low: Means
    high: Means
    steepness: float | None

    @property
    def notes(self) -> list[str]:
        """What must be known of it."""
        notes = [
            "how another GPU's kernels compare with its data sheet is not known from a run on this one: the range is "
            f"from the data sheet alone to the carried terms, each with steps {STEP_ERROR:.0%} faster and slower"
        ]
        if self.steepness is not None and self.steepness > STEEP:
            notes.append(
                f"1 % of step time moves the mean TTFT by {self.steepness:.1f} %: these requests come about as fast as "
                "they are served, so that TTFT is a queue, the small difference of two large numbers. It cannot be "
                "told from another GPU's run; TPOT and throughput can, and a short run on the new one tells it"
            )
        return notes

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "name": self.name,
            "num_gpu_blocks": self.config.engine.num_gpu_blocks,
            "coefficients": self.coefficients,
            "ranges": {name: list(pair) for name, pair in self.ranges.items()},
            "ratios": self.ratios,
            "ways": {name: vars(means) for name, means in self.ways.items()},
            "range": {name: [getattr(self.low, name), getattr(self.high, name)] for name in vars(self.low)},
            "ttft_steepness": self.steepness,
            "notes": self.notes,
        }


def transfer(calibration: Calibration, target: str, model: str | None = None, gpu: str | None = None) -> Transfer:
    """Carry a calibration to `MODEL@GPU`, as `llama-3.1-8b@2xh100`.

    Parameters
    ----------
    calibration
        Of the run.
    target
        Where to.
    model, gpu
        What the run was on, where it does not say so itself.

    Raises
    ------
    InputError
        When the target is none, or does not fit; when it is not known what the run was on.
    """
    run = calibration.run
    own, why = preset_of(run.provenance, run.config, model, gpu)
    if own is None:
        raise InputError(
            f"{run.source}: what it ran on is not known ({why}), but --model and --gpu were expected with --for"
        )
    found, name = _target(target, calibration)
    table = SCALE in calibration.coefficients
    ratios = _ratios(calibration.coefficients, own, table=table)
    sheet = _sheet(found, calibration, table=table)
    carried = {
        term: calibration.coefficients[term] if _is_hosts(term, table=table) else value * ratios[term]
        for term, value in sheet.items()
    }
    base = with_values(
        calibration.config,
        {
            "engine.num_gpu_blocks": found.num_gpu_blocks,
            "engine.max_model_len": min(run.config.engine.max_model_len, found.max_model_len),
        }
        | (_beside(found) if table else {}),
    )
    config = _with_terms(base, carried)
    check_rules(config, f"--for {target}")
    unchanged = _with_terms(
        with_values(calibration.config, {"engine.num_gpu_blocks": found.num_gpu_blocks}), calibration.coefficients
    )
    ways = {
        "data sheet": Means.of(_with_terms(base, sheet), calibration),
        "carried": Means.of(config, calibration),
        "the run's GPU, this pool": Means.of(unchanged, calibration),
    }
    slow, fast = ([_slower(each, factor) for each in (_with_terms(base, sheet), config)] for factor in _FACTORS)
    bounds = [Means.of(each, calibration) for each in (*slow, *fast)]
    return Transfer(
        name,
        config,
        {term: float(f"{value:.6g}") for term, value in carried.items()},
        {term: _range(term, sheet, carried, calibration, ratios) for term in carried},
        ratios,
        ways,
        *_bounds([*bounds, ways["data sheet"], ways["carried"]]),
        _steepness(bounds[1].ttft_ms, bounds[3].ttft_ms),
    )


_FACTORS = (1 + STEP_ERROR, 1 - STEP_ERROR)


def _target(target: str, calibration: Calibration) -> tuple[Estimate, str]:
    model, at, gpu = target.partition("@")
    if not (model and at and gpu):
        raise InputError(
            f"--for {target}, but MODEL@GPU was expected, such as llama-3.1-8b@h100 or llama-3.1-70b@4xh100"
        )
    gpu, plan = deployed_on(gpu, {})
    engine = calibration.config.engine
    gpus = plan.get("tensor_parallel", 1)
    sheet = load_gpu(gpu)
    plan = server_of(engine.name).of_gpu(_release(calibration), sheet.name, sheet.memory_bytes, gpus).deployment | plan
    found = estimate(
        load_model(model),
        sheet,
        block_size=engine.block_size,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        **plan,
    )
    return found, f"{model} on {f'{gpus} x ' if gpus > 1 else ''}{gpu}"


def _release(calibration: Calibration) -> str | None:
    """The release of the server that ran, by which it takes its share of the memory; None: not known."""
    version = calibration.run.release
    of_release = server_of(calibration.config.engine.name).of_release
    if version is None or of_release is None:
        return None
    try:
        of_release(version)
    except InputError:  # a build between releases
        return None
    return version


def _is_hosts(term: str, *, table: bool) -> bool:
    """Whether a term is the host's or the client's, which another GPU does not change."""
    return term == FRONTEND or (table and term in ("b0_us", PREFILL_STEP, SCALE))


def _ratios(fitted: Mapping[str, float], own: Estimate, *, table: bool) -> dict[str, float]:
    """Fit over the presets' figure for the same hardware; a term that these do not have is carried as it is."""
    if table:
        return {name: value if name == SCALE else 1.0 for name, value in fitted.items() if name in SCALED_TERMS}
    known = {name: getattr(own, name) for name in COEFFICIENTS}
    return {name: fitted[name] / known[name] if known[name] > 0 else 1.0 for name in COEFFICIENTS}


def _sheet(found: Estimate, calibration: Calibration, *, table: bool) -> dict[str, float]:
    """The fitted terms as the new hardware's presets have them."""
    if table:
        assert found.step_times is not None  # presets always have a table, unless linear is asked for
        values = found.step_times.values
        terms = {SCALE: 1.0, "b0_us": values["b0_us"], PREFILL_STEP: values[PREFILL_STEP]}
    else:
        terms = {name: getattr(found, name) for name in COEFFICIENTS}
    if FRONTEND in calibration.coefficients:
        terms[FRONTEND] = calibration.coefficients[FRONTEND]
    return terms


def _beside(found: Estimate) -> dict[str, Any]:
    """The new table and the terms beside it that are not fitted."""
    assert found.step_times is not None
    left = (SCALE, "b0_us", PREFILL_STEP, FRONTEND)
    return {f"latency.{name}": value for name, value in found.step_times.values.items() if name not in left}


def _with_terms(config: Config, terms: Mapping[str, float]) -> Config:
    values = {f"latency.{name}": value for name, value in terms.items() if name != "num_gpu_blocks"}
    return with_values(config, values)


def _slower(config: Config, factor: float) -> Config:
    """The configuration with every part of a step that many times as long."""
    terms = {name: getattr(config.latency, name) for name in SCALED_TERMS if getattr(config.latency, name) is not None}
    if config.latency.table_us is None:
        terms.pop(SCALE, None)
    return _with_terms(config, {name: value * factor for name, value in terms.items()})


def _range(
    term: str,
    sheet: Mapping[str, float],
    carried: Mapping[str, float],
    calibration: Calibration,
    ratios: Mapping[str, float],
) -> tuple[float, float]:
    """From the least to the largest of the data sheet, the carried term, and the fit's interval carried alike."""
    values = [sheet[term], carried[term]]
    fitted = calibration.coefficients[term]
    if (interval := calibration.intervals.get(term)) is not None and fitted > 0:
        values += [carried[term] * end / fitted for end in interval]
    return float(f"{min(values):.6g}"), float(f"{max(values):.6g}")


def _bounds(means: list[Means]) -> tuple[Means, Means]:
    def ends(name: str) -> tuple[float | None, float | None]:
        values = [getattr(each, name) for each in means]
        known = [value for value in values if value is not None]
        return (min(known), max(known)) if len(known) == len(values) else (min(known, default=None), None)

    pairs = [ends(name) for name in ("ttft_ms", "tpot_ms", "e2e_ms")]
    return Means(*(low for low, _ in pairs)), Means(*(high for _, high in pairs))


def _steepness(slow_ms: float | None, fast_ms: float | None) -> float | None:
    """By how many percent a time grows when steps grow by one."""
    if not slow_ms or not fast_ms:
        return None
    return float(np.log(slow_ms / fast_ms) / np.log(_FACTORS[0] / _FACTORS[1]))
