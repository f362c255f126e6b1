"""The numbers behind the charts: classes of a map, lanes for what was not reached, settings in words."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from fastsim.analysis.compare.metrics import null_is_infinite
from fastsim.analysis.compare.paired import level_text
from fastsim.analysis.numbers import number
from fastsim.analysis.report.phase import PhaseGrid
from fastsim.analysis.report.rows import OUTCOMES, SweepReport
from fastsim.analysis.report.theme import CLASSES
from fastsim.analysis.report.tradeoff import TradeOff

NOT_REACHED, NO_VALUE = "not reached", "no value"
LOG_RATIO = 30.0
"""A metric is drawn on a logarithmic scale when its largest value is so many times its smallest."""


def missing(metric: str) -> str:
    """What a null says."""
    return NOT_REACHED if null_is_infinite(metric) else NO_VALUE


def value_text(row: dict[str, Any], metric: str) -> str:
    """A setting's figure as text: what is null says how often."""
    nulls = row[f"{metric}|null"]
    if nulls and null_is_infinite(metric):
        return NOT_REACHED if nulls == row["rows"] else f"{NOT_REACHED} in {nulls} of {row['rows']}"
    if row[metric] is None:
        return NO_VALUE
    return f"{number(row[metric])} ({NO_VALUE} in {nulls} of {row['rows']})" if nulls else number(row[metric])


def setting_text(sweep: SweepReport, row: dict[str, Any]) -> str:
    """A setting in words: `max_num_seqs 64, watermark 0.05`."""
    varied = [axis for axis in sweep.axes if len(axis.labels) > 1]
    shorts = [axis.short for axis in varied]
    names = [axis.short if shorts.count(axis.short) == 1 else axis.name for axis in varied]
    return ", ".join(f"{name} {level_text(row[axis.name])}" for name, axis in zip(names, varied, strict=True))


def outcome_text(row: dict[str, Any], outcomes: tuple[str, ...]) -> str:
    """A setting's verdicts: one word, or how many seeds have each."""
    counts = {name: row[f"n|{name}"] for name in outcomes if row[f"n|{name}"]}
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def in_a_cell(value: float) -> str:
    """A number in at most six characters or so: `5.7e-4`, `12.3k`."""
    text = number(value)
    if len(text) <= 6:
        return text
    if abs(value) >= 1000:
        size, unit = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        return f"{value / size:.3g}{unit}"
    head, _, power = f"{value:.1e}".partition("e")
    return f"{head}e{int(power)}" if abs(value) < 0.01 else f"{value:.3g}"


def cell_classes(phase: PhaseGrid, metric: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The cells of a metric's map, each in one of at most five classes of about as many cells, and the classes."""
    values = phase.cells[metric].drop_nulls().to_numpy()
    distinct = np.unique(values)
    edges = (
        np.unique(np.quantile(distinct, np.arange(1, CLASSES) / CLASSES)) if len(distinct) > CLASSES else distinct[1:]
    )
    labels, index = [], np.searchsorted(edges, values, side="right")
    for k in range(len(edges) + 1):
        mine = values[index == k]
        if len(mine):
            low, high = number(float(mine.min())), number(float(mine.max()))
            labels.append(low if low == high else f"{low} to {high}")
        else:
            labels.append("")
    records = []
    for cell in phase.records():
        value, none = cell[metric], cell[f"{metric}|none"]
        text = in_a_cell(value) + ("*" if none else "") if value is not None else "×"
        full = missing(metric) if value is None else number(value)
        if value is not None and none:
            full += f"; {missing(metric)} in {100 * none:.0f} % of the settings"
        which = missing(metric) if value is None else labels[int(np.searchsorted(edges, value, side="right"))]
        shown = {"x": cell["x"], "y": cell["y"], "value": value, "text": text, "full": full}
        records.append(shown | {"class": which, "settings": cell["settings"]})
    return records, list(dict.fromkeys(label for label in labels if label))


def points_with_lane(sweep: SweepReport, trade: TradeOff) -> tuple[list[dict[str, Any]], float | None, bool]:
    """Points to draw, where the lane of those without a y stands (None: there are none), and whether y is a log."""
    known = trade.points["y"].drop_nulls().to_numpy()
    low, high = (float(known.min()), float(known.max())) if len(known) else (1.0, 1.0)
    log = low > 0 and high / low > LOG_RATIO
    lane = None
    if trade.points["y"].null_count():
        lane = high * (high / low) ** 0.12 if log else high + 0.12 * ((high - min(low, 0.0)) or 1.0)
    # A load without a front has a line of one point, which is not seen: a chart with no data at all is complained of
    fronted = set(trade.points.filter("front")["load"].to_list())
    others = trade.points.filter(~pl.col("load").is_in(list(fronted), nulls_equal=True))
    alone = set(others.unique("load", keep="first", maintain_order=True)["config_id"].to_list())
    records = [
        {
            "x": float(f"{point['x']:.6g}"),
            "y": float(f"{lane if point['y'] is None else point['y']:.6g}"),
            "text": missing(trade.y) if point["y"] is None else number(point["y"]),
            "lost": point["y"] is None,
            "line": point["front"] or point["config_id"] in alone,
            "load": point["load"],
            "outcome": point["outcome"],
            "config_id": point["config_id"],
            "setting": setting_text(sweep, point),
        }
        for point in trade.points.to_dicts()
    ]
    return records, lane, log


def low_high(records: list[dict[str, Any]]) -> tuple[float, float]:
    """The least and the greatest y that was reached; 1 and 1 when none was."""
    known = [record["y"] for record in records if not record["lost"]]
    return (min(known), max(known)) if known else (1.0, 1.0)


def answered(sweep: SweepReport) -> SweepReport:
    """With an answer in any case: where the question has none, the best setting by what is asked for."""
    name, most = sweep.objectives[0]
    if sweep.question.answer or name not in sweep.metrics:
        return sweep
    best = sweep.ranked.row(0, named=True)
    words = "No row has a value." if best[name] is None else _best_words(sweep, best)
    answer = f"{'Most' if most else 'Least'} {sweep.label(name)}: {words}"
    return replace(sweep, question=replace(sweep.question, answer=answer))


def _best_words(sweep: SweepReport, best: dict[str, Any]) -> str:
    setting = setting_text(sweep, best)
    verdict = outcome_text(best, OUTCOMES)
    return f"{number(best[sweep.objectives[0][0]])}{' with ' if setting else ''}{setting} ({verdict})."
