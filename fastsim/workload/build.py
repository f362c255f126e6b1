"""A workload from its configuration, and the cache that builds each only once."""

from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache

import numpy as np

from fastsim.config import Config, WorkloadConfig, check_rules, resolved
from fastsim.config.rules import WORKLOAD_RULES
from fastsim.errors import InputError
from fastsim.workload import shapes, synthetic
from fastsim.workload.classes import build_classes
from fastsim.workload.draws import STREAMS, Draws
from fastsim.workload.prefix_tree import PrefixTree
from fastsim.workload.trace import Trace, Window, load_trace, noted
from fastsim.workload.workload import Int32Array, Workload


def build_workload(config: WorkloadConfig) -> Workload:
    """The requests that a workload configuration stands for.

    Raises
    ------
    InputError
        When keys contradict each other, the trace cannot be used, or numbers do not fit.
    """
    return WorkloadPlan().build(config)


class WorkloadPlan:
    """Builds workloads and keeps the last few: neighbours in a sweep share them, and their base draws.

    Parameters
    ----------
    kept : int
        How many workloads and how many sets of base draws are kept.
    """

    def __init__(self, kept: int = 4) -> None:
        self.kept = kept
        self._draws: OrderedDict[tuple[int, int], Draws] = OrderedDict()
        self._workloads: OrderedDict[WorkloadConfig, Workload] = OrderedDict()

    def build(self, config: WorkloadConfig) -> Workload:
        """The workload of a configuration: the same object for an equal one, while it is kept."""
        if config in self._workloads:
            self._workloads.move_to_end(config)
            return self._workloads[config]
        workload = self._mixed(config) if config.classes.names else self._single(config, config.seed)
        self._workloads[config] = workload
        if len(self._workloads) > self.kept:
            self._workloads.popitem(last=False)
        return workload

    def draws(self, seed: int, count: int) -> Draws:
        """The base draws of a seed and number of requests."""
        key = (seed, count)
        if key not in self._draws:
            self._draws[key] = Draws(seed, count)
            if len(self._draws) > self.kept:
                self._draws.popitem(last=False)
        self._draws.move_to_end(key)
        return self._draws[key]

    def _single(self, config: WorkloadConfig, seed: int) -> Workload:
        return self._build(_complete(config.model_copy(update={"seed": 0})), seed)

    def _mixed(self, config: WorkloadConfig) -> Workload:
        check_rules(Config(workload=config), "workload", WORKLOAD_RULES)
        return build_classes(config, self._single)

    def _build(self, config: WorkloadConfig, seed: int) -> Workload:
        trace = None if config.trace is None else wanted_rows(config, seed)
        count = _count(config, trace)
        if trace is not None and count < trace.num_rows:
            trace = trace.take(np.arange(count))
        draws = self.draws(seed, count)
        main = draws.with_gaps if config.arrival.kind in synthetic.RANDOM_ARRIVALS else draws.without_gaps

        if trace is not None and config.arrival.kind == "trace":
            times_us = trace.arrival_us.astype(np.float64)
        else:
            times_us = synthetic.arrivals_us(config.arrival, draws, config.concurrency)
            if shapes.is_modulated(config.arrival) and config.arrival.kind != "closed_loop":
                times_us = shapes.modulated_us(times_us, config.arrival)
        if trace is not None and config.prompt.dist == "trace":
            prompt = trace.prompt_tokens
        else:
            prompt = synthetic.lengths(config.prompt, main.prompt, draws, "prompt")
        if trace is not None and config.output.dist == "trace":
            output = trace.output_tokens
        else:
            output = synthetic.lengths(config.output, main.output, draws, "output")
        if config.max_tokens.dist is None and trace is not None and trace.max_tokens is not None:
            max_tokens = trace.max_tokens
        else:
            max_tokens = synthetic.declared_max_tokens(config.max_tokens, output, draws)
        prefix_group, prefix_tokens, groups = _prefixes(config, trace, draws)
        if config.prefix.adds_to_prompt and prefix_tokens is not None:
            prompt = prompt.astype(np.int64) + prefix_tokens
        if config.sessions.turns > 1:
            turns = shapes.conversations(times_us, prompt, output, config.sessions, draws)
            times_us, prompt = turns.arrival_us, turns.prompt_tokens
            output, max_tokens = output[turns.order], max_tokens[turns.order]
            prefix_group, prefix_tokens, groups = turns.prefix_group, turns.prefix_tokens, turns.groups
        arrival_us = synthetic.truncated_us(times_us, config.rate_scale)

        workload = Workload.from_arrays(
            arrival_us,
            prompt,
            np.where(max_tokens > 0, max_tokens if config.ignore_eos else np.minimum(output, max_tokens), output),
            max_tokens=max_tokens,
            priority=_priorities(config, trace, draws),
            prefix_group=prefix_group,
            prefix_tokens=prefix_tokens,
            groups=groups,
            think_us=synthetic.think_us(config.think, draws) if config.think.mean_s else None,
            concurrency=config.concurrency or 0,
            report=None if trace is None else replace(trace.report, rows_used=count),
        )
        cut = int(np.count_nonzero((max_tokens > 0) & (max_tokens < output)))
        if cut:
            note = f"{cut} of {count} outputs are cut at the declared max_tokens"
            workload = replace(workload, report=replace(workload.report, notes=(*workload.report.notes, note)))
        return workload


def wanted_rows(config: WorkloadConfig, seed: int) -> Trace:
    """The rows of the configuration's trace that lie in its window and sample.

    Raises
    ------
    InputError
        When the trace cannot be used, or no row is left.
    """
    assert config.trace is not None
    window = Window(config.window_start_s, config.window_end_s)
    trace = load_trace(config.trace, config.format, seed=seed, window=window)
    if config.sample_share == 1.0:
        return trace
    sampled = np.random.default_rng([seed, STREAMS["sample"]]).random(trace.num_rows) < config.sample_share
    kept = trace.take(sampled)
    if kept.num_rows == 0:
        raise InputError(
            f"workload.sample_share = {config.sample_share:g} leaves none of {trace.num_rows} rows of {trace.source}, "
            "but at least one was expected"
        )
    return noted(kept, f"{kept.num_rows} of {trace.num_rows} rows were sampled")


@lru_cache(maxsize=256)
def _complete(config: WorkloadConfig) -> WorkloadConfig:
    """The configuration checked and with its defaults filled in: as dear as the arrays, and the same for all seeds."""
    check_rules(Config(workload=config), "workload", WORKLOAD_RULES)
    return resolved(Config(workload=config)).workload


def _count(config: WorkloadConfig, trace: Trace | None) -> int:
    if trace is None:
        assert config.num_requests is not None  # resolved
        return config.num_requests
    rows = len(trace.arrival_us)
    if config.num_requests is not None and config.num_requests > rows:
        raise InputError(
            f"workload.num_requests = {config.num_requests}, but at most {rows} was expected: "
            f"{trace.source} has no more usable rows"
        )
    return config.num_requests or rows


def _priorities(config: WorkloadConfig, trace: Trace | None, draws: Draws) -> Int32Array | None:
    if config.priority.values is None:
        return None if trace is None or trace.priority is None else trace.priority
    return synthetic.priorities(config.priority, draws)


Prefixes = tuple[Int32Array | None, Int32Array | None, PrefixTree | None]


def _prefixes(config: WorkloadConfig, trace: Trace | None, draws: Draws) -> Prefixes:
    if config.prefix.groups is None and trace is not None and trace.prefix_group is not None:
        assert trace.prefix_tokens is not None  # a reader gives both or none
        return trace.prefix_group, trace.prefix_tokens, trace.groups
    return (*synthetic.prefixes(config.prefix, draws), None) if config.prefix.groups else (None, None, None)
