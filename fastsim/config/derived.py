"""Defaults that depend on other keys: stored as None, filled in by `resolved`."""

from collections.abc import Callable, Mapping
from typing import Any

from fastsim.config.classes import part_of
from fastsim.config.deployment import standing
from fastsim.config.models import Config
from fastsim.engines import engine_of, engines
from fastsim.engines.clock import BESIDE_A_TABLE, DEFAULT_LATENCY, NO_TERM
from fastsim.rule import Derived

DEFAULT_LENGTHS: dict[str, dict[str, Any]] = {
    "prompt": {"dist": "normal", "mean": 300.0, "stdev": 200.0, "min": 200, "max": 400},
    "output": {"dist": "normal", "mean": 3500.0, "stdev": 3200.0, "min": 3200, "max": 3596},
}
"""The workload of the discussion that founded the project: 300 requests that grow from ~19 to ~232 blocks."""

DEFAULT_NUM_REQUESTS = 300


def default_arrival(trace: str | None, concurrency: int | None) -> str:
    """Clients make a closed loop, a trace brings its own arrivals, anything else is Poisson."""
    return "closed_loop" if concurrency is not None else "trace" if trace is not None else "poisson"


def _lengths(section: str) -> list[Derived]:
    """A prompt or output without `dist` is the trace's or, without a trace, the default workload's."""
    defaults = DEFAULT_LENGTHS[section]
    dist = f"workload.{section}.dist"

    def fill(name: str) -> Callable[..., Any]:
        return lambda given, trace: defaults[name] if given is None and trace is None else None

    parameters = [
        Derived(f"workload.{section}.{name}", (dist, "workload.trace"), fill(name))
        for name in defaults
        if name != "dist"
    ]
    last = Derived(dist, ("workload.trace",), lambda trace: defaults["dist"] if trace is None else "trace")
    return [*parameters, last]


def _coefficient(name: str) -> Derived:
    """A coefficient of the step time is the preset's or, without one, the default."""

    def fill(preset: str | None, source: str, engine: str, table: tuple[int, ...] | None) -> float:
        if preset is None or (name == "b3_us_per_context_token" and not engine_of(engine).context_time):
            return (DEFAULT_LATENCY if table is None else BESIDE_A_TABLE)[name]
        return float(_preset_value(name, preset, source, engine))

    return Derived(f"latency.{name}", (*PRESET_KEYS, "latency.table_tokens"), fill)


PRESET_KEYS = ("latency.preset", "latency.source", "engine.name")


def _preset_value(name: str, preset: str, source: str, engine: str) -> Any:
    """What a preset gives for a key below `latency.`; an engine whose step times are linear has linear ones."""
    from fastsim.presets import coefficients

    return coefficients(preset, source if engine_of(engine).table_time else "linear").get(name, NO_TERM.get(name))


def _term(name: str) -> Derived:
    """A further term of the step time is the preset's or none."""

    def fill(preset: str | None, source: str, engine: str) -> Any:
        return NO_TERM[name] if preset is None else _preset_value(name, preset, source, engine)

    return Derived(f"latency.{name}", PRESET_KEYS, fill)


def default_cudagraph_size(max_num_seqs: int) -> int:
    """VLLM's largest captured CUDA graph."""
    return min(2 * max_num_seqs, 512)


DERIVED: tuple[Derived, ...] = (
    *(item for engine in engines() for item in engine.derived),
    Derived("workload.arrival.kind", ("workload.trace", "workload.concurrency"), default_arrival),
    *map(_coefficient, DEFAULT_LATENCY),
    *map(_term, NO_TERM),
    Derived("latency.max_cudagraph_capture_size", ("engine.max_num_seqs",), default_cudagraph_size),
    *_lengths("prompt"),
    *_lengths("output"),
    Derived(
        "workload.num_requests", ("workload.trace",), lambda trace: DEFAULT_NUM_REQUESTS if trace is None else None
    ),
)
"""All of them. Each reads what a spec gave, never what another one filled in."""

DERIVED_KEYS: dict[str, Derived] = {item.key: item for item in DERIVED}


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with some keys replaced by values that are already valid (`Key.validate`)."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    changed: Config = _updated(config, tree)
    return changed


def _updated(model: Any, tree: Mapping[str, Any]) -> Any:
    update = {
        name: _updated(part_of(model, name), value) if isinstance(value, dict) else value
        for name, value in tree.items()
    }
    return model.model_copy(update=update)


def deployed(config: Config) -> Config:
    """The configuration with what its hardware gives for the keys that are left open; without any, as it is.

    Raises
    ------
    InputError
        When the model does not fit on the hardware, or is not known.
    """
    values = standing(config)
    return with_values(config, values) if values else config


def resolved(config: Config) -> Config:
    """The configuration with every default that depends on other keys, or on the hardware, filled in."""
    config = deployed(config)
    filled = {
        item.key: item.fill(*(config.value(key) for key in item.needs))
        for item in DERIVED
        if config.value(item.key) is None
    }
    return with_values(config, filled)
