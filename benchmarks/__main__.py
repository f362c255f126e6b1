"""`python -m benchmarks NAME [--tiny] [--full] [--readme]`."""

from importlib import import_module
from typing import Annotated

import typer

from benchmarks import sweep

app = typer.Typer(help=__doc__, add_completion=False)
Tiny = Annotated[bool, typer.Option(help="The same on little work: to see that it runs.")]
Readme = Annotated[bool, typer.Option(help="Put the table into benchmarks/README.md.")]

BENCHMARKS = {
    "kernel": "Kernel time by load.",
    "engines": "The asynchronous engine and BLIS's against vLLM's synchronous one.",
    "scaling": "Cost against output length, requests, running set, block size.",
    "startup": "Help, warm run, first compilation.",
    "vllm": "The installed vLLM's own scheduler, where one is installed.",
    "accuracy": "Step times of the presets against published measurements.",
    "step_tables": "The shipped tables of step times, made anew from aiconfigurator, where that is installed.",
    "backends": "Ray against local processes, where Ray is installed.",
}
"""By the name of their file, each with a function `main`."""


def add(name: str, what: str) -> None:
    """Make a benchmark a command."""

    @app.command(name, help=what)
    def run(tiny: Tiny = False, readme: Readme = False) -> None:
        import_module(f"benchmarks.{name}").main(tiny, readme)


for name, what in BENCHMARKS.items():
    add(name, what)


@app.command("sweep")
def run_sweep(
    tiny: Tiny = False, readme: Readme = False, full: Annotated[bool, typer.Option(help="All of it.")] = False
) -> None:
    """The million-configuration sweep."""
    sweep.main(tiny, readme, full)


app()
