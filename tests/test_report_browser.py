"""The report in a real browser: headless Chromium, where the machine has one (Debian: `apt-get install chromium`)."""

import json
import os
import re
import shutil
import subprocess
from html import unescape

import pytest

from fastsim.cli import main
from tests.report_folders import FULL, make_folder

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = os.environ.get("FASTSIM_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on this machine (install one, or name it in FASTSIM_CHROMIUM)"
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # nothing outside is reached, by the browser itself neither
    "--virtual-time-budget=20000",
)

WATCH = """<script>
window.complaints = [];
for (const kind of ["error", "warn"]) {
  const said = console[kind];
  console[kind] = (...words) => { complaints.push(kind + ": " + words.join(" ")); said(...words); };
}
addEventListener("error", (event) => complaints.push("thrown: " + event.message));
addEventListener("securitypolicyviolation", (event) => complaints.push("fetched: " + event.blockedURI));
</script>"""

LOOK = """<script>
const looking = setInterval(() => {
  const page = document.documentElement;
  if (!page.dataset.drawn) return;
  clearInterval(looking);
  const seen = {complaints, width: innerWidth, content: page.scrollWidth, drawn: Number(page.dataset.drawn)};
  const marks = (chart) => chart.querySelectorAll(".mark-symbol path, .mark-rect path, .mark-rule line").length;
  const label = (chart) => chart.getAttribute("aria-label");
  seen.charts = [...document.querySelectorAll("[data-chart]")].map(marks);
  const labels = [...document.querySelectorAll("[data-chart]")].map(label);
  seen.described = labels.filter((words) => words?.length > 30).length;
  seen.widest = Math.max(...[...document.querySelectorAll(".chart svg")].map((svg) => svg.clientWidth));
  seen.background = getComputedStyle(page).backgroundColor;
  seen.fetched = performance.getEntriesByType("resource").map((entry) => entry.name);
  const rows = () => [...document.querySelectorAll("#settings tbody tr")].filter((row) => !row.hidden);
  const search = document.getElementById("search");
  const type = (words) => { search.value = words; search.dispatchEvent(new Event("input")); };
  type("watermark not");
  seen.found = [rows().length, document.getElementById("count").textContent];
  type("");
  const heads = [...document.querySelectorAll("#settings th")];
  const column = heads.findIndex((head) => head.textContent.startsWith("TTFT p99"));
  const read = () => rows().map((row) => row.cells[column].textContent);
  heads[column].querySelector("button").click();
  seen.ascending = read();
  heads[column].querySelector("button").click();
  seen.descending = [heads[column].getAttribute("aria-sort"), ...read()];
  const choose = (select, k) => {
    select.selectedIndex = k;
    select.dispatchEvent(new Event("input", {bubbles: true}));
    select.dispatchEvent(new Event("change", {bubbles: true}));
  };
  const select = document.querySelector(".chart select");
  const chart = select.closest("[data-chart]");
  seen.loads = select.options.length;
  const before = marks(chart);
  choose(select, 1);
  setTimeout(() => {
    seen.chosen = [before, marks(chart)];
    parent.postMessage(JSON.stringify(seen), "*");
  }, 500);
}, 50);
</script>"""

FRAME = """<!doctype html><meta name=color-scheme content="light dark"><style>:root{color-scheme:light dark}</style>
<pre id=seen></pre><script>
addEventListener("message", (event) => { document.getElementById("seen").textContent = event.data; });
</script><iframe src="PAGE" width=WIDTH height=900 style="border:0"></iframe>"""
"""A window cannot be narrower than 500 pixels; a frame in it can be a phone."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    make_folder(folder / "full", FULL, failing=(3, 7))
    with pytest.raises(SystemExit):
        main(["report", str(folder / "full"), "--html", str(folder / "report.html"), "--gpu-hour-price", "2"])
    text = (folder / "report.html").read_text()
    body, _, rest = text.replace("<head>", f"<head>{WATCH}", 1).rpartition("</body>")
    (folder / "watched.html").write_text(f"{body}{LOOK}</body>{rest}")
    return folder / "watched.html"


def opened(page, width, *flags):
    """What a frame of that width shows."""
    profile, frame = page.with_name(f"profile-{width}"), page.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.replace("PAGE", page.name).replace("WIDTH", str(width)))
    command = [BROWSER, *FLAGS, f"--window-size={width + 100},1000", f"--user-data-dir={profile}", *flags]
    command += ["--dump-dom", frame.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, re.S)
    assert found is not None, done.stderr[-2000:]
    return json.loads(unescape(found[1]))


@pytest.fixture(scope="module")
def wide(report):
    return opened(report, 1440)


def check_drawn(seen, width, background):
    assert seen["complaints"] == []
    assert seen["fetched"] == []
    assert seen["drawn"] == len(seen["charts"]) >= 10
    assert min(seen["charts"]) > 0
    assert seen["described"] == seen["drawn"]
    assert seen["content"] <= seen["width"] == width, "the page scrolls sideways"
    assert seen["widest"] <= width
    assert seen["background"] == background


def test_a_browser_draws_it_without_complaint_or_request(wide):
    check_drawn(wide, 1440, "rgb(255, 255, 255)")


def test_a_phone_in_the_dark_shows_it_without_scrolling_sideways(report):
    seen = opened(report, 390, "--blink-settings=preferredColorScheme=0")
    check_drawn(seen, 390, "rgb(18, 23, 31)")


def test_the_table_is_searched_and_sorted_and_a_chart_shows_one_load(wide):
    shown = wide["found"][0]
    assert 0 < shown < 18
    assert wide["found"][1] == f"{shown} of 18 rows shown"
    for order, texts in ((1, wide["ascending"]), (-1, wide["descending"][1:])):
        numbers = [float(text.replace(",", "")) for text in texts if "not reached" not in text]
        assert len(numbers) > 3
        assert numbers == sorted(numbers, reverse=order < 0)
        assert all("not reached" in text for text in texts[len(numbers) :])  # infinite: last in any order
    assert wide["descending"][0] == "descending"
    assert wide["loads"] == 4
    assert wide["chosen"][1] < wide["chosen"][0]


@pytest.mark.slow
def test_the_watch_sees_a_request_and_an_error(report):
    broken = report.with_name("broken.html")
    extra = '<img src="https://example.invalid/x.png"><script>nonsense()</script>'
    broken.write_text(report.read_text().replace("<main>", f"<main>{extra}", 1))
    complaints = " ".join(opened(broken, 800)["complaints"])
    assert "fetched: https://example.invalid" in complaints
    assert "thrown: " in complaints
