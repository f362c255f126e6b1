"""Several specs, or one spec under several engines, as one grid: the same requests and seeds under each."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastsim.config import Layer, Spec, load_spec
from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.grid.sweep import ENGINE, SweepTable, read_sweep

CHOICE = "choice.spec"
"""The axis whose values are the specs."""


def grid_of_engines(path: Path, sets: Sequence[str], engines: Sequence[str], seeds: int | None) -> Grid:
    """One spec under several engines."""
    return Grid(_with_seeds(load_spec(path, sets), seeds), [f"{ENGINE}={','.join(engines)}"])


def grid_of_sweep(path: Path, sets: Sequence[str], seeds: int | None) -> Grid:
    """What one spec sweeps."""
    return Grid(_with_seeds(load_spec(path, sets), seeds))


def grid_of_specs(paths: Sequence[Path], sets: Sequence[str], seeds: int | None) -> tuple[Grid, list[str]]:
    """Several specs as one grid with the axis `choice.spec`, and notes on what they do not have in common.

    Raises
    ------
    InputError
        When one file is named twice, when two specs sweep different things, or when their classes of requests differ.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError(f"{', '.join(map(str, paths))}: one is named twice, but different specs were expected")
    specs = {label: load_spec(path, sets) for label, path in zip(labels(paths), paths, strict=True)}
    source = " and ".join(map(str, paths))
    bases = {label: spec.base for label, spec in specs.items()}
    if len({base.workload.classes.names for base in bases.values()}) > 1:
        raise InputError(f"{source}: their workload.classes differ, but the same classes of requests were expected")
    keys = list(dict.fromkeys(key for spec in specs.values() for key in spec.settings))
    values = {key: [base.value(key) for base in bases.values()] for key in keys}
    differing = [key for key in keys if any(value != values[key][0] for value in values[key])]
    if not differing:
        raise InputError(f"{source}: they say the same, but specs that differ were expected")
    common = {key: values[key][0] for key in keys if key not in differing}
    table = _common_sweep({label: read_sweep(spec) for label, spec in specs.items()}, source)
    if "spec" in table.get("choice", {}):
        raise InputError(f"{source}: sweep.choice.spec, but another name was expected: the specs themselves have it")
    options = {label: {key: _raw(values[key][place]) for key in differing} for place, label in enumerate(bases)}
    table["choice"] = {**table.get("choice", {}), "spec": options}
    merged = Spec(source, (Layer(source, Path(), common, table),))
    return Grid(_with_seeds(merged, seeds)), _notes(differing)


def labels(paths: Sequence[Path]) -> list[str]:
    """Short names of files: without folder and ending where that tells them apart."""
    short = [path.stem for path in paths]
    return short if max(Counter(short).values()) == 1 else [str(path) for path in paths]


def _raw(value: Any) -> Any:
    """A value as a spec file would have it."""
    if value is None:
        return "none"
    return list(value) if isinstance(value, tuple) else value


def _common_sweep(sweeps: dict[str, SweepTable], source: str) -> dict[str, Any]:
    """The `[sweep]` of those that have one, which must be the same."""
    tables = [table for sweep in sweeps.values() if (table := _table(sweep))]
    if any(table != tables[0] for table in tables):
        raise InputError(f"{source}: they sweep different things, but the same [sweep] (or none) was expected")
    return tables[0] if tables else {}


def _table(sweep: SweepTable) -> dict[str, Any]:
    table: dict[str, Any] = {
        "axes": {key: [_raw(value) for value in values] for key, values in sweep.axes.items()},
        "zip": [{key: [_raw(value) for value in values] for key, values in group.items()} for group in sweep.zips],
        "choice": {
            name: {label: {key: _raw(value) for key, value in settings.items()} for label, settings in options.items()}
            for name, options in sweep.choices.items()
        },
    }
    if sweep.seeds is not None:
        table["seeds"] = sweep.seeds[0]
    return {name: part for name, part in table.items() if part}


def _with_seeds(spec: Spec, seeds: int | None) -> Spec:
    """The spec over so many seeds; None: over its own, or `SEEDS` where it sweeps none."""
    swept = read_sweep(spec)
    if seeds is None and (swept.seeds is not None or "workload.seed" in swept.axes):
        return spec
    return Spec(
        spec.source, (*spec.layers, Layer("--seeds", Path(), sweep={"seeds": SEEDS if seeds is None else seeds}))
    )


SEEDS = 10
"""So many draws of the requests, where nothing is said."""


def _notes(differing: Sequence[str]) -> list[str]:
    """What else differs than the server."""
    requests = [key for key in differing if key.startswith("workload.")]
    times = [key for key in differing if key.startswith("latency.")]
    notes = []
    if requests:
        notes.append(f"the specs do not serve the same requests: {', '.join(requests)} differ")
    if times:
        notes.append(f"the specs do not have the same step times: {', '.join(times)} differ")
    return notes


__all__ = ["CHOICE", "ENGINE", "SEEDS", "grid_of_engines", "grid_of_specs", "grid_of_sweep"]
