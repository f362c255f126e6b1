"""Phase maps: the refinement on drawn maps, axes, classes, real maps against the whole grid, and the command."""

import json

import numpy as np
import polars as pl
import pytest

import fastsim
from fastsim.analysis.phase.axes import PhaseAxis, phase_grid
from fastsim.analysis.phase.classes import read_classes
from fastsim.analysis.phase.map import PhaseMap, phase
from fastsim.analysis.phase.refine import refine
from fastsim.cli.phase_text import phase_text
from fastsim.config import spec_from_mapping
from fastsim.errors import InputError
from tests.processes import run

Y, X = np.mgrid[0:64, 0:64]


class Drawn:
    """A map that counts how often each cell is asked for."""

    def __init__(self, labels, undecided=None):
        self.labels = np.asarray(labels).astype(np.int64)
        self.undecided = np.zeros(self.labels.shape, bool) if undecided is None else undecided
        self.asked = np.zeros(self.labels.shape, int)

    def __call__(self, cells):
        np.add.at(self.asked, (cells[:, 0], cells[:, 1]), 1)
        return self.labels[cells[:, 0], cells[:, 1]], self.undecided[cells[:, 0], cells[:, 1]]


DRAWN = {
    "one class": X * 0,
    "half": X > 30,
    "diagonal": X > Y,
    "two hyperbolas": ((X + 3) * (Y + 3) > 700).astype(int) + ((X + 3) * (Y + 3) > 1400),
    "a disc": (X - 30) ** 2 + (Y - 25) ** 2 < 200,
    "a thin band": np.where(X == Y, 1, np.where(X > Y, 2, 0)),
    "three meet": np.where(Y > 30, 0, np.where(X > 40 + Y // 5, 1, 2)),
    "a stripe of one cell": X == 13,
    "a bay that narrows": (X > 20) & (np.abs(Y - 33) > (63 - X) // 9),
}


@pytest.mark.parametrize("name", DRAWN)
def test_boundaries_between_probes_are_found_exactly(name):
    drawn = Drawn(DRAWN[name])
    labels, known = refine((64, 64), drawn, (8, 8))
    assert np.array_equal(labels, drawn.labels)
    assert np.array_equal(drawn.asked, known)  # nothing is asked for twice
    assert known.mean() < 0.15


def test_random_regions_of_several_classes():
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(30):
        rows, columns = rng.integers(20, 70, 2)
        y, x = np.mgrid[0:rows, 0:columns]
        labels = np.zeros((rows, columns), int)
        for _ in range(3):  # half-planes: every region is cut off by straight lines
            angle, where = rng.uniform(0, 2 * np.pi), rng.uniform(0.3, 0.7, 2)
            side = (x - where[0] * columns) * np.cos(angle) + (y - where[1] * rows) * np.sin(angle)
            labels += side > 0
        found, _ = refine((rows, columns), Drawn(labels), (8, 8))
        # Only a corner of a region that fits between probes can be missed
        for row, column in np.argwhere(found != labels):
            row, column = row // 8 * 8, column // 8 * 8
            wrong = found[row : row + 9, column : column + 9] != labels[row : row + 9, column : column + 9]
            assert not wrong[[0, 0, -1, -1], [0, -1, 0, -1]].any()
        missed += (found != labels).any()
    assert missed <= 6  # the other maps are exact


def test_an_island_between_probes_is_missed_and_a_finer_start_finds_it():
    island = (np.abs(X - 20) < 3) & (np.abs(Y - 20) < 3)
    assert refine((64, 64), Drawn(island), (8, 8))[0].sum() == 0
    found, known = refine((64, 64), Drawn(island), (4, 4))
    assert np.array_equal(found, island)
    assert known.mean() < 0.15
    assert refine((64, 64), Drawn(island), (1, 1))[1].all()


def test_beside_an_undecided_boundary_it_looks_one_cell_further():
    speck = X > 30
    speck[20, 29] = True  # one cell of chance: behind cell 30, which is the last before the boundary
    assert not refine((64, 64), Drawn(speck), (8, 8))[0][20, 29]
    undecided = np.zeros(speck.shape, bool)
    undecided[20, 30] = True
    found, known = refine((64, 64), Drawn(speck, undecided), (8, 8))
    assert np.array_equal(found, speck)
    assert known.mean() < 0.15
    far = X < 28  # far from a boundary it is left alone
    assert np.array_equal(refine((64, 64), Drawn(X > 30, far), (8, 8))[1], refine((64, 64), Drawn(X > 30), (8, 8))[1])


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (2, 3)])
def test_small_and_narrow_maps(shape):
    labels = (np.arange(np.prod(shape)).reshape(shape) > np.prod(shape) // 2).astype(int)
    assert np.array_equal(refine(shape, Drawn(labels), (8, 8))[0], labels)


# --- axes and classes -------------------------------------------------------------------------------------------------

SPEC = {
    "engine": {"num_gpu_blocks": 300, "enable_prefix_caching": False},
    "workload": {
        "num_requests": 40,
        "seed": 3,
        "prompt": {"dist": "constant", "mean": 100},
        "output": {"dist": "uniform", "min": 200, "max": 400},
    },
    "sweep": {
        "seeds": 2,
        "axes": {"workload.arrival.rate_per_s": [8, 1, 2], "engine.watermark": [0, 0.1]},
        "choice": {"cap": {"fixed": {}, "auto": {"engine.running_cap": "auto"}}},
    },
}
RATE, BLOCKS = "workload.arrival.rate_per_s", "engine.num_gpu_blocks"


def axes(x, y, resolution=None, seeds=3):
    grid, x_axis, y_axis, left = phase_grid(spec_from_mapping(SPEC), x, y, resolution, seeds)
    assert grid.size == len(x_axis.values) * len(y_axis.values) * seeds
    assert grid.config(0).workload.seed == 3
    return x_axis, y_axis, left


def test_axes_by_name_range_list_and_choice():
    x, y, left = axes(RATE, "choice.cap")
    assert (x.values, y.values) == ((1, 2, 8), ("fixed", "auto"))  # numbers in their order
    assert left == ["engine.watermark"]
    x, y, left = axes(f"{RATE}=1:3:5", f"{BLOCKS}=300,200")
    assert (x.values, y.values) == ((1.0, 1.5, 2.0, 2.5, 3.0), (200, 300))
    assert left == ["engine.watermark", "choice.cap"]
    x, y, _ = axes(f"{RATE}=1:4:3:log", f"{BLOCKS}=200:204")
    assert (x.values, y.values) == ((1.0, 2.0, 4.0), (200, 201, 202, 203, 204))  # each integer once
    x, y, _ = axes(RATE, f"{BLOCKS}=100:400", resolution=4)
    assert (len(x.values), x.values[-1], y.values) == (4, 8.0, (100, 200, 300, 400))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((RATE, RATE), "two axes were expected"),
        ((RATE, "engine.watermrk"), "did you mean engine.watermark"),
        ((RATE, "engine.watermrk=0:1"), "is not a key"),
        ((RATE, "workload.seed=0:9"), "over seeds already"),
        ((RATE, f"{BLOCKS}=-1:5:3:log"), "above 0"),
        ((RATE, f"{BLOCKS}=a:b"), "was expected"),
        ((RATE, "engine.policy=0:1:2"), "a range"),
        ((RATE, f"{BLOCKS}=1:5", 1), "--resolution 1"),
        ((RATE, f"{BLOCKS}=2:5", None, 0), "--seeds 0"),
    ],
)
def test_mistakes_in_axes_are_answered_with_a_sentence(arguments, words):
    with pytest.raises(InputError, match=words):
        axes(*arguments)


def test_a_condition_is_not_met_by_null():
    classes = read_classes("ttft_p99_ms <= 2e3")
    assert classes.names == ("not ttft_p99_ms <= 2000", "ttft_p99_ms <= 2000")
    assert classes.code(pl.DataFrame({"ttft_p99_ms": [1.0, 2000.0, 2001.0, None]})).tolist() == [1, 1, 0, 0]
    rows = pl.DataFrame({"status": ["ok", "error", "ok"], "verdict": ["thrash", "ok", "ok"]})
    verdicts = read_classes(None)
    assert [verdicts.names[code] for code in verdicts.code(rows)] == ["thrash", "failed", "ok"]


@pytest.mark.parametrize(
    "metric", ["ttft_p99_ms", "ttft_p98_ms <= 1", "ttft_p99_ms <= much", "ttft_p99_ms <= nan", "stop > 1"]
)
def test_metrics_that_are_none(metric):
    with pytest.raises(InputError, match=r"expected|no result column"):
        read_classes(metric)


# --- real maps --------------------------------------------------------------------------------------------------------


def small(**arguments) -> PhaseMap:
    return phase(SPEC, f"{RATE}=1:20:24:log", f"{BLOCKS}=60:600:20", seeds=3, **arguments)


@pytest.fixture(scope="module")
def whole() -> PhaseMap:
    return small(stride=1)


def test_a_small_map_is_the_whole_grids(whole):
    found = small()
    assert whole.runs == whole.full_runs == 24 * 20 * 3
    assert whole.evaluated.all()
    assert len(np.unique(whole.labels)) > 1
    assert np.array_equal(found.labels, whole.labels)
    assert found.runs == 3 * found.evaluated.sum() < 0.5 * whole.runs
    assert np.array_equal(found.agreement[found.evaluated], whole.agreement[found.evaluated])


def test_a_cell_is_what_most_seeds_say(whole):
    rows, columns = np.nonzero(whole.disagrees)
    assert len(rows)  # this load has a boundary that depends on the seed
    for row, column in [(0, 0), (19, 23), *list(zip(rows, columns, strict=True))[::5]]:
        verdicts = []
        for seed in (3, 4, 5):
            base = {key: SPEC[key] for key in ("engine", "workload")}
            sets = [f"{RATE}={whole.x.values[column]}", f"{BLOCKS}={whole.y.values[row]}", f"workload.seed={seed}"]
            config = spec_from_mapping(base, sets).config()
            verdicts.append(fastsim.simulate(config).metrics["verdict"])
        said = whole.classes[whole.labels[row, column]]
        counts = [verdicts.count(name) for name in whole.classes]
        assert verdicts.count(said) == max(counts) == round(3 * whole.agreement[row, column])
        assert said == whole.classes[counts.index(max(counts))]  # the worse of equals


def test_the_table_has_a_row_a_cell(whole):
    table = whole.to_polars()
    assert table.columns == [BLOCKS, RATE, "class", "evaluated", "agreement"]
    assert table.height == 24 * 20
    last = table.row(-1, named=True)
    assert (last[BLOCKS], last[RATE]) == (whole.y.values[-1], whole.x.values[-1])
    assert last["class"] == whole.classes[whole.labels[-1, -1]]


def test_the_text_answers_first_and_fits(whole):
    for found in (whole, small(), small(metric="ttft_p99_ms <= 2000")):
        text = phase_text(found)
        assert text.startswith("Answer: ")
        assert all(len(line) <= 80 for line in text.splitlines())
        drawn = [line.partition("|")[2] for line in text.splitlines() if "|" in line]
        assert len(drawn) == 20
        for row, line in zip(range(19, -1, -1), drawn, strict=True):
            assert [letter == "?" for letter in line] == found.disagrees[row].tolist()


def test_large_maps_and_long_names_fit():
    rows, columns = 150, 200
    y, x = np.mgrid[0:rows, 0:columns]
    names = ("engine.long_prefill_token_threshold_adaptive", "choice.a_choice_with_a_name_that_goes_on_and_on")
    found = PhaseMap(
        PhaseAxis(names[0], tuple(12345.678 * k for k in range(columns))),
        PhaseAxis(names[1], tuple(f"a label that goes on and on {k}" for k in range(rows))),
        read_classes(None).names,
        "verdict",
        np.digitize(x + y, [30, 90, 150, 200, 260, 300]),
        np.ones((rows, columns), bool),
        np.where((x + y) % 30 < 4, 0.6, 1.0),
        5,
        10**9,
        10**10,
        (8, 8),
        (f"engine.{'x' * 60}",) * 3,
        False,
    )
    lines = phase_text(found).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert sum("|" in line for line in lines) <= 32


COLLAPSE = {
    "engine": {"num_gpu_blocks": 7463, "enable_prefix_caching": False},
    "workload": {"num_requests": 120},
}
OUTPUTS = {
    "engine": {"num_gpu_blocks": 2000, "enable_prefix_caching": False},
    "workload": {
        "num_requests": 150,
        "arrival": {"rate_per_s": 10},
        "prompt": {"dist": "constant", "mean": 300},
        "output": {"dist": "constant", "mean": 1000},
    },
}
CHAT = {
    "engine": {"num_gpu_blocks": 4000, "enable_prefix_caching": False},
    "workload": {
        "num_requests": 300,
        "prompt": {"dist": "uniform", "min": 100, "max": 900},
        "output": {"dist": "uniform", "min": 50, "max": 350},
    },
}
BLIS = {"engine": {"name": "blis", "num_gpu_blocks": 7463}, "workload": {"num_requests": 120}}
MAPS = {
    "verdict, rate x blocks": (COLLAPSE, f"{RATE}=0.5:10", f"{BLOCKS}=1000:8000", None),
    "recomputed share, max_num_seqs x output": (
        OUTPUTS,
        "engine.max_num_seqs=4:130",
        "workload.output.mean=50:2500",
        "recomputed_share <= 0.1",
    ),
    "recomputed share, rate x watermark": (
        COLLAPSE,
        f"{RATE}=0.5:8",
        "engine.watermark=0:0.3",
        "recomputed_share <= 0.1",
    ),
    "verdict under BLIS, rate x blocks": (BLIS, f"{RATE}=0.5:6", f"{BLOCKS}=1000:8000", None),
    "TTFT p99, rate x max_num_seqs": (CHAT, f"{RATE}=2:60", "engine.max_num_seqs=4:130", "ttft_p99_ms <= 2000"),
}


def boundary(labels):
    """Every pair of neighbours of different classes, with both classes."""
    down = [(r, c, 0, labels[r, c], labels[r + 1, c]) for r, c in np.argwhere(labels[:-1] != labels[1:]).tolist()]
    across = [
        (r, c, 1, labels[r, c], labels[r, c + 1]) for r, c in np.argwhere(labels[:, :-1] != labels[:, 1:]).tolist()
    ]
    return {*down, *across}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MAPS)
def test_the_boundary_is_that_of_the_whole_grid_at_a_fraction_of_its_runs(name):
    spec, x, y, metric = MAPS[name]
    whole = phase(spec, x, y, metric, stride=1)
    found = phase(spec, x, y, metric)
    assert whole.runs == whole.full_runs == 64 * 64 * 5
    assert found.runs < 0.15 * whole.runs
    assert boundary(found.labels) == boundary(whole.labels)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_where_seeds_decide_only_islands_of_chance_are_missed():
    """`overloaded` near capacity is a coin that each seed flips: single cells stand apart, and one may be missed."""
    spec = COLLAPSE | {"workload": {"num_requests": 300}}
    axes = (f"{RATE}=0.5:8", "engine.watermark=0:0.3")
    whole, found = phase(spec, *axes, stride=1), phase(spec, *axes)
    assert found.runs < 0.15 * whole.runs
    wrong = found.labels != whole.labels
    assert wrong.mean() < 0.002
    assert whole.agreement[wrong].max(initial=0.0) < 1


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spec_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("phase") / "spec.toml"
    path.write_text(
        """
        engine.num_gpu_blocks = 300
        workload.num_requests = 40
        workload.output = { dist = "uniform", min = 200, max = 400 }
        [sweep]
        axes = { engine.max_num_seqs = [4, 32], workload.arrival.rate_per_s = [1, 5, 20] }
        """
    )
    return path


def test_the_command(spec_file, capsys):
    options = ["phase", spec_file, "--x", RATE, "--y", f"{BLOCKS}=100:400:6", "--seeds", "2", "--workers", "1"]
    code, out, _ = run(capsys, *options)
    assert code == 0
    assert out.startswith("Answer: ")
    assert "Left at the base configuration's value: engine.max_num_seqs." in " ".join(out.split())
    code, out, _ = run(capsys, *options, "--json", "--set", "engine.max_num_seqs=8")
    found = json.loads(out)
    assert (found["x"]["values"], found["y"]["values"]) == ([1, 5, 20], [100, 160, 220, 280, 340, 400])
    assert np.array(found["labels"]).shape == np.array(found["agreement"]).shape == (6, 3)
    assert found["at_base"] == []
    again = fastsim.phase(
        fastsim.config.load_spec(spec_file, ["engine.max_num_seqs=8"]), RATE, f"{BLOCKS}=100:400:6", seeds=2
    )
    assert again.labels.tolist() == found["labels"]


def test_runs_that_end_before_anything_completes_are_counted():
    axes = ("engine.max_num_seqs=2,20", f"{BLOCKS}=100,300")
    spec = {"engine": SPEC["engine"], "workload": SPEC["workload"]}
    short = phase(spec | {"run": {"horizon_s": 0.5}}, *axes, seeds=1)
    assert short.nothing_done == short.runs == 4
    assert "In 4 of 4 runs no request completed before the end of the run" in phase_text(short)
    assert phase(spec, *axes, seeds=1).nothing_done == 0


def test_seeds_that_change_nothing_are_named():
    still = {"engine": SPEC["engine"], "workload": SPEC["workload"] | {"arrival": {"kind": "all_at_once"}}}
    still["workload"]["output"] = {"dist": "constant", "mean": 300}
    axes = ("engine.max_num_seqs=2,20", f"{BLOCKS}=100,300")
    found = phase(still, *axes, seeds=2)
    assert found.seeds_alike
    assert "--seeds 1 says the same" in phase_text(found)
    assert not phase(still, *axes, seeds=1).seeds_alike
    assert not phase(SPEC, *axes, seeds=2).seeds_alike


@pytest.mark.parametrize(
    "options",
    [
        ["--x", RATE, "--y", RATE],
        ["--x", RATE, "--y", "engine.max_num_seqs", "--metric", "goodness > 1"],
        ["--x", RATE, "--y", "engine.max_num_seqs", "--stride", "0"],
        ["--x", RATE, "--y", "engine.max_num_seqs", "--seeds", "many"],
        ["--x", RATE, "--y", "engine.max_num_batched_tokens=64:0:3"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_sentence(spec_file, capsys, options):
    code, out, err = run(capsys, "phase", spec_file, *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


# --- one axis ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cliff", [1, 7, 8, 9, 40, 62])
def test_a_cliff_is_found_by_halving(cliff):
    drawn = Drawn(np.arange(64)[None, :] >= cliff)
    labels, known = refine((1, 64), drawn, (8, 8))
    assert np.array_equal(labels, drawn.labels)
    assert known.sum() <= 14  # nine probes, three halvings, both sides


@pytest.fixture(scope="module")
def line() -> PhaseMap:
    return phase(SPEC, f"{RATE}=1:20:40:log", seeds=3)


def test_a_line_is_a_row_of_the_map(line):
    whole = phase(SPEC, f"{RATE}=1:20:40:log", seeds=3, stride=1)
    assert line.y is None
    assert line.labels.shape == (1, 40)
    assert len(np.unique(line.labels)) > 1
    assert np.array_equal(line.labels, whole.labels)
    assert line.runs < 0.7 * whole.runs == 0.7 * whole.full_runs
    table = line.to_polars()
    assert table.columns == [RATE, "class", "evaluated", "agreement"]
    assert table[RATE].to_list() == list(line.x.values)
    runs = line.figures
    assert runs.height == line.runs
    assert runs["x_place"].unique().to_list() == np.flatnonzero(line.evaluated[0]).tolist()


def test_the_figures_of_a_line_are_those_of_its_runs(line):
    place = int(np.flatnonzero(line.evaluated[0])[3])
    base = {key: SPEC[key] for key in ("engine", "workload")}
    sets = [f"{RATE}={line.x.values[place]}"]
    runs = [
        fastsim.simulate(spec_from_mapping(base, [*sets, f"workload.seed={seed}"]).config()).metrics
        for seed in (3, 4, 5)
    ]
    kept = line.figures.filter(x_place=place)
    for name in ("ttft_p99_ms", "goodput_req_per_s", "preemptions"):
        assert sorted(kept[name].to_list()) == sorted(run[name] for run in runs)
    assert sorted(kept["class"].to_list()) == sorted(run["verdict"] for run in runs)


def test_the_text_of_a_line_says_where_the_cliff_is(line):
    text = phase_text(line)
    assert all(len(row) <= 80 for row in text.splitlines())
    answer = " ".join(text.partition("\n\n")[0].split())
    assert answer.startswith(f"Answer: over {RATE}, service holds from 1 to ")
    last = next(k for k in range(40) if line.labels[0, k] != line.labels[0, 0]) - 1
    assert f"service holds from 1 to {line.x.values[last]:.4g}," in answer
    assert text.count(" of 3 ") == min(24, line.evaluated.sum())


def test_a_line_and_a_map_as_page_and_picture(spec_file, tmp_path, capsys):
    pytest.importorskip("altair")
    for more in ([], ["--y", "engine.max_num_seqs=4,16"]):
        page, picture = tmp_path / "map.html", tmp_path / "map.png"
        options = ["--x", f"{RATE}=1:8:6", "--seeds", "2", *more, "--html", page, "--png", picture]
        code, out, _ = run(capsys, "phase", spec_file, *options)
        assert code == 0
        assert f"{page}: " in out
        text = page.read_text()
        assert "<h1>Where service holds, by workload.arrival.rate_per_s" in text
        assert ("ttft_p99_ms" in text) == (not more)
        assert picture.read_bytes().startswith(b"\x89PNG")
