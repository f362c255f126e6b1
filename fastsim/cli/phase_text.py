"""A phase map as text: a letter a cell, the boundaries in numbers, and JSON."""

from collections import Counter
from typing import Any

import numpy as np

from fastsim.analysis.phase.map import PhaseMap

LETTERS = {
    "ok": ".",
    "drained": "d",
    "not_judged": "n",
    "misses_slo": "m",
    "overloaded": "o",
    "thrash": "T",
    "starved": "S",
    "out_of_memory": "M",
    "livelock": "L",
    "unservable": "U",
    "failed": "E",
}
DISAGREE = "?"
MEANINGS = {
    "ok": "service holds",
    "drained": "a burst was served to its end",
    "not_judged": "the run is too short to tell",
    "misses_slo": "an SLO's p99 is beyond its bound",
    "overloaded": "more comes than is served",
    "thrash": "preempted work is computed again: more of the time than engine.thrash_threshold",
    "starved": "nobody is served for long while work is computed again, or somebody is passed by",
    "out_of_memory": "the engine gives away more KV than there is, and dies",
    "livelock": "nothing will ever complete",
    "unservable": "some requests can never fit",
    "failed": "the run failed",
}
COLUMNS, ROWS = 64, 32
_SIDES = ("beyond", "within")
"""What the table calls the two sides of a limit."""
ROWS_IN_NUMBERS = 5


def phase_text(found: PhaseMap) -> str:
    """The answer, the map with its legend, and where classes change along x."""
    from fastsim.cli.tables import wrapped

    if found.y is None:
        from fastsim.cli.phase_line import line_table

        details = line_table(found)
    else:
        details = _changes(found)
    parts = [wrapped(f"Answer: {answer_of(found)}"), "", _drawn(found), "", _legend(found), "", details, ""]
    parts += [wrapped(note) for note in _notes(found)]
    return "\n".join(parts)


def answer_of(found: PhaseMap) -> str:
    """The answer in a sentence."""
    if found.y is None:
        from fastsim.cli.phase_line import line_answer

        return line_answer(found)
    good = found.classes[-1]
    what = "service holds" if good == "ok" else good + " holds" if _is_verdict(found) else good
    shares = [(name, found.share(name)) for name in reversed(found.classes) if found.share(name) > 0]
    run = int(found.evaluated.sum())
    others = ", ".join(f"{name} on {_percent(share)}" for name, share in shares if name != good)
    return (
        f"{what} on {_percent(found.share(good))} of the map"
        + (f", {others}" if others else "")
        + (f"; seeds disagree in {int(found.disagrees.sum()):,} of {run:,} cells run." if found.seeds > 1 else ".")
    )


def _is_verdict(found: PhaseMap) -> bool:
    return found.column == "verdict"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "under 1 %"


def _letter(found: PhaseMap, code: int) -> str:
    if _is_verdict(found):
        return LETTERS[found.classes[code]]
    return ".#"[code != len(found.classes) - 1]


def _drawn(found: PhaseMap) -> str:
    """The map, y upwards. Where it is larger than the page, several cells share a letter: what most of them are."""
    from fastsim.cli.compare_text import cut
    from fastsim.cli.tables import width as line_width

    rows, columns = found.labels.shape
    tall, wide = -(-rows // ROWS), -(-columns // COLUMNS)
    starts = list(range(0, rows, tall))
    names = {start: "" if found.y is None else value_text(found.y.values[start]) for start in starts}
    width = max(map(len, names.values()))
    lines = [] if found.y is None else [cut(found.y.name, line_width())]
    for place, start in reversed(list(enumerate(starts))):
        letters = [
            _block(found, slice(start, start + tall), slice(column, column + wide))
            for column in range(0, columns, wide)
        ]
        named = place % 4 == 0 or start == starts[-1]
        lines.append(f"{names[start] if named else '':>{width}} |{''.join(letters)}")
    across = len(range(0, columns, wide))
    lines.append(" " * width + " +" + "-" * across)
    left, right = value_text(found.x.values[0]), value_text(found.x.values[-1])
    lines.append(" " * (width + 2) + left + right.rjust(max(across - len(left), len(right) + 1)))
    lines.append(" " * (width + 2) + cut(found.x.name, max(8, line_width() - width - 2)).center(across).rstrip())
    return "\n".join(lines)


def _block(found: PhaseMap, rows: slice, columns: slice) -> str:
    if found.disagrees[rows, columns].any():
        return DISAGREE
    counts = Counter(found.labels[rows, columns].ravel().tolist())
    return _letter(found, min(counts, key=lambda code: (-counts[code], code)))


def value_text(value: Any) -> str:
    """A value of an axis in at most 12 characters."""
    from fastsim.analysis.compare.rows import level_text
    from fastsim.cli.tables import number

    text = number(value) if isinstance(value, int | float) else level_text(value)
    return text if len(text) <= 12 else text[:11] + "…"


def _legend(found: PhaseMap) -> str:
    """What each letter that is on the map stands for."""
    lines = []
    for code in reversed(range(len(found.classes))):
        name = found.classes[code]
        if found.share(name) > 0:
            meaning = f"{name}: {MEANINGS[name]}" if _is_verdict(found) else f"{_SIDES[code]}: {name}"
            lines.append(f"  {_letter(found, code)}  {meaning}")
    if found.disagrees.any():
        mean = float(found.agreement[found.disagrees].mean())
        lines.append(
            f"  {DISAGREE}  seeds disagree, of the cells run: what happens depends on the requests drawn "
            f"(on average {100 * mean:.0f} % agree)"
        )
    return "\n".join(_fitted(line) for line in lines)


def _fitted(line: str) -> str:
    from fastsim.cli.tables import wrapped

    return wrapped(line, indent=5)


def _changes(found: PhaseMap) -> str:
    """Along x, at a few values of y: which class from where to where, and where seeds disagree at its end."""
    from fastsim.cli.tables import table

    y_axis = found.y
    assert y_axis is not None
    rows = found.labels.shape[0]
    picked = sorted({round(k * (rows - 1) / (ROWS_IN_NUMBERS - 1)) for k in range(ROWS_IN_NUMBERS)})
    lines = []
    for row in picked:
        for code, first, last, doubt in spans(found, row):
            name = found.classes[code] if _is_verdict(found) else _SIDES[code]
            values = [value_text(found.x.values[place]) for place in (first, last)]
            lines.append([value_text(y_axis.values[row]), name, *values, doubt])
    x, y = (name.rpartition(".")[2] for name in (found.x.name, y_axis.name))
    return table([y, "class", f"{x} from", "to", "seeds disagree"], lines, left=2)


def spans(found: PhaseMap, row: int) -> list[tuple[int, int, int, str]]:
    """Spans of one class along a row, and the cells around its end whose seeds disagree."""
    labels, doubtful = found.labels[row], found.disagrees[row]
    ends = [*np.flatnonzero(labels[:-1] != labels[1:]).tolist(), len(labels) - 1]
    out = []
    first = 0
    for last in ends:
        inside = [place for place in range(first, last + 1) if doubtful[place]]
        if inside:
            low, high = (value_text(found.x.values[place]) for place in (inside[0], inside[-1]))
            doubt = f"at {low}" if len(inside) == 1 else f"{low} to {high}"
        else:
            doubt = "-"
        out.append((int(labels[first]), first, last, doubt))
        first = last + 1
    return out


def _notes(found: PhaseMap) -> list[str]:
    rows, columns = found.labels.shape
    share = found.runs / found.full_runs
    notes = [
        f"{columns if found.y is None else f'{columns} x {rows}'} cells, "
        f"{found.seeds} seed{'s' * (found.seeds != 1)} each: {found.runs:,} runs, "
        f"{100 * share:.1f} % of the {found.full_runs:,} of the whole grid."
    ]
    if found.runs < found.full_runs:
        down, across = found.strides
        apart = str(across) if down == across or found.y is None else f"{across} x {down}"
        notes.append(
            f"Boundaries were followed from probes {apart} cells apart: an island that fits between them can be "
            "missed; --stride 1 runs every cell."
        )
    if found.seeds_alike and not found.disagrees.any():
        notes.append("All seeds give the same requests: --seeds 1 says the same with fewer runs.")
    if found.nothing_done:
        notes.append(
            f"In {found.nothing_done:,} of {found.runs:,} runs no request completed before the end of the run "
            "(run.horizon_s): lengthen it."
        )
    if found.at_base:
        notes.append(f"Left at the base configuration's value: {', '.join(found.at_base)}.")
    return notes


def phase_json(found: PhaseMap) -> str:
    """The map as one JSON object; `agreement` is null where a cell was not run."""
    import json

    known = np.where(found.evaluated, found.agreement, -1.0)
    return json.dumps(
        {
            "x": {"name": found.x.name, "values": list(found.x.values)},
            "y": None if found.y is None else {"name": found.y.name, "values": list(found.y.values)},
            "classes": list(found.classes),
            "shares": {name: found.share(name) for name in found.classes},
            "labels": found.labels.tolist(),
            "agreement": [[value if value >= 0 else None for value in row] for row in known.tolist()],
            "seeds": found.seeds,
            "cells_evaluated": int(found.evaluated.sum()),
            "cells_disagreeing": int(found.disagrees.sum()),
            "runs": found.runs,
            "full_runs": found.full_runs,
            "strides": list(found.strides),
            "at_base": list(found.at_base),
        }
    )
