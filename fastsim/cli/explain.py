"""`fastsim explain`: the story of one request."""

from typing import TYPE_CHECKING, Annotated

import typer

from fastsim.cli import options
from fastsim.cli.given import takes_hardware

if TYPE_CHECKING:
    from fastsim.analysis.explain.explain import Story

FIRST_EVENTS, LAST_EVENTS = 30, 12
"""A longer story is cut in the middle, and says so."""


@takes_hardware
def command(
    source: options.Source = None,
    request: Annotated[
        int | None,
        typer.Option(
            "--request",
            metavar="N",
            parser=options.integer,
            help="Its number, from 0 in the order of the workload.",
            show_default="the one held up longest",
        ),
    ] = None,
    config_id: options.ConfigId = None,
    *,
    settings: list[str],
    whole: Annotated[bool, typer.Option("--all", help="Every event, however many there are.")] = False,
) -> int:
    """Tell the story of one request: why it waited, who evicted it, what it lost, where its time went.

    Every sentence is read off what the scheduler decided in each step of the run.
    """
    from fastsim.analysis.explain.explain import explain, worst_request
    from fastsim.analysis.explain.history import check_recorded, history_of
    from fastsim.cli.run import choose_config
    from fastsim.config import deployed
    from fastsim.simulation import simulate

    config = deployed(choose_config(source, config_id, settings))
    check_recorded(config)
    history = history_of(simulate(config, record_steps=True))
    if request is None:
        request = worst_request(history)
        typer.echo(f"note: --request is missing: request {request} was held up longest", err=True)
    typer.echo(story_text(explain(history, config, request), whole))
    return 0


def story_text(story: "Story", whole: bool = False) -> str:
    """The story: the answer, where the time went, what it waited for, then everything in order."""
    from fastsim.cli.tables import table, wrapped

    lines = [wrapped(story.answer), *(wrapped(fact) for fact in story.facts)]
    if story.shares:
        rows = [_share_row(story, share.what, share.ttft_us, share.rest_us) for share in story.shares]
        ttft_us, rest_us = (sum(us) for us in zip(*((s.ttft_us, s.rest_us) for s in story.shares), strict=True))
        rows.append(_share_row(story, "total", ttft_us, rest_us))
        lines += ["", table(["where its time went", "TTFT_s", "after_s", "E2E_s", "share", "TPOT_ms"], rows)]
    if story.waits:
        total_us = max(sum(us for _, us in story.waits), 1)
        waits = [[reason.value, f"{us / 1e6:,.3f}", f"{us / total_us:.0%}"] for reason, us in story.waits]
        lines += ["", table(["what it waited for in the queue", "s", "share"], waits)]
    if story.events:
        lines += ["", *_event_lines(story, whole)]
    return "\n".join(lines)


def _share_row(story: "Story", what: str, ttft_us: int, rest_us: int) -> list[str]:
    total_us = max(sum(share.total_us for share in story.shares), 1)
    each = f"{rest_us / story.tokens_after_first / 1e3:,.2f}" if story.tokens_after_first else "-"
    both = ttft_us + rest_us
    return [
        what,
        f"{ttft_us / 1e6:,.3f}",
        f"{rest_us / 1e6:,.3f}",
        f"{both / 1e6:,.3f}",
        f"{both / total_us:.0%}",
        each,
    ]


def _event_lines(story: "Story", whole: bool) -> list[str]:
    from textwrap import wrap

    from fastsim.cli.tables import width as line_width

    lines = []
    cut = not whole and len(story.events) > FIRST_EVENTS + LAST_EVENTS + 1
    for number, (at_us, text) in enumerate(story.events):
        if cut and FIRST_EVENTS <= number < len(story.events) - LAST_EVENTS:
            if number == FIRST_EVENTS:
                left_out = len(story.events) - FIRST_EVENTS - LAST_EVENTS
                lines.append(f"{'...':>11}  {left_out:,} more events: --all shows them")
            continue
        first, *others = wrap(text, max(12, line_width() - 13), break_on_hyphens=False)
        lines.append(f"{at_us / 1e6:>11.3f}  {first}")
        lines += [f"{'':13}{line}" for line in others]
    return lines
