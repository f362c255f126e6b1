"""Calibration: from one measured run to the latency coefficients that predict the next.

The coefficients are those with which the *simulated* times to first token and end to end repeat the measured ones
best. The whole run is simulated each time, its scheduler included, so that queueing is explained by the scheduler and
not put into the coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastsim.analysis.calibrate.fit import Loss, Simulator, Times, best_of_several
from fastsim.analysis.calibrate.prior import BLOCKS, Prior, has_table, preset_of, prior_of
from fastsim.analysis.calibrate.run import MeasuredRun, read_run
from fastsim.analysis.calibrate.uncertainty import uncertainty
from fastsim.config import Config, check_rules
from fastsim.config.derived import with_values
from fastsim.errors import InputError

Floats = npt.NDArray[np.float64]
NO_BETTER = 0.05
"""A pool without limit that fits no worse than this is as good: the limit was never felt."""
ErrorTable = dict[str, dict[str, float]]

BLOCKS_SPREAD = 4.0
"""A fitted pool lies within this factor of its first estimate."""
LINEAR_BETTER = 0.8
"""Four coefficients are taken instead of a table with three terms where their loss is below this share of its own."""
Form = Literal["auto", "table", "linear"]


@dataclass(frozen=True)
class Calibration:
    """What a calibration found.

    Attributes
    ----------
    coefficients
        Fitted values by name: the keys below `latency.` (and `num_gpu_blocks`, when it was fitted).
    intervals
        90 % interval of each.
    told
        Names of those that the run tells; the others are little more than what was assumed.
    least_blocks
        Where the run never filled its pool, which therefore is not fitted: the blocks that it needed at its peak.
    train, test
        Errors by metric and statistic in percent; `test` is None when nothing was held back.
    config
        The run's settings with the fitted values.
    run, measured, simulated
        The run, its times, and those simulated with the fitted values.
    predictions
        What else the fit says: the run with other pools and rates, with 90 % intervals.
    warnings
        Sentences on coefficients that the run cannot tell.
    notes
        Sentences on what was assumed.
    simulations, seconds
        How many, and how long it all took (compilation excluded).
    """

    coefficients: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    told: tuple[str, ...]
    least_blocks: int | None
    train: ErrorTable
    test: ErrorTable | None
    config: Config
    run: MeasuredRun
    measured: Times
    simulated: Times
    num_train: int
    predictions: list[dict[str, Any]]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    prior: Prior
    simulations: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        return {
            "run": self.run.source,
            "num_requests": self.run.workload.num_requests,
            "num_train": self.num_train,
            "coefficients": self.coefficients,
            "intervals_90": {name: list(pair) for name, pair in self.intervals.items()},
            "told": list(self.told),
            "least_blocks": self.least_blocks,
            "train": self.train,
            **({"test": self.test} if self.test is not None else {}),
            "predictions": self.predictions,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "prior": self.prior.source,
            "engine": {
                key: self.config.value(f"engine.{key}")
                for key in ("name", "num_gpu_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens")
            },
            "simulations": self.simulations,
            "seconds": round(self.seconds, 3),
        }


def calibrate(
    run: MeasuredRun | str | Path,
    sets: Sequence[str] = (),
    *,
    format: str | None = None,  # noqa: A002
    train_fraction: float = 1.0,
    model: str | None = None,
    gpu: str | None = None,
    fit_blocks: bool | None = None,
    fit_frontend: bool | None = None,
    bootstrap: int = 40,
    seed: int = 0,
    form: Form = "auto",
) -> Calibration:
    """Fit the latency coefficients to a measured run.

    Parameters
    ----------
    run
        A run, or the file or folder of one (`read_run`).
    sets
        `key=value` settings of the engine that served it; they win over its meta.json.
    format
        Key of the trace format; none: recognised.
    train_fraction
        Share of the requests, the first in order of arrival, whose times are fitted; the others judge the fit.
    model, gpu
        Names of presets whose roofline the coefficients are weakly pulled to; none: those of meta.json, if known.
    fit_blocks
        Fit `num_gpu_blocks` too. None: if it is not given. A pool that the run never filled is not fitted.
    fit_frontend
        Fit a fixed time outside of the engine (`latency.frontend_us`). None: if the client measured the times.
    bootstrap
        Number of coefficients drawn for the intervals of predictions; 0: no intervals.
    seed
        Of the samples.
    form
        Step times: `table` fits a factor of the table that is known for model and GPU, the host's time and that of a
        step with prefill; `linear` fits four coefficients; `auto` tries both where a table is known.

    Raises
    ------
    InputError
        When the run cannot be used, settings contradict each other, or the fraction leaves too few requests.
    """
    if isinstance(run, str | Path):
        run = read_run(run, sets, format=format)
    blocks = run.config.engine.num_gpu_blocks is None if fit_blocks is None else fit_blocks
    frontend = not run.engine_clock if fit_frontend is None else fit_frontend
    train = _train_mask(run, train_fraction)
    task = _Task(run, train, model, gpu, blocks, frontend, seed)
    tabled = form != "linear" and has_table(run.provenance, run.config, model, gpu)
    if form == "table" and not tabled:
        raise InputError(f"{run.source}: no table of step times is known for what ran, but --model and --gpu with one")
    started = perf_counter()
    fits = [_fitted(task, table=table) for table in (True, False) if (tabled if table else form != "table")]
    best = fits[0] if len(fits) == 1 or fits[1].misfit >= LINEAR_BETTER * fits[0].misfit else fits[1]
    parameters = np.exp(best.logs)
    run, prior = best.run, best.prior
    simulated = best.simulate(parameters)
    doubts = uncertainty(
        run,
        best.simulate,
        best.loss.measured,
        train,
        prior,
        best.loss.misfit,
        best.logs,
        bootstrap,
        seed,
        pools=best.pools,
    )
    coefficients = {name: _rounded(name, value) for name, value in zip(prior.names, parameters.tolist(), strict=True)}
    return Calibration(
        coefficients=coefficients,
        intervals=doubts.intervals,
        told=doubts.told,
        least_blocks=best.least_blocks,
        train=error_table(simulated, best.loss.measured, train),
        test=error_table(simulated, best.loss.measured, ~train) if not train.all() else None,
        config=with_values(run.config, _keys(coefficients) | ({} if best.pools else {"engine.num_gpu_blocks": None})),
        run=run,
        measured=best.loss.measured,
        simulated=simulated,
        num_train=int(np.count_nonzero(train)),
        predictions=doubts.predictions,
        warnings=(*best.pool_note, *doubts.warnings),
        notes=(*run.notes, *_notes(run, prior, frontend), *_forms(fits, best)),
        prior=prior,
        simulations=sum(each.simulate.count for each in fits) + doubts.simulations,
        seconds=perf_counter() - started,
    )


@dataclass(frozen=True)
class _Task:
    """What both forms of step times are fitted to."""

    run: MeasuredRun
    train: npt.NDArray[np.bool_]
    model: str | None
    gpu: str | None
    blocks: bool
    frontend: bool
    seed: int


@dataclass(frozen=True)
class _Fit:
    """One form of step times with the log parameters that repeat a run best."""

    run: MeasuredRun
    prior: Prior
    simulate: Simulator
    loss: Loss
    logs: Floats
    misfit: float
    """The loss without the prior's pull."""
    least_blocks: int | None
    pools: bool
    pool_note: tuple[str, ...]


def _fitted(task: _Task, *, table: bool) -> _Fit:
    """Fit a table with its terms, or four coefficients."""
    run, train = task.run, task.train
    known = replace(run, ttft_us=np.where(train, run.ttft_us, np.nan), e2e_us=np.where(train, run.e2e_us, np.nan))

    def prior_with(blocks: bool) -> Prior:
        return prior_of(known, task.model, task.gpu, frontend=task.frontend, blocks=blocks, table=table)

    prior = prior_with(task.blocks)
    run = replace(run, config=with_values(run.config, prior.fixed))
    if run.config.engine.num_gpu_blocks is None:
        start = round(prior.centre[prior.names.index(BLOCKS)])
        run = replace(run, config=with_values(run.config, {"engine.num_gpu_blocks": max(start, 2)}))
    check_rules(run.config, run.source)
    _check_servable(run)

    assert run.config.engine.num_gpu_blocks is not None
    most = round(run.config.engine.num_gpu_blocks * BLOCKS_SPREAD) if task.blocks else None
    simulate = Simulator(run, prior.names, most)
    measured = Times.of(run.ttft_us, run.e2e_us, run.workload)
    loss = Loss(simulate, measured, train, prior)
    logs, _ = best_of_several(loss, prior, task.seed)
    least_blocks, pools = None, True
    note: tuple[str, ...] = ()
    if task.blocks and (peak := _never_filled(simulate, loss, logs)) is not None:
        least_blocks, known_blocks = peak, _data_sheet_blocks(known, task.model, task.gpu)
        pools = known_blocks is not None and known_blocks >= peak
        note = (_pool_sentence(peak, known_blocks if pools else None),)
        pool = known_blocks if known_blocks is not None and pools else most or 2
        run = replace(run, config=with_values(run.config, {"engine.num_gpu_blocks": pool}))
        prior = prior_with(blocks=False)
        simulate = Simulator(run, prior.names)
        loss = Loss(simulate, measured, train, prior)
        logs, _ = best_of_several(loss, prior, task.seed)
    return _Fit(run, prior, simulate, loss, logs, loss.data(logs), least_blocks, pools, note)


def _forms(fits: Sequence[_Fit], best: _Fit) -> list[str]:
    """Which form of step times was taken, where two were tried."""
    if len(fits) == 1:
        return []
    table, linear = (f"{100 * np.sqrt(each.misfit):.2f} %" for each in fits)
    taken = "the table is" if best is fits[0] else "the four coefficients are"
    return [
        f"step times: a factor of the table, the host's time and that of a step with prefill miss the run by {table}, "
        f"four linear coefficients by {linear}: {taken} taken"
    ]


def _never_filled(simulate: Simulator, loss: Loss, logs: Floats) -> int | None:
    """The blocks that a run needed, if one with as many as it likes repeats the times as well; else None."""
    index = simulate.names.index(BLOCKS)
    fitted = loss.data(logs)
    unlimited = logs.copy()
    unlimited[index] = logs[index] + np.log(BLOCKS_SPREAD)
    if loss.data(unlimited) > fitted * (1 + NO_BETTER):
        return None
    return simulate.kv_peak_blocks


def _data_sheet_blocks(run: MeasuredRun, model: str | None, gpu: str | None) -> int | None:
    """The pool that data sheets give for what ran, if model and GPU are known."""
    preset, _ = preset_of(run.provenance, run.config, model, gpu)
    return None if preset is None else preset.num_gpu_blocks


def _pool_sentence(peak: int, known: int | None) -> str:
    first = f"the run never filled its KV cache, which therefore is not fitted: at least {peak:,} blocks"
    if known is not None:
        return f"{first}; {known:,} as estimated from data sheets are taken"
    return f"{first}; give engine.num_gpu_blocks (vLLM's log says it, --from-log) to ask about load or memory"


def error_table(simulated: Times, measured: Times, mask: npt.NDArray[np.bool_]) -> ErrorTable:
    """Errors of means and percentiles in percent, by metric; only requests with a measured time count."""
    table: ErrorTable = {}
    for (name, found), (_, true) in zip(simulated.named(), measured.named(), strict=True):
        use = mask & np.isfinite(true)
        if not use.any():
            continue
        errors = {"mean_error_pct": _percent(float(found[use].mean()), float(true[use].mean()))}
        for percentile in (50, 90, 99):
            pair = (float(np.percentile(values[use], percentile)) for values in (found, true))
            errors[f"p{percentile}_error_pct"] = _percent(*pair)
        table[name] = errors
    return table


def _percent(found: float, true: float) -> float:
    return round(100 * (found / true - 1), 4) if true > 0 else float("nan")


def _train_mask(run: MeasuredRun, fraction: float) -> npt.NDArray[np.bool_]:
    count = run.workload.num_requests
    if not 0 < fraction <= 1:
        raise InputError(f"train_fraction = {fraction:g}, but a share above 0 and up to 1 was expected")
    first = int(np.ceil(fraction * count))
    train = np.zeros(count, bool)
    train[run.workload.arrival_order()[:first]] = True
    usable = np.isfinite(run.ttft_us) & np.isfinite(run.e2e_us)
    if np.count_nonzero(train & usable) < 10:
        raise InputError(
            f"train_fraction = {fraction:g} leaves {np.count_nonzero(train & usable)} measured requests, "
            "but at least 10 were expected"
        )
    return train


def _check_servable(run: MeasuredRun) -> None:
    """A measured request was served: settings under which it could never be are wrong."""
    engine = run.config.engine
    total = run.workload.prompt_tokens.astype(np.int64) + run.workload.output_tokens - 1
    worst = int(total.argmax())
    most = min(engine.usable_blocks * engine.block_size, engine.max_model_len)
    if total[worst] > most:
        raise InputError(
            f"{run.source}: request {worst} has {int(total[worst]) + 1} tokens, which engine.num_gpu_blocks = "
            f"{engine.num_gpu_blocks} and engine.max_model_len = {engine.max_model_len} could not have served, "
            "but the settings of the engine that served it were expected"
        )


def _rounded(name: str, value: float) -> float:
    return float(round(value)) if name == BLOCKS else float(f"{value:.6g}")


def _keys(coefficients: dict[str, float]) -> dict[str, Any]:
    """Fitted values by the keys of a configuration."""
    return {
        ("engine." if name == BLOCKS else "latency.") + name: int(value) if name == BLOCKS else value
        for name, value in coefficients.items()
    }


def _notes(run: MeasuredRun, prior: Prior, frontend: bool) -> list[str]:
    notes = [f"weakly pulled to {prior.source}"]
    if run.engine_clock:
        notes.append("a request arrives when the engine queued it, after tokenisation, on the engine's clock")
    if frontend:
        notes.append("the client measured: a fixed frontend_us is fitted along")
    if run.config.engine.enable_prefix_caching and not (run.workload.prefix_group >= 0).any():
        notes.append("prefix caching is on and the run does not say which prompts share content: none do")
    return notes


__all__ = ["Calibration", "MeasuredRun", "calibrate", "error_table", "read_run"]
