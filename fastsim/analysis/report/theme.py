"""How charts look.

Colours are CSS variables, so that a page in the dark or on paper changes them without a redraw; `in_light` puts the
light ones in for a picture. Nothing is told by colour alone: shapes and texts say the same.
"""

from typing import Any

from fastsim.analysis.report.rows import ERROR

LIGHT = {
    "ink": "#1c2430",
    "muted": "#556070",
    "line": "#c9d0da",
    "paper": "#ffffff",
    "ok": "#0f7b53",
    "drained": "#2563eb",
    "not_judged": "#64748b",
    "misses_slo": "#854d0e",
    "overloaded": "#b45309",
    "thrash": "#7c3aed",
    "starved": "#c2185b",
    "out_of_memory": "#7f1d1d",
    "livelock": "#b91c1c",
    "unservable": "#57534e",
    "error": "#111111",
    "accent": "#1d5fbf",
    "s0": "#eef4fb",
    "s1": "#c6dcf2",
    "s2": "#8fbbe4",
    "s3": "#3a78b5",
    "s4": "#1f5c99",
    "t0": "#1c2430",
    "t1": "#1c2430",
    "t2": "#1c2430",
    "t3": "#ffffff",
    "t4": "#ffffff",
}
DARK = {
    "ink": "#e8ecf2",
    "muted": "#a8b3c2",
    "line": "#3b4656",
    "paper": "#12171f",
    "ok": "#4ade9f",
    "drained": "#93c5fd",
    "not_judged": "#94a3b8",
    "misses_slo": "#fde047",
    "overloaded": "#fbb454",
    "thrash": "#c4a3ff",
    "starved": "#ff8ab8",
    "out_of_memory": "#fca5a5",
    "livelock": "#ff7b7b",
    "unservable": "#bdb6b0",
    "error": "#ffffff",
    "accent": "#7db4ff",
    "s0": "#1b2633",
    "s1": "#21405f",
    "s2": "#2f6496",
    "s3": "#69a5da",
    "s4": "#b5d8f7",
    "t0": "#e8ecf2",
    "t1": "#e8ecf2",
    "t2": "#ffffff",
    "t3": "#0c1118",
    "t4": "#0c1118",
}
"""The same names for a dark page. Text on paper and on s0 to s4 has a contrast of 4.5 or more, marks 3 or more."""

CLASSES = 5
"""Shades of a metric's map."""

HEXAGON = "M0,-1L0.87,-0.5L0.87,0.5L0,1L-0.87,0.5L-0.87,-0.5Z"
BAR = "M-1,-0.35L1,-0.35L1,0.35L-1,0.35Z"
STAR = "M0,-1L0.26,-0.36L0.95,-0.31L0.42,0.14L0.59,0.81L0,0.45L-0.59,0.81L-0.42,0.14L-0.95,-0.31L-0.26,-0.36Z"
"""Marks that are as easily seen as Vega's own, as paths within -1 to 1."""

SHAPES = {
    "ok": "circle",
    "drained": HEXAGON,
    "not_judged": BAR,
    "misses_slo": "triangle-left",
    "overloaded": "square",
    "thrash": "triangle-up",
    "starved": "diamond",
    "out_of_memory": STAR,
    "livelock": "cross",
    "unservable": "triangle-down",
    ERROR: "triangle-right",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"


def colour(name: str) -> str:
    """A colour by name, as charts write it."""
    return f"var(--{name})"


def css_variables() -> str:
    """The colours as CSS: light, and dark where the reader prefers it, but never on paper."""
    light = "".join(f"--{name}:{value};" for name, value in LIGHT.items())
    dark = "".join(f"--{name}:{value};" for name, value in DARK.items())
    return (
        f":root{{color-scheme:light dark;{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
    )


def in_light(spec: Any) -> Any:
    """A chart with the light colours in place of the variables."""
    if isinstance(spec, dict):
        return {key: in_light(value) for key, value in spec.items()}
    if isinstance(spec, list):
        return [in_light(value) for value in spec]
    if isinstance(spec, str) and spec.startswith("var(--"):
        return LIGHT[spec.removeprefix("var(--").removesuffix(")")]
    return spec


def config() -> dict[str, Any]:
    """Vega-Lite's configuration."""
    ink, muted, line = colour("ink"), colour("muted"), colour("line")
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": line},
        "axis": {
            "labelColor": ink,
            "titleColor": ink,
            "tickColor": line,
            "domainColor": muted,
            "gridColor": line,
            "gridOpacity": 0.6,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 600,
            "labelLimit": 220,
            "maxExtent": 300,
        },
        "legend": {
            "orient": "top",
            "labelColor": ink,
            "titleColor": ink,
            "labelFontSize": 12,
            "symbolSize": 110,
            "columns": 3,
            "labelLimit": 260,
        },
        "title": {"color": ink, "subtitleColor": muted, "fontSize": 15, "subtitleFontSize": 12, "anchor": "start"},
        "text": {"color": ink, "fontSize": 12},
        "rule": {"color": muted},
    }
