"""fastsim: decision-identical simulation of LLM serving schedulers, fast enough to sweep a million configurations.

>>> import fastsim
>>> grid = fastsim.Grid.from_toml("sweep.toml")
>>> result = fastsim.simulate(grid.config(0))
>>> fastsim.sweep(grid, "results")
>>> fastsim.scan("results").filter(verdict="ok")

Nothing is loaded before it is used: importing the package takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastsim.analysis.phase.map import PhaseMap, phase
    from fastsim.analysis.recommend.recommend import Recommendation, recommend
    from fastsim.config import Config, load_config
    from fastsim.errors import FastsimError, InputError, WorkError
    from fastsim.simulation import Result, simulate
    from fastsim.sweeps.grid import Grid
    from fastsim.sweeps.runner import SweepResult, sweep
    from fastsim.sweeps.store.compact import compact
    from fastsim.sweeps.store.merge import merge
    from fastsim.sweeps.store.scan import scan
    from fastsim.workload import Workload, build_workload

_HOMES = {
    "Config": "fastsim.config",
    "load_config": "fastsim.config",
    "FastsimError": "fastsim.errors",
    "InputError": "fastsim.errors",
    "WorkError": "fastsim.errors",
    "Grid": "fastsim.sweeps.grid",
    "Recommendation": "fastsim.analysis.recommend.recommend",
    "recommend": "fastsim.analysis.recommend.recommend",
    "PhaseMap": "fastsim.analysis.phase.map",
    "phase": "fastsim.analysis.phase.map",
    "SweepResult": "fastsim.sweeps.runner",
    "sweep": "fastsim.sweeps.runner",
    "Result": "fastsim.simulation",
    "simulate": "fastsim.simulation",
    "compact": "fastsim.sweeps.store.compact",
    "merge": "fastsim.sweeps.store.merge",
    "scan": "fastsim.sweeps.store.scan",
    "Workload": "fastsim.workload",
    "build_workload": "fastsim.workload",
}
"""Where each public name lives."""

__all__ = [
    "Config",
    "FastsimError",
    "Grid",
    "InputError",
    "PhaseMap",
    "Recommendation",
    "Result",
    "SweepResult",
    "WorkError",
    "Workload",
    "__version__",
    "build_workload",
    "compact",
    "load_config",
    "merge",
    "phase",
    "recommend",
    "scan",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fastsim-llm")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fastsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
