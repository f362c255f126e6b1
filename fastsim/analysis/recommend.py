"""`fastsim.recommend`: the settings that meet an SLO with the most goodput, why those, and what happens at the edge."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from fastsim.analysis.evaluate import Evaluator
from fastsim.analysis.loads import LoadPlan
from fastsim.analysis.recommend_flags import kv_safe_num_seqs, serve_flags
from fastsim.analysis.recommend_hardware import hardware_of
from fastsim.analysis.recommend_rate import MaxRate, Replicas, max_rate, min_replicas
from fastsim.analysis.recommend_search import Search
from fastsim.analysis.recommend_slo import Interval, Outlook, Term, slo_terms
from fastsim.analysis.recommend_space import BLOCKS, SEQS, TOKENS, Point, Space, space_of
from fastsim.analysis.recommend_trials import FRESH, Traffic, Trials
from fastsim.analysis.recommend_why import Alternative, Relief, alternatives, reliefs
from fastsim.config import Config, Spec, check_rules, load_spec
from fastsim.config.spec import Layer
from fastsim.errors import InputError
from fastsim.runner import available_cores

CONFIRMED = 3
"""So many of the best settings get the fresh seeds."""
RISKS = (
    ("as given", 1.0, 1.0),
    ("1.2 times the traffic", 1.2, 1.0),
    ("1.5 times the traffic", 1.5, 1.0),
    ("outputs 1.25 times as long", 1.0, 1.25),
    ("outputs 1.5 times as long", 1.0, 1.5),
)


@dataclass(frozen=True)
class Option:
    """A setting with its outlook over the fresh seeds: its keys, what its axes show, all of its configuration."""

    settings: dict[str, Any]
    labels: dict[str, Any]
    config: Config
    outlook: Outlook

    @property
    def numbers(self) -> tuple[int, int]:
        """max_num_seqs and max_num_batched_tokens."""
        return self.config.engine.max_num_seqs, self.config.engine.max_num_batched_tokens

    def gain_over(self, other: "Option") -> Interval:
        """Goodput of this one less the other's, seed by seed, relative to the other's mean."""
        base = float(other.outlook.goodput.mean())
        difference = self.outlook.goodput - other.outlook.goodput
        return Interval.of(difference / base if base > 0 else np.full(len(difference), np.nan))

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"settings": self.labels, BLOCKS: self.config.engine.num_gpu_blocks} | self.outlook.to_json()


@dataclass(frozen=True)
class Recommendation:
    """What is recommended, and why.

    Attributes
    ----------
    best
        The setting: of those that meet the SLO the one with the most goodput, else the one that comes nearest.
    terms
        Of the SLO; none: the most requests per second.
    runner_up, current, kv_safe
        The next best; the spec's own two numbers; the most requests that can never preempt. None: the best itself,
        or there is none.
    kv_safe_num_seqs
        That most.
    risks
        Name and outlook of the best under other loads.
    alternatives, reliefs
        What other values of the two numbers, and more of each resource, would do.
    rate
        Of `--max-rate`.
    replicas
        Of `--min-gpus`.
    grid_size, runs, search_runs, seconds
        Settings there are; simulations in all, and for the search alone; how long it took.
    notes
        Sentences on what was assumed or left out.
    """

    best: Option
    terms: tuple[Term, ...]
    runner_up: Option | None
    current: Option | None
    kv_safe: Option | None
    kv_safe_num_seqs: int
    risks: list[tuple[str, Outlook]]
    alternatives: list[Alternative]
    reliefs: list[Relief]
    seeds: int
    traffic: Traffic
    grid_size: int
    runs: int
    search_runs: int
    seconds: float
    rate: MaxRate | None = None
    replicas: Replicas | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def meets(self) -> bool:
        """Whether any setting that was tried meets the SLO."""
        return self.best.outlook.meets

    @property
    def flags(self) -> str:
        """The command line's flags for `vllm serve`."""
        seqs, tokens = self.best.numbers
        flags, _ = serve_flags({SEQS: seqs, TOKENS: tokens} | self.best.settings)
        return " ".join(flags)

    @property
    def binding(self) -> Relief | None:
        """The resource of which more would help most; None when none would by a percent."""
        helpful = [relief for relief in self.reliefs if relief.helps]
        return max(helpful, key=lambda relief: relief.gain, default=None)

    def to_json(self, price: float | None = None) -> dict[str, Any]:
        """Everything, ready for JSON; `price` is that of a replica's GPUs for an hour."""
        seqs, tokens = self.best.numbers
        out: dict[str, Any] = {
            "meets_slo": self.meets,
            "max_num_seqs": seqs,
            "max_num_batched_tokens": tokens,
            "vllm_flags": self.flags,
            "slo": [term.text for term in self.terms],
            "best": self.best.to_json(),
            "binding": self.binding.name if self.binding else None,
            "kv_safe_num_seqs": self.kv_safe_num_seqs,
            "risks": {name: outlook.to_json() for name, outlook in self.risks},
            "alternatives": [item.to_json() for item in self.alternatives],
            "reliefs": [item.to_json() for item in self.reliefs],
        }
        for name in ("runner_up", "current", "kv_safe"):
            option = getattr(self, name)
            out[name] = option and option.to_json() | {"best_gains": self.best.gain_over(option).to_json()}
        if price is not None:
            out["cost_per_million_output_tokens"] = cost_per_million(self.best.outlook, price)
        return out | {
            "max_rate": self.rate and self.rate.to_json(),
            "min_gpus": self.replicas and self.replicas.to_json(),
            "seeds": self.seeds,
            "settings_in_grid": self.grid_size,
            "runs": self.runs,
            "search_runs": self.search_runs,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }


def cost_per_million(outlook: Outlook, price_per_hour: float) -> float | None:
    """Price of a million delivered output tokens; None when none are."""
    rate = outlook.means["output_throughput_tok_per_s"]
    return price_per_hour / (rate * 3600) * 1e6 if rate > 0 else None


def recommend(
    spec: str | Path | Spec | None,
    sets: Sequence[str] = (),
    axes: Sequence[str] = (),
    *,
    model: str | None = None,
    gpu: str | None = None,
    percentile: int = 99,
    seeds: int = 8,
    with_max_rate: bool = False,
    with_min_gpus: bool = False,
    workers: int | None = None,
) -> Recommendation:
    """Find the settings that meet an SLO with the most goodput.

    Parameters
    ----------
    spec
        A spec file, or a spec; None: `sets` alone.
    sets
        `key=value` settings on top; one of the two numbers set here is not searched.
    axes
        `key=v1,v2,...` further engine settings to choose from, or other values of the two numbers.
    model, gpu
        Presets that give step times and, for each setting, the KV pool that is left.
    percentile
        Of the SLO's terms: 50, 90, 95 or 99.
    seeds
        Fresh seeds that confirm the answer.
    with_max_rate
        Also find the highest rate that meets the SLO.
    with_min_gpus
        Also find how many replicas a trace needs.
    workers
        Worker processes; by default as many as cores, once that pays.

    Raises
    ------
    InputError
        When the engine is not vLLM's, keys contradict each other, or no setting can serve at all.
    """
    started = perf_counter()
    if seeds < 2:
        raise InputError(f"--seeds {seeds}, but at least 2 were expected: intervals are over seeds")
    read = spec if isinstance(spec, Spec) else load_spec(spec, sets)
    space, hardware_notes = _space(read, axes, model, gpu)
    terms = slo_terms(space.base, percentile)
    traffic = Traffic(space.base.workload)
    with Evaluator(workers=workers or available_cores()) as evaluator:
        trials = Trials(evaluator, terms)
        ask = _Question(space, trials, traffic, range(FRESH, FRESH + seeds))
        answer = ask.answer(with_max_rate=with_max_rate, with_min_gpus=with_min_gpus)
        runs = trials.runs
    notes = (*hardware_notes, *space.notes, *_notes(traffic))
    return Recommendation(**answer, terms=terms, runs=runs, seconds=perf_counter() - started, notes=notes)


def _space(spec: Spec, axes: Sequence[str], model: str | None, gpu: str | None) -> tuple[Space, tuple[str, ...]]:
    """The settings of the spec; on hardware, with what its data sheets give for everything the spec leaves open."""
    hardware = hardware_of(model, gpu, spec.base.engine.block_size)
    notes: tuple[str, ...] = ()
    if hardware is not None:
        engine = spec.base.engine
        given = spec.settings
        found = hardware.settings(engine.max_num_seqs, engine.max_num_batched_tokens)
        missing = {key: value for key, value in found.items() if key not in given}
        if BLOCKS in given:
            hardware = None
        spec = Spec(spec.source, (Layer("--model", Path(), missing), *spec.layers))
        notes = (
            f"step times of {model} on {gpu} are estimated from data sheets; fastsim calibrate fits them to a run",
        )
    space = space_of(spec, axes, hardware)
    check_rules(space.base, spec.source)
    return space, notes


class _Question:
    """One question and the steps to its answer."""

    def __init__(self, space: Space, trials: Trials, traffic: Traffic, fresh: range) -> None:
        self.space = space
        self.trials = trials
        self.traffic = traffic
        self.fresh = fresh

    def answer(self, *, with_max_rate: bool, with_min_gpus: bool) -> dict[str, Any]:
        """The fields of a recommendation that come from simulations."""
        found = Search(self.space, self.trials, self.traffic).run()
        if not found.points:
            fault = self.space.fault(tuple(0 for _ in self.space.sizes))
            raise InputError(f"no setting can be served: {fault}")
        current = {key: self.space.base.value(key) for key in self.space.settings(found.points[0])}
        tried = self._options(found.points[:CONFIRMED])
        tried.sort(key=lambda option: option.outlook.rank, reverse=True)
        best = tried[0]
        now = self._option(current, best)
        # The spec's own numbers may be better than all that was searched: they need not be among its values
        if now is not None and now.outlook.rank > best.outlook.rank:
            tried = [now, *tried]
            best, now = now, None
        safe_seqs = kv_safe_num_seqs(best.config, self._workloads())
        safe = self._option({**best.settings, SEQS: safe_seqs}, best) if safe_seqs >= 1 else None
        few = list(self.fresh)[: max(len(self.fresh) // 2, 2)]
        return {
            "best": best,
            "runner_up": next((option for option in tried if option is not best), None),
            "current": now,
            "kv_safe": safe,
            "kv_safe_num_seqs": safe_seqs,
            "risks": self._risks(best),
            "alternatives": alternatives(self.space, self.trials, self.traffic, best.config, best.settings, few),
            "reliefs": reliefs(self.trials, self.traffic, best.config, few),
            "seeds": len(self.fresh),
            "traffic": self.traffic,
            "grid_size": sum(1 for _ in self.space.points()),
            "search_runs": found.runs,
            **self._capacity(best, with_max_rate, with_min_gpus),
        }

    def _capacity(self, best: Option, with_max_rate: bool, with_min_gpus: bool) -> dict[str, Any]:
        """Highest rate and replicas: when asked for, and when nothing meets the SLO, as what would be needed."""
        asked = (self.space, self.trials, self.traffic, best.config, self.fresh)
        needed = not best.outlook.meets
        has_rate = self.traffic.rate_per_s is not None
        rate = max_rate(*asked) if with_max_rate or (needed and has_rate) else None
        hopeless = needed and has_rate and rate is None
        replicas = min_replicas(*asked) if with_min_gpus or (needed and not hopeless) else None
        return {"rate": rate, "replicas": replicas}

    def _options(self, points: Sequence[Point]) -> list[Option]:
        configs = [self.space.config(point) for point in points]
        outlooks = self.trials.outlooks(configs, self.traffic, self.fresh)
        return [
            Option(self.space.settings(point), self.space.labels(point), config, outlook)
            for point, config, outlook in zip(points, configs, outlooks, strict=True)
        ]

    def _option(self, settings: dict[str, Any], best: Option) -> Option | None:
        """A setting that need not be in the space; None when it is the best itself, or no server starts with it."""
        try:
            config = self.space.with_settings(settings)
            check_rules(config)
        except InputError:
            return None
        if config == best.config:
            return None
        (outlook,) = self.trials.outlooks([config], self.traffic, self.fresh)
        return Option(
            settings, {SEQS: config.engine.max_num_seqs, TOKENS: config.engine.max_num_batched_tokens}, config, outlook
        )

    def _workloads(self) -> Any:
        plan = LoadPlan(kept=1)
        return (plan.build(self.traffic.load(seed)) for seed in (*self.fresh,))

    def _risks(self, best: Option) -> list[tuple[str, Outlook]]:
        return [
            (name, self.trials.outlooks([best.config], self.traffic.scaled(rate, output), self.fresh)[0])
            for name, rate, output in RISKS
        ]


def _notes(traffic: Traffic) -> tuple[str, ...]:
    if traffic.workload.trace is None:
        return ()
    return ("a trace happened once: its other seeds exchange lengths among 64 neighbours, arrival times stay",)
