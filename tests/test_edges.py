"""The edges of the process: streams that are closed, full or hostile, narrow terminals, pipes, and missing extras."""

import ast
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from fastsim.analysis.report import html
from fastsim.cli import VERBS
from fastsim.cli.run import store_table
from fastsim.cli.tables import width
from fastsim.errors import EXTRAS, InputError
from tests.processes import run
from tests.report_folders import FULL, make_folder

ROOT = Path(__file__).parent.parent
SPEC = (
    "engine.num_gpu_blocks = 400\nworkload.num_requests = 4\nworkload.prompt = {{ dist = 'constant', mean = 20 }}\n"
    "workload.output = {{ dist = 'constant', mean = 9 }}\n[sweep]\nseeds = 4\n"
    "axes = {{ engine.max_num_seqs = [1, 2] }}\n"
    "[answer]\nquestion = '{question}'\nbest = 'most request_throughput_req_per_s'\n"
)
BIDI, ESCAPE, BELL = "\u202e", "\x1b[2J", "\x07"


@pytest.fixture
def call(capsys):
    return partial(run, capsys)


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.format(question="Which?"))
    return path


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a command line in which FASTSIM is the command."""
    line = command.replace("FASTSIM", f"'{sys.executable}' -m fastsim")
    return subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_closed_stderr_changes_nothing(spec, tmp_path):
    done = shell(f"FASTSIM sweep {spec} --out {tmp_path}/out --workers 2 2>&-")
    assert done.returncode == 0
    assert done.stdout.startswith("Answer: ")
    assert len(list(tmp_path.glob("out/parts/*"))) == 1
    assert shell("FASTSIM run /nowhere.toml 2>&-").returncode == 2


def test_a_sweep_with_every_stream_closed_stores_its_rows(spec, tmp_path):
    done = shell(f"FASTSIM sweep {spec} --out {tmp_path}/out --workers 2 <&- >&- 2>&-")
    assert done.returncode == 0
    assert len(list(tmp_path.glob("out/parts/*"))) == 1


def test_a_closed_stdout_is_quiet(spec, tmp_path):
    done = shell(f"FASTSIM sweep {spec} --out {tmp_path}/out --workers 2 >&-")
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "rows/s" not in line and "compiling" not in line] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", ["columns", "--help", "sweep --help", "policies"])
def test_a_full_disk_under_stdout_is_one_sentence(command):
    done = shell(f"FASTSIM {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "standard output: cannot be written (No space left on device)\n"
    assert shell(f"FASTSIM {command} 2> /dev/full").returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_a_table_is_one_sentence(tmp_path):
    table = pl.DataFrame({"request": range(3)})
    for path, why in (("/dev/full", "No space left on device"), ("/nowhere/x", "No such file"), (tmp_path, "Is a dir")):
        with pytest.raises(InputError, match=rf"^--requests {path}: cannot be written \({why}"):
            store_table(table, Path(path), "--requests")
    store_table(table, tmp_path / "x.parquet", "--requests")
    assert pl.read_parquet(tmp_path / "x.parquet").equals(table)


def test_a_reader_that_has_gone_is_no_fault():
    done = shell("FASTSIM columns | head -1; echo ${PIPESTATUS[0]}")
    assert done.stdout.splitlines()[1:] == ["0"]
    assert done.stderr == ""


# --- hostile text ---------------------------------------------------------------------------------------------------


def test_control_characters_reach_no_terminal(tmp_path):
    folder = tmp_path / f"a{BIDI}b"
    folder.mkdir()
    path = folder / "spec.toml"
    path.write_text(SPEC.format(question="Which \\u202e and \\u001b[2J or \\u0007?").replace("'", '"'))
    done = shell(
        f"FASTSIM sweep '{path}' --out '{folder}/rows' --workers 1 --limit 2; FASTSIM run '{folder}/{ESCAPE}.toml'"
    )
    assert "Which \\u202e and " in done.stdout
    assert "a\\u202eb/rows" in done.stdout
    assert "\\x1b[2J.toml: cannot be read" in done.stderr
    for text in (done.stdout, done.stderr):
        assert not {BIDI, "\x1b", BELL} & set(text)


def test_hostile_text_in_a_report_is_shown_as_escapes(call, tmp_path):
    question = FULL["answer"] | {"question": f"Which{BIDI}<b>{BELL} remedy?"}
    choice = {"remedy": {f"no{BIDI}ne": {}, "water\x9bmark": {"engine.watermark": 0.05}}}
    sweep = FULL["sweep"] | {"choice": choice}
    folder = make_folder(tmp_path / "rows", FULL | {"answer": question, "sweep": sweep})
    assert call("report", folder)[0] == 0
    page = (folder / "report.html").read_text()
    own = page[: page.index("<script>")]  # what follows is Vega
    assert not {BIDI, BELL, "\x9b"} & set(own)
    assert "Which\\u202e&lt;b&gt;\\x07 remedy?" in own
    assert "no\\\\u202ene" in own
    shown = html.all_visible({f"a{BIDI}": [f"b{BELL}", 3, None, True]})
    assert shown == {"a\\u202e": ["b\\x07", 3, None, True]}
    assert html.text("line\n\tof < spec") == "line\n\tof &lt; spec"


# --- width ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [20, 40, 60, 80])
def test_columns_are_honoured(call, spec, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = tmp_path / "o"
    for words in (
        ("sweep", spec, "--out", out, "--workers", "1"),
        ("compare", out, "--by", "engine.max_num_seqs"),
        ("status", out),
        ("sweep", spec, "--dry-run"),
    ):
        code, output, errors = call(*words)
        assert code == 0, errors
        words_too_long = {word for word in output.split() if len(word) > columns - 6}
        wide = [line for line in output.splitlines() if len(line) > columns and not words_too_long & set(line.split())]
        exempt = ("parts: ", "complete: ", "8 rows", "8 configurations", "4 workloads", "Over ")
        assert [line for line in wide if not line.startswith(exempt)] == []


def test_the_width_stays_within_bounds(monkeypatch):
    for columns, expected in (("5", 20), ("20", 20), ("63", 63), ("200", 80), ("x", 80)):
        monkeypatch.setenv("COLUMNS", columns)
        assert width() == expected


# --- pipes ----------------------------------------------------------------------------------------------------------

WITH_A_FILE = {
    "run": ("run", "PIPE"),
    "sweep": ("sweep", "PIPE", "--dry-run"),
    "check": ("check", "PIPE"),
    "phase": ("phase", "PIPE", "--x", "engine.max_num_seqs", "--y", "engine.num_gpu_blocks"),
    "recommend": ("recommend", "PIPE"),
    "explain": ("explain", "PIPE"),
    "trace": ("run", "SPEC", "--trace", "PIPE"),
    "model": ("run", "--model", "PIPE", "--gpu", "h100"),
    "beside": ("run", "SPEC", "--beside", "PIPE"),
    "log": ("calibrate", "SPEC", "--from-log", "PIPE"),
    "calibrate": ("calibrate", "PIPE"),
    "workload": ("workload", "show", "PIPE"),
    "verify": ("verify", "PIPE"),
    "status": ("status", "PIPE"),
    "compare": ("compare", "PIPE", "--by", "engine.max_num_seqs"),
    "report": ("report", "PIPE"),
    "compact": ("compact", "PIPE"),
    "merge": ("merge", "PIPE", "--out", "OUT"),
    "out": ("sweep", "SPEC", "--out", "PIPE"),
}


@pytest.mark.parametrize("name", WITH_A_FILE)
def test_a_pipe_that_nobody_writes_to_is_one_sentence(call, spec, tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    places = {"PIPE": tmp_path / "pipe", "SPEC": spec, "OUT": tmp_path / "out"}
    code, output, errors = call(*(places.get(word, word) for word in WITH_A_FILE[name]))
    assert (code, output) == (2, "")
    assert str(tmp_path / "pipe") in errors
    assert errors.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
def test_a_spec_may_come_through_the_shells_pipe(call, spec):
    read, write = os.pipe()
    threading.Thread(target=lambda: (os.write(write, spec.read_bytes()), os.close(write))).start()
    code, output, errors = call("sweep", f"/dev/fd/{read}", "--dry-run")
    os.close(read)
    assert code == 0, errors
    assert output.startswith("8 configurations")
    code, _, errors = call("run", "/dev/zero")
    assert (code, errors) == (2, "/dev/zero: not a regular file, but a TOML file was expected\n")


# --- extras ---------------------------------------------------------------------------------------------------------

NEEDS = {
    "calibrate": ("scipy", "calibrate", ("calibrate", "RUN")),
    "calibrate --chart": ("altair", "plot", ("calibrate", "RUN", "--chart", "c.html")),
    "calibrate --chart to a picture": ("vl_convert", "plot", ("calibrate", "RUN", "--chart", "c.png")),
    "report": ("altair", "plot", ("report", "RUN")),
    "report without a converter": ("vl_convert", "plot", ("report", "RUN", "--png", "p.png")),
    "sweep --backend ray": ("ray", "ray", ("sweep", "SPEC", "--out", "OUT", "--backend", "ray")),
}


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_extra_is_one_sentence_that_names_it(call, spec, tmp_path, monkeypatch, name):
    module, extra, words = NEEDS[name]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    places = {"RUN": tmp_path / "nothing", "SPEC": spec, "OUT": tmp_path / "out"}
    code, output, errors = call(*(places.get(word, word) for word in words))
    assert (code, output) == (2, "")
    assert f"needs {module}" in errors
    assert errors.endswith(f"not installed: pip install 'fastsim-llm[{extra}]'\n")
    assert errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_every_other_verb_does_without_extras():
    """Files that import an extra at once are reached only behind `need`; every verb's own file is read without any."""
    at_once = set()
    for path in sorted((ROOT / "fastsim").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.partition(".")[0] in EXTRAS for name in names):
                at_once.add(path.relative_to(ROOT / "fastsim").as_posix())
    behind = {
        "analysis/report/charts.py",
        "analysis/report/charts_axes.py",
        "analysis/report/load_curves.py",
        "analysis/report/phase_chart.py",
        "sweeps/runner/ray_pool.py",
    }
    assert at_once == behind
    code = (
        f"import sys\nfor name in {sorted(EXTRAS)}: sys.modules[name] = None\n"
        f"from importlib import import_module\nfor verb in {[verb.replace('-', '_') for verb in VERBS]}: "
        "import_module(f'fastsim.cli.{verb}')\n"
        "import fastsim\n[getattr(fastsim, name) for name in fastsim.__all__]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
