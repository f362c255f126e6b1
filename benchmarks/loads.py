"""The loads that benchmarks run: the discussion's rows, real traffic, and what stresses single mechanisms."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastsim.config import Config, load_config, resolved
from fastsim.workload import Workload, build_workload

SWEEPS = Path(__file__).parent.parent / "sweeps"


@dataclass(frozen=True)
class Load:
    """A name, a configuration, a workload, and what others were recorded to need for it (CPU seconds)."""

    name: str
    config: Config
    workload: Workload
    vllm_s: float | None = None
    blis_s: float | None = None


def discussion(name: str, *settings: str, vllm_s: float | None = None, blis_s: float | None = None) -> Load:
    """A row of sweeps/discussion.toml with settings changed."""
    last = {setting.split("=")[0]: setting for setting in settings}
    config = resolved(load_config(SWEEPS / "discussion.toml", list(last.values())))
    return Load(name, config, build_workload(config.workload), vllm_s, blis_s)


def loads(tiny: bool) -> list[Load]:
    """All of them; tiny: the same mechanisms on little work."""
    few = ("workload.num_requests=20", "run.horizon_s=5") if tiny else ()
    spike = ("workload.num_requests=50", "workload.arrival.kind=all_at_once", "run.horizon_s=1000")
    on = "engine.enable_prefix_caching=true"
    rows = [
        discussion("300 at 10/s, 256", *few, vllm_s=12.2, blis_s=0.65),
        discussion("300 at 10/s, 256, caching", on, *few),
        discussion("300 at 10/s, 32", "engine.max_num_seqs=32", *few, vllm_s=8.0, blis_s=0.30),
        discussion("300 at 10/s, 32, caching", "engine.max_num_seqs=32", on, *few),
        discussion("50 at once, 256", *spike, *few[1:]),
        discussion("50 at once, 32", "engine.max_num_seqs=32", *spike, *few[1:]),
        discussion("300 at 10/s, 256, restart", "engine.preemption_mode=restart", *few),
        discussion("300 at 10/s, 256, priority", "engine.policy=priority", *few),
    ]
    quick = resolved(load_config(SWEEPS / "quickstart.toml", ["workload.rate_scale=3"]))
    azure = build_workload(quick.workload)
    rows.append(Load("Azure conversations x 3, 256", quick, _first(azure, 100 if tiny else azure.num_requests)))
    rows.append(_shared_chat(100 if tiny else 2000))
    rows.append(_long_context(10 if tiny else 100))
    return rows


def _first(workload: Workload, count: int) -> Workload:
    return Workload.from_arrays(
        workload.arrival_us[:count], workload.prompt_tokens[:count], workload.output_tokens[:count]
    )


def _shared_chat(count: int) -> Load:
    """Chat behind 20 system prompts of 1,000 tokens: busy, and most of every prompt is cached."""
    rng = np.random.default_rng(1)
    workload = Workload.from_arrays(
        np.floor(np.cumsum(rng.exponential(1e6 / 25, count))).astype(np.int64),
        1000 + rng.integers(20, 400, count),
        rng.integers(50, 350, count),
        prefix_group=rng.integers(0, 20, count),
        prefix_tokens=np.full(count, 1000),
    )
    return Load("chat, shared prefixes, 25/s", load_config(None, ["engine.num_gpu_blocks=4096"]), workload)


def _long_context(count: int) -> Load:
    """Prompts of 30,000 to 100,000 tokens among short outputs."""
    rng = np.random.default_rng(2)
    workload = Workload.from_arrays(
        np.floor(np.cumsum(rng.exponential(4e6, count))).astype(np.int64),
        rng.integers(30_000, 100_000, count),
        rng.integers(200, 1000, count),
    )
    settings = ["engine.num_gpu_blocks=27750", "engine.max_model_len=131072", "engine.max_num_batched_tokens=8192"]
    return Load("long context", load_config(None, settings), workload)
