"""From a run with recorded steps to its history."""

from typing import TYPE_CHECKING, Any

from fastsim.analysis.explain.history import History, disagreement
from fastsim.analysis.explain.lives import LivesBuilder, Probe
from fastsim.config import Config, with_values
from fastsim.engines import check_ability
from fastsim.engines.outputs import RequestLog
from fastsim.errors import WorkError
from fastsim.simulation import Result, record_of, simulate

if TYPE_CHECKING:
    from fastsim.engines.vllm.recorder import Step
    from fastsim.workload import Workload


def build_history(
    config: Any,
    workload: "Workload",
    log: RequestLog,
    totals: dict[str, int],
    steps: "list[Step]",
    probe: Probe,
) -> History:
    """The history of a run with `steps` recorded, by an engine of vLLM's.

    Raises
    ------
    WorkError
        When what was derived disagrees with the run's own log and totals.
    """
    knobs = {name: config[name].item() for name in config.dtype.names}
    history = History(knobs, workload, log, totals, steps, [[] for _ in range(workload.num_requests)])
    LivesBuilder(history, probe).build()
    fault = disagreement(history)
    if fault is not None:
        raise WorkError(f"the per-step record does not explain this run: {fault}")
    return history


def check_recorded(config: Config) -> None:
    """Refuse a configuration whose engine keeps no record of its steps.

    Raises
    ------
    InputError
        One sentence.
    """
    why = "only they record their steps, from which timelines and the stories of requests are made"
    check_ability(config.engine.name, "records_steps", why)


def history_of(result: Result) -> History:
    """The history of a run that was simulated with `record_steps`."""
    check_recorded(result.config)
    if result.steps is None:
        raise ValueError("a result without steps: simulate(..., record_steps=True) was expected")

    def probe(steps: int) -> RequestLog:
        return simulate(with_values(result.config, {"run.max_steps": steps}), result.workload).requests

    record = record_of(result.config).engine[0]
    return build_history(record, result.workload, result.requests, result.totals, result.steps, probe)
