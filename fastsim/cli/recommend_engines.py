"""Which engine, as text: the answer, each with its flags, then all about the best one."""

from typing import TYPE_CHECKING

from fastsim.cli.recommend_text import interval_text, judged, recommendation_text, shell_command, signed, table_for
from fastsim.cli.tables import wrapped

if TYPE_CHECKING:
    from fastsim.analysis.recommend.engines import Rivals


def rivals_text(found: "Rivals", price: float | None = None) -> str:
    """The better engine in a sentence, each with its command and what it does, then the recommendation of the best."""
    parts = [wrapped(_answer(found)), _commands(found), _table(found), _notes(found)]
    parts += [f"{found.names[0]}:", recommendation_text(found.best, price)]
    return "\n\n".join(part for part in parts if part)


def _answer(found: "Rivals") -> str:
    best = found.best
    if not best.best.outlook.serves:
        return "Nothing completes under any of these engines."
    what = "goodput" if best.terms else "requests per second"
    told = [_against(name, found, k, what) for k, name in enumerate(found.names[1:])]
    first = f"Answer: {found.names[0]}" if found.decided else f"Answer: {found.names[0]}, though that is not shown"
    return f"{first}: {'; '.join(told)}."


def _against(name: str, found: "Rivals", place: int, what: str) -> str:
    """What the best does that another one does not."""
    other, gain = found.ranked[place + 1], found.gains()[place]
    if found.best.meets > other.meets:
        return f"it meets the SLO, {name} does not with any setting ({what} {signed(gain)})"
    if gain.low is not None and gain.low > 0:
        return f"{signed(gain)} {what}, compared with {name}"
    return f"no difference in {what} from {name} is shown ({signed(gain)})"


def _commands(found: "Rivals") -> str:
    lines = []
    for name, each in zip(found.names, found.ranked, strict=True):
        lines += [f"{name}, {'meets' if each.meets else 'misses'} the SLO:" if each.terms else f"{name}:"]
        lines.append(shell_command(each.command))
    return "\n".join(lines)


def _table(found: "Rivals") -> str:
    rows: list[list[object]] = []
    gains = [None, *found.gains()]
    for name, each, gain in zip(found.names, found.ranked, gains, strict=True):
        seqs, tokens = each.best.numbers
        changed = "" if gain is None else signed(gain)
        goodput = interval_text(each.best.outlook)
        rows.append([name, seqs, tokens, goodput, changed, *judged(each.best.outlook)])
    header = ["engine", "seqs", "tokens", "goodput", "best gains (95 %)", "margin", "SLO"]
    return table_for(found.best, header, rows)


def _notes(found: "Rivals") -> str:
    own = [f"note: {note}" for note in found.notes]
    for name, each in zip(found.names[1:], found.ranked[1:], strict=True):
        own += [f"note: {name}: {note}" for note in each.notes if note not in found.best.notes]
    return "\n".join(wrapped(line, indent=6) for line in own)
