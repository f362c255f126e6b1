"""`fastsim check`: what can be said of a spec before a second is spent."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from fastsim.cli import options

if TYPE_CHECKING:
    from fastsim.config import Config
    from fastsim.workload import Workload

MAX_CHECKED = 256
"""Configurations whose workloads are built and looked at; a larger grid is sampled, and the output says so."""


def command(
    spec: options.Spec,
    sets: options.Sets = None,
    axes: options.Axes = None,
) -> int:
    """Check a spec: its keys, its size, requests that can never fit, and how many requests the KV cache holds.

    Exits 1 if some request can never fit.
    """
    from fastsim.cli.plan import describe_plan
    from fastsim.cli.spec import read_grid
    from fastsim.workload import WorkloadPlan

    grid, _ = read_grid(spec, sets or [], axes or [])
    typer.echo(describe_plan(grid, grid.select()))
    for warning in grid.warnings:
        typer.echo(f"note: {warning}")
    selection = grid.select(sample=MAX_CHECKED) if grid.size > MAX_CHECKED else grid.select()
    plan = WorkloadPlan()
    fits: dict[Fit, int] = {}
    checked = 0
    for part in selection.parts():
        for index in part.indices().tolist():
            config = grid.config(index)
            fit = Fit.of(config, plan.build(config.workload))
            fits[fit] = fits.get(fit, 0) + 1
            checked += 1
    if checked < grid.size:
        typer.echo(f"looked at {checked:,} of {grid.size:,} configurations, spread over the grid:")
    return _report(fits, checked)


def _report(fits: "dict[Fit, int]", checked: int) -> int:
    """Print what was found: the worst case of each kind, with numbers."""
    stuck = [fit for fit in fits if fit.unservable]
    if stuck:
        count = sum(fits[fit] for fit in stuck)
        worst = max(stuck, key=lambda fit: fit.unservable)
        typer.echo(f"{count:,} of {checked:,} configurations have requests that can never fit: {worst.stuck()}")
    else:
        typer.echo("every request fits")
    wide = [fit for fit in fits if fit.max_num_seqs > fit.safe]
    if wide:
        count = sum(fits[fit] for fit in wide)
        worst = max(wide, key=lambda fit: fit.max_num_seqs / fit.safe)
        typer.echo(f"{count:,} of {checked:,} configurations admit more than the KV cache holds: {worst.wide()}")
        typer.echo(
            "  vLLM then preempts: generated tokens are kept, but their KV is computed again; "
            "`fastsim run` says how much that costs"
        )
    return 1 if stuck else 0


@dataclass(frozen=True)
class Fit:
    """How a workload fits the KV cache of a configuration."""

    max_num_seqs: int
    usable_blocks: int
    blocks_per_request: int
    safe: int
    num_requests: int
    unservable: int
    longest_tokens: int
    max_model_len: int
    block_size: int

    @classmethod
    def of(cls, config: "Config", workload: "Workload") -> "Fit":
        """Count what can never fit, and how many requests fit at once at full decode (mean lengths)."""
        import numpy as np

        engine = config.engine
        usable = engine.usable_blocks
        prompt = workload.prompt_tokens.astype(np.int64)
        total = np.minimum(prompt + workload.output_tokens, engine.max_model_len)
        blocks = -(-(total - 1) // engine.block_size)
        stuck = (prompt >= engine.max_model_len) | (blocks > usable)
        mean = workload.mean_prompt_tokens + workload.mean_output_tokens
        per_request = max(1, int(-(-mean // engine.block_size)))
        return cls(
            engine.max_num_seqs,
            usable,
            per_request,
            max(1, usable // per_request),
            workload.num_requests,
            int(stuck.sum()),
            int((prompt + workload.output_tokens).max(initial=0)),
            engine.max_model_len,
            engine.block_size,
        )

    def stuck(self) -> str:
        """The unservable, with numbers."""
        return (
            f"{self.unservable:,} of {self.num_requests:,} requests, with {self.usable_blocks:,} usable blocks of "
            f"{self.block_size} tokens and max_model_len {self.max_model_len:,} "
            f"(longest request {self.longest_tokens:,} tokens)"
        )

    def wide(self) -> str:
        """Why max_num_seqs is more than fits."""
        return (
            f"max_num_seqs {self.max_num_seqs:,}, but {self.usable_blocks:,} blocks / {self.blocks_per_request:,} "
            f"a request at full decode = {self.safe:,} requests"
        )
