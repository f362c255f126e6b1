"""The page of a sweep: the answer first, then where service holds, trade-offs, axes, seeds, every setting."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl

from fastsim.analysis.cost import COST
from fastsim.analysis.numbers import number
from fastsim.analysis.report import html, section_axes, section_table, sections
from fastsim.analysis.report.document import document
from fastsim.analysis.report.figures import outcome_text, setting_text
from fastsim.analysis.report.question import MEETS
from fastsim.analysis.report.rows import OUTCOMES, SweepReport
from fastsim.errors import InputError
from fastsim.sweeps.store.contents import Contents


@dataclass(frozen=True)
class Provenance:
    """Where the rows come from, for the end of the page."""

    about: tuple[tuple[str, str], ...]
    spec: str
    errors: tuple[dict[str, object], ...]
    warnings: tuple[str, ...]


def provenance(found: Contents) -> Provenance:
    """What a sweep's folder says of itself."""
    folder, manifest = found.folder, found.manifest
    if manifest is None:
        raise InputError(f"{folder}: no readable manifest.json, but a sweep's folder was expected")
    written = datetime.fromtimestamp((folder / "manifest.json").stat().st_mtime, UTC)
    spec = folder / "spec.toml"
    about = (
        ("folder", folder.resolve().name),
        ("state", "complete, every file as it was stored" if found.is_complete else f"{found.rows:,} rows are there"),
        ("spec hash", manifest.spec_hash),
        ("selection", f"{manifest.selection}, {manifest.rows:,} of {manifest.grid_size:,} configurations"),
        ("shard", " of ".join(map(str, manifest.shard))),
        ("rows last written", f"{written:%Y-%m-%d %H:%M} UTC"),
        ("versions", _pairs(manifest.versions)),
        ("host", _pairs(manifest.host)),
        ("seconds of the sweep", str(manifest.totals.get("seconds", "not recorded"))),
        ("failed rows", str(manifest.totals.get("errors", "not recorded"))),
        ("sources that decide numbers", f"{len(manifest.sources)} files, hashes in manifest.json"),
        ("report written", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
    )
    text = spec.read_text(errors="replace") if spec.is_file() else ""
    part = [f"These rows are {found.extent()}: what is said of them need not hold for the whole grid."]
    warnings = [*(part if found.extent() else []), *(f"{note}." for note in found.notes())]
    return Provenance(about, text, tuple(manifest.errors), tuple(warnings))


def _pairs(table: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in table.items())


def page(sweep: SweepReport, source: Provenance, gpu_hour_price: float | None = None) -> str:
    """The HTML of a report. Its last line states its size."""
    charts = html.Charts()
    title = sweep.question.text or f"Sweep {sweep.folder.resolve().name}"
    warnings = [sections.failures(sweep, [dict(error) for error in source.errors])]
    warnings += [html.paragraph(warning, "warning") for warning in source.warnings]
    parts = [
        ("answer", "Answer", "".join(warnings) + sections.answer(sweep)),
        ("where", "Where service holds", sections.where(sweep, charts)),
        ("load", "Over the load", sections.over_load(sweep, charts)),
        ("trade", "Trade-offs", sections.trade(sweep, charts)),
        ("changes", "What each axis changes", section_axes.changes(sweep, charts)),
        ("chance", "Over seeds", section_axes.chance(sweep, charts)),
        ("table", "All settings", section_table.every_setting(sweep)),
        ("source", "Where this comes from", _source(source, gpu_hour_price)),
    ]
    if gpu_hour_price is not None:
        parts[0] = (*parts[0][:2], parts[0][2] + html.paragraph(_cost(sweep, gpu_hour_price)))
    parts = [part for part in parts if part[2]]
    return document(title, f"fastsim report · {sweep.folder.resolve().name}", parts, charts)


def _source(source: Provenance, price: float | None) -> str:
    about = source.about if price is None else (*source.about, ("GPU price", f"{price:g} an hour for each server"))
    parts = [html.definitions(about, "about")]
    if source.errors:
        rows = [[html.Cell(str(e["config_id"])), html.Cell(str(e["error"]), word=True)] for e in source.errors[:50]]
        parts.append(html.folded("Failures", html.table(["config_id", "error"], rows, "The first failures")))
    if source.spec:
        parts.append(html.folded("The spec, whole", f"<pre tabindex=0>{html.text(source.spec)}</pre>"))
    return "\n".join(parts)


def _cost(sweep: SweepReport, price: float) -> str:
    known = sweep.settings.filter(pl.col(COST).is_not_null()).sort(COST, "config_id")
    if known.is_empty():
        return f"At {price:g} a GPU-hour no setting has a cost: none delivered a token."
    text = f"At {price:g} an hour for the GPUs of one server, a million output tokens cost "
    good = known.filter(pl.col("n|ok") == pl.col("rows"), *([pl.col(MEETS) == 1] if MEETS in sweep.metrics else []))
    which = "whose verdict is ok" + (" and that meet the conditions" if MEETS in sweep.metrics else "")
    if good.is_empty():
        ends = known[COST].head(1).item(), known[COST].tail(1).item()
        return f"{text}from {number(ends[0])} to {number(ends[1])}; there are no settings {which}."
    best, cheapest = good.row(0, named=True), known.row(0, named=True)
    text += f"least, {number(best[COST])}, with {setting_text(sweep, best)}, of the settings {which}"
    if cheapest["config_id"] != best["config_id"]:
        text += f"; of all settings {number(cheapest[COST])} ({outcome_text(cheapest, OUTCOMES)}) with "
        text += setting_text(sweep, cheapest)
    return text + "."
