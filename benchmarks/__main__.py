"""`python -m benchmarks kernel|engines|sweep|scaling|startup|vllm|backends [--tiny] [--full] [--readme]`."""

from typing import Annotated

import typer

from benchmarks import engines, kernel, scaling, startup, sweep

app = typer.Typer(help=__doc__, add_completion=False)
Tiny = Annotated[bool, typer.Option(help="The same on little work: to see that it runs.")]
Readme = Annotated[bool, typer.Option(help="Put the table into README.md.")]


@app.command("kernel")
def run_kernel(tiny: Tiny = False, readme: Readme = False) -> None:
    """Kernel time by load."""
    kernel.main(tiny, readme)


@app.command("engines")
def run_engines(tiny: Tiny = False, readme: Readme = False) -> None:
    """The asynchronous engine and BLIS's against vLLM's synchronous one."""
    engines.main(tiny, readme)


@app.command("scaling")
def run_scaling(tiny: Tiny = False, readme: Readme = False) -> None:
    """Cost against output length, requests, running set, block size."""
    scaling.main(tiny, readme)


@app.command("startup")
def run_startup(tiny: Tiny = False, readme: Readme = False) -> None:
    """Help, warm run, first compilation."""
    startup.main(tiny, readme)


@app.command("sweep")
def run_sweep(
    tiny: Tiny = False, readme: Readme = False, full: Annotated[bool, typer.Option(help="All of it.")] = False
) -> None:
    """The million-configuration sweep."""
    sweep.main(tiny, readme, full)


@app.command("vllm")
def run_vllm(tiny: Tiny = False, readme: Readme = False) -> None:
    """The installed vLLM's own scheduler, where one is installed."""
    from benchmarks import vllm

    vllm.main(tiny, readme)


@app.command("backends")
def run_backends(tiny: Tiny = False, readme: Readme = False) -> None:
    """Ray against local processes, where Ray is installed."""
    from benchmarks import backends

    backends.main(tiny, readme)


app()
