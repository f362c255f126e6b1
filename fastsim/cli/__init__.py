"""The command line: one file a verb, each a function `command` that typer turns into options and help.

A verb is added by its file and its name in `VERBS`. One with verbs of its own has a typer application `app` instead.
Files import what they work with inside their functions, so that `fastsim --help` stays quick.
"""

import gc
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from fastsim import _notice
from fastsim.cli import streams
from fastsim.errors import FastsimError

VERBS = (
    "run",
    "sweep",
    "recommend",
    "compare",
    "phase",
    "explain",
    "report",
    "query",
    "calibrate",
    "status",
    "merge",
    "compact",
    "check",
    "verify",
    "workload",
    "policies",
    "check-policy",
    "columns",
)
"""In the order of the help."""

_USAGE_ERROR: Any = typer.BadParameter.__mro__[2]
"""Click's ClickException, whether typer brings its own click or not."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fastsim {version('fastsim-llm')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Simulate LLM serving schedulers exactly, and sweep their knobs.

    Exit codes: 0 good, 1 the work failed or a check did not hold, 2 bad input.
    """


def build_app() -> typer.Typer:
    """The command line as a typer application."""
    app = typer.Typer(
        name="fastsim",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in VERBS:
        module = import_module(f"fastsim.cli.{verb.replace('-', '_')}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb)
            continue
        app.command(verb, no_args_is_help=verb not in ("run", "policies", "columns"))(module.command)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit. Bad input is one sentence on stderr; an unexpected error keeps its traceback."""
    streams.open_closed()
    streams.guard()
    gc.set_threshold(100_000)  # the 200,000 objects that imports make stay: looking for cycles was 8 % of a start
    _notice.tell = lambda sentence: typer.echo(sentence, err=True)
    try:
        code = build_app()(args=arguments, prog_name="fastsim", standalone_mode=False)
        sys.stdout.flush()
    except FastsimError as error:
        typer.echo(error, err=True)
        sys.exit(error.exit_code)
    except _USAGE_ERROR as error:
        bare = type(error).__name__ == "NoArgsIsHelpError"  # a verb without anything: its message is the help
        typer.echo(error.format_message() if bare else _one_sentence(error), err=True)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        typer.echo("stopped", err=True)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _one_sentence(error: BaseException) -> str:
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "fastsim"
    sentence = f"{where}: {' '.join(error.format_message().split())}"  # type: ignore[attr-defined]
    option = getattr(error, "option_name", None)
    return sentence + _as_key(option) if option is not None and "o such option" in sentence else sentence


def _as_key(option: str) -> str:
    """How an option that there is none of is given as a key: flags of servers and load generators are known."""
    from fastsim.config.keys import KEYS
    from fastsim.config.other_names import hint

    name = option.lstrip("-").replace("-", "_")
    known = [key for key in KEYS if key.rpartition(".")[2] == name]
    if known:
        return f"; keys are set by --set {known[0]}=VALUE"
    other = hint(option)
    return "" if other is None else f"; as a key (--set KEY=VALUE), {other}"
