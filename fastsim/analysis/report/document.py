"""One HTML file with everything in it, scripts and data included; nothing is fetched."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from fastsim.analysis.report import html
from fastsim.analysis.report.theme import config, css_variables

POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
"""What a browser lets the page do: nothing from anywhere else. (Vega makes functions of its expressions.)"""

_SIZE = "@@@@@@@ kB"


def document(title: str, kicker: str, parts: Sequence[tuple[str, str, str]], charts: html.Charts) -> str:
    """The file, whole. `parts` are name, heading and HTML of each section; the last line states the file's size."""
    links = "".join(f'<li><a href="#{name}">{heading}</a>' for name, heading, _ in parts)
    body = "\n".join(
        f"<section class=section-{name} aria-labelledby={name}>"
        f"<h2 id={name} tabindex=-1>{heading}</h2>\n{inner}\n</section>"
        for name, heading, inner in parts
    )
    text = f"""<!doctype html>
<html lang=en>
<head>
<meta charset=utf-8>
<meta name=viewport content="width=device-width,initial-scale=1">
<meta http-equiv=Content-Security-Policy content="{POLICY}">
<meta name=color-scheme content="light dark">
<link rel=icon href="data:,">
<title>{html.text(title)} – fastsim report</title>
<style>
{css_variables()}{_resource("style.css")}</style>
</head>
<body>
<a class=skip href="#answer">Skip to the answer</a>
<header>
<p class=kicker>{html.text(kicker)}</p>
<h1>{html.text(title)}</h1>
<nav aria-label=Sections><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
<noscript><p class=warning>Charts need JavaScript; their figures are in the tables.</p></noscript>
<footer><p class=note>This file is {_SIZE} and complete: nothing is fetched.</p></footer>
{html.json_block("charts", charts.specs)}
{html.json_block("config", config())}
<script>
{_bundle()}
</script>
<script>
{_resource("script.js")}</script>
</body>
</html>
"""
    return text.replace(_SIZE, f"{len(text.encode()) / 1000:,.0f} kB")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that ends in no tag of the page."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    # The type stub asks for a snippet; without one the bundle puts vegaEmbed into the window
    bundle = vl_convert.javascript_bundle(vl_version=version)  # type: ignore[call-arg]
    return str(bundle).replace("</script", "<\\/script")


def _resource(name: str) -> str:
    return (files("fastsim.analysis.report") / name).read_text(encoding="utf-8")
