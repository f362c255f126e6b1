"""`fastsim.recommend`: the settings that meet an SLO with the most goodput, why those, and what happens at the edge."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from fastsim.analysis.check.preflight import Fit
from fastsim.analysis.evaluate.evaluate import Evaluator
from fastsim.analysis.evaluate.loads import LoadPlan, default_load_note
from fastsim.analysis.numbers import number
from fastsim.analysis.recommend.answer import Option, Recommendation
from fastsim.analysis.recommend.choice import ALIKE, MORE_TRAFFIC, Choice, choose, option
from fastsim.analysis.recommend.rate import max_rate, min_replicas
from fastsim.analysis.recommend.slo import Outlook
from fastsim.analysis.recommend.space import SEQS, Space, space_of
from fastsim.analysis.recommend.trials import FRESH, Traffic, Trials
from fastsim.analysis.recommend.why import alternatives, reliefs
from fastsim.analysis.terms import slo_terms
from fastsim.config import Config, Spec, check_rules, load_spec
from fastsim.config.deployment import LINEAR, Hardware, hardware_of, is_given
from fastsim.engines import caveats
from fastsim.errors import InputError
from fastsim.presets import gpus_of
from fastsim.sweeps.runner import available_cores

RISKS = (
    ("as given", 1.0, 1.0),
    ("1.2 times the traffic", 1.2, 1.0),
    ("1.5 times the traffic", 1.5, 1.0),
    ("outputs 1.25 times as long", 1.0, 1.25),
    ("outputs 1.5 times as long", 1.0, 1.5),
)


def recommend(
    spec: str | Path | Spec | None,
    sets: Sequence[str] = (),
    axes: Sequence[str] = (),
    *,
    on: Mapping[str, Any] | None = None,
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
        `key=value` settings on top; one of the two batch limits set here is not searched.
    axes
        `key=v1,v2,...` further engine settings to choose from, or other values of the two batch limits.
    on
        Settings of `hardware.*`, in the place of axes over hardware (`recommend_hardware` asks for each of those).
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
        When the engine has no flags, keys contradict each other, or no setting can serve at all.
    """
    started = perf_counter()
    if seeds < 2:
        raise InputError(f"--seeds {seeds}, but at least 2 were expected: intervals are over seeds")
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}, but an integer of at least 1 was expected")
    read = spec if isinstance(spec, Spec) else load_spec(spec, sets)
    if read.base.fleet.replicas > 1:
        raise InputError(
            f"fleet.replicas = {read.base.fleet.replicas}, but 1 was expected: settings are recommended for one "
            "replica, and --min-gpus finds how many are needed"
        )
    space = space_of(read, axes, on)
    check_rules(space.base, read.source)
    hardware = hardware_of(space.standing.value)
    terms = slo_terms(space.base, percentile)
    traffic = Traffic(space.base.workload)
    with Evaluator(workers=workers or available_cores()) as evaluator:
        trials = Trials(evaluator, terms)
        ask = _Question(space, trials, traffic, range(FRESH, FRESH + seeds))
        choice = choose(space, trials, traffic, ask.fresh)
        answer = ask.answer(choice, with_max_rate=with_max_rate, with_min_gpus=with_min_gpus)
        runs = trials.runs
    return Recommendation(
        **answer,
        terms=terms,
        runs=runs,
        seconds=perf_counter() - started,
        notes=(
            *caveats([space.standing.engine.name]),
            *_no_load(read, hardware),
            *_of_hardware(hardware, space),
            *space.notes,
            *_notes(traffic),
            *_unservable(choice.best.outlook),
            *filter(None, [choice.best.outlook.few_seeds]),
            *_told_apart(choice),
        ),
        hardware=hardware,
        deployment=_deployment(space.base, hardware),
    )


def _deployment(base: Config, hardware: Hardware | None) -> dict[str, Any]:
    """Fields of `Deployment` that the step times rest on and that are no defaults."""
    if hardware is not None:
        one_group = base.engine.disable_hybrid_kv_cache_manager and hardware.groups is not None
        return dict(hardware.given) | ({"disable_hybrid_kv_cache_manager": True} if one_group else {})
    preset = base.latency.preset
    return {} if preset is None else {"tensor_parallel": gpus_of(preset)}


def _of_hardware(hardware: Hardware | None, space: Space) -> tuple[str, ...]:
    """Where step times and the current setting come from, as sentences."""
    if hardware is None:
        return ()
    standing = space.standing
    notes: tuple[str, ...] = ()
    if not all(is_given(space.base, key) for key in LINEAR):
        times = hardware.estimate(*standing_numbers(standing)).step_times
        whence = "are estimated from data sheets"
        if times is not None:
            table = "a shipped table of measured kernels" if times.source == "shipped" else "a table from data sheets"
            whence = f"come from {table}: expect {times.expected}"
        notes = (f"step times of {hardware.name} {whence}; fastsim calibrate fits them to a run",)
    own = [key for key in hardware.taken.limits if not is_given(space.base, key)]
    if own:
        said = ", ".join(f"{key.removeprefix('engine.')} {standing.value(key):,}" for key in own)
        notes = (*notes, f"current is {hardware.taken.source}: {said} (--vllm-version names another)")
    return notes


def standing_numbers(config: Config) -> tuple[int, int]:
    """The two batch limits of a configuration."""
    return config.engine.max_num_seqs, config.engine.max_num_batched_tokens


class _Question:
    """One question and the steps to its answer."""

    def __init__(self, space: Space, trials: Trials, traffic: Traffic, fresh: range) -> None:
        self.space = space
        self.trials = trials
        self.traffic = traffic
        self.fresh = fresh

    def answer(self, choice: Choice, *, with_max_rate: bool, with_min_gpus: bool) -> dict[str, Any]:
        """The fields of a recommendation that come from simulations."""
        best = choice.best
        safe_seqs = Fit.of(best.config, LoadPlan(kept=1).build(self.traffic.load(self.fresh[0]))).safe
        safe = self._other({**best.settings, SEQS: safe_seqs}, best) if safe_seqs >= 1 else None
        few = list(self.fresh)[: max(len(self.fresh) // 2, 2)]
        return {
            "best": best,
            "leave_alone": choice.leave_alone,
            "runner_up": next((each for each in choice.tried if each is not best and each is not choice.current), None),
            "current": choice.current,
            "kv_safe": safe,
            "kv_safe_num_seqs": safe_seqs,
            "risks": self._risks(best),
            "alternatives": alternatives(self.space, self.trials, self.traffic, best.config, best.settings, few),
            "reliefs": reliefs(self.trials, self.traffic, best.config, few),
            "seeds": len(self.fresh),
            "traffic": self.traffic,
            "grid_size": sum(1 for _ in self.space.points()),
            "search_runs": choice.found.runs,
            **self._capacity(best, with_max_rate, with_min_gpus),
        }

    def _capacity(self, best: Option, with_max_rate: bool, with_min_gpus: bool) -> dict[str, Any]:
        """Highest rate and replicas: when asked for, and when nothing meets the SLO, as what would be needed."""
        if not best.outlook.serves:
            return {"rate": None, "replicas": None}
        asked = (self.space, self.trials, self.traffic, best.config, self.fresh)
        needed = not best.outlook.meets
        has_rate = self.traffic.rate_per_s is not None
        rate = max_rate(*asked) if with_max_rate or (needed and has_rate) else None
        no_rate_found = needed and has_rate and rate is None
        replicas = min_replicas(*asked) if with_min_gpus or (needed and not no_rate_found) else None
        return {"rate": rate, "replicas": replicas}

    def _other(self, settings: dict[str, Any], best: Option) -> Option | None:
        """Another setting; None when it is the best itself, or no server starts with it."""
        found = option(self.space, self.trials, self.traffic, self.fresh, settings)
        return None if found is None or found.config == best.config else found

    def _risks(self, best: Option) -> list[tuple[str, Outlook]]:
        return [
            (name, self.trials.outlooks([best.config], self.traffic.scaled(rate, output), self.fresh)[0])
            for name, rate, output in RISKS
        ]


def _notes(traffic: Traffic) -> tuple[str, ...]:
    if traffic.workload.trace is None:
        return ()
    return ("a trace happened once: its other seeds exchange lengths among 64 neighbours, arrival times stay",)


def _no_load(spec: Spec, hardware: Hardware | None) -> tuple[str, ...]:
    note = None if hardware is None else default_load_note(spec)
    return () if note is None else (note,)


def _unservable(outlook: Outlook) -> tuple[str, ...]:
    unservable, count = outlook.means["unservable"], outlook.means["num_requests"]
    if unservable == 0:
        return ()
    return (
        f"{number(unservable)} of {number(count)} requests, on average over the seeds, can never fit and count as "
        "missed: fastsim run says how many, fastsim check why",
    )


def _told_apart(choice: Choice) -> tuple[str, ...]:
    if choice.leave_alone:
        return (
            "nothing that was tried is shown to be better than the setting that stands, as given or at "
            f"{MORE_TRAFFIC:g} times the traffic: leave it alone",
        )
    if choice.alike == 1:
        return ()
    return (
        f"settings within {100 * ALIKE:g} % of the best are told apart by what they do at {MORE_TRAFFIC:g} times the "
        f"traffic (here {choice.alike})",
    )


__all__ = ["Recommendation", "recommend"]
