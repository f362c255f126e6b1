"""Bad sweeps: each is refused with one sentence, before anything runs."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsim.sweeps.grid import Grid

from .sentences import bad_input, one_line_or_none

AZURE = Path(__file__).parent / "data" / "azure2023_conv_first2000.csv"
BASE = {"engine.num_gpu_blocks": 7463}
SEQS = "engine.max_num_seqs"
MARK = "engine.watermark"


def swept(sweep: Any, sets: list[str] | None = None, axes: list[str] | None = None, **base: Any) -> Grid:
    return Grid.from_mapping({**BASE, **base, "sweep": sweep}, sets or [], axes or [], source="spec.toml")


SWEEPS: list[tuple[str, Any, list[str]]] = [
    ("empty axis", {"axes": {SEQS: []}}, [SEQS, "no values"]),
    ("duplicate value", {"axes": {SEQS: [1, 2, 1]}}, [SEQS, "1 twice"]),
    ("duplicate after rounding", {"axes": {SEQS: {"start": 1, "stop": 2, "num": 5}}}, [SEQS, "twice"]),
    ("duplicate axis", {"axes": {SEQS: [1], "engine": {"max_num_seqs": [2]}}}, [SEQS, "given twice"]),
    ("axis that is no key", {"axes": {"engine.max_seqs": [1]}}, ["engine.max_seqs", "did you mean"]),
    ("axis that is a table of keys", {"axes": {"engine": [1]}}, ["engine = [1]", "a table"]),
    ("scalar axis", {"axes": {SEQS: 5}}, [SEQS, "= 5", "list"]),
    ("wrong type in axis", {"axes": {SEQS: [1, "x"]}}, [SEQS, '"x"', "an integer"]),
    ("out of range in axis", {"axes": {MARK: [0, 1]}}, [MARK, "= 1", "below 1"]),
    ("NaN in axis", {"axes": {MARK: [float("nan")]}}, [MARK, "nan"]),
    ("null in axis", {"axes": {SEQS: ["none"]}}, [SEQS, '"none"']),
    ("axes is a list", {"axes": [SEQS]}, ["sweep.axes", "a table"]),
    ("range without stop", {"axes": {SEQS: {"start": 1, "num": 3}}}, [SEQS, "no stop"]),
    ("range with step", {"axes": {SEQS: {"start": 1, "stop": 3, "step": 1}}}, [SEQS, '"step"']),
    ("range of nothing", {"axes": {SEQS: {"start": 1, "stop": 3, "num": 0}}}, [SEQS, "num = 0", "from 1"]),
    ("endless range", {"axes": {SEQS: {"start": 1, "stop": 3, "num": 10**18}}}, [SEQS, "num = 1000000000000000000"]),
    ("fractional num", {"axes": {SEQS: {"start": 1, "stop": 3, "num": 2.5}}}, [SEQS, "num = 2.5"]),
    ("infinite range", {"axes": {MARK: {"start": 0, "stop": float("inf"), "num": 3}}}, [MARK, "stop = inf"]),
    ("text range", {"axes": {MARK: {"start": "a", "stop": 1, "num": 3}}}, [MARK, 'start = "a"']),
    ("log from 0", {"axes": {MARK: {"start": 0, "stop": 0.5, "num": 3, "scale": "log"}}}, [MARK, '"log"', "above 0"]),
    ("unknown scale", {"axes": {MARK: {"start": 0, "stop": 0.5, "num": 3, "scale": "sqrt"}}}, [MARK, '"sqrt"']),
    ("range of words", {"axes": {"engine.policy": {"start": 0, "stop": 1, "num": 2}}}, ["engine.policy", '"fcfs"']),
    ("range leaves the key's range", {"axes": {SEQS: {"start": 0, "stop": 4, "num": 2}}}, [SEQS, "= 0", "from 1"]),
    ("zip of unequal lengths", {"zip": [{SEQS: [1, 2], MARK: [0.1]}]}, [f"{SEQS} has 2", f"{MARK} has 1"]),
    ("zip that is no list", {"zip": {SEQS: [1, 2]}}, ["sweep.zip", "a list of tables"]),
    ("zip of a scalar", {"zip": [3]}, ["sweep.zip has 3"]),
    ("empty zip group", {"zip": [{}]}, ["sweep.zip", "empty group"]),
    ("zip of an unknown axis", {"zip": [[SEQS]]}, ["sweep.zip names", SEQS]),
    ("key in axes and zip", {"axes": {SEQS: [1]}, "zip": [{SEQS: [1, 2]}]}, [SEQS, "sweep.axes", "sweep.zip"]),
    ("key in two zips", {"zip": [{SEQS: [1, 2]}, {SEQS: [3, 4]}]}, [SEQS, "group 1", "group 2"]),
    ("key in a zip twice", {"axes": {SEQS: [1]}, "zip": [[SEQS, SEQS]]}, [SEQS, "named once"]),
    ("key in axes and choice", {"axes": {SEQS: [1]}, "choice": {"c": {"a": {SEQS: 2}}}}, [SEQS, "sweep.choice.c"]),
    ("choice without labels", {"choice": {"c": {}}}, ["sweep.choice.c", "labels"]),
    ("choice with a bad name", {"choice": {"a b": {"x": {}}}}, ["sweep.choice.a b", "letters"]),
    ("choice of a scalar", {"choice": {"c": {"a": 3}}}, ["sweep.choice.c.a = 3", "a table"]),
    ("choice of an unknown key", {"choice": {"c": {"a": {"engine.x": 3}}}}, ["engine.x is not a key"]),
    ("no seeds", {"seeds": 0}, ["sweep.seeds = 0", "from 1"]),
    ("negative seeds", {"seeds": [1, -1]}, ["workload.seed = -1"]),
    ("fractional seeds", {"seeds": 2.5}, ["sweep.seeds = 2.5"]),
    ("boolean seeds", {"seeds": True}, ["sweep.seeds = true"]),
    ("too many seeds", {"seeds": 2**40}, ["sweep.seeds", "2147483647"]),
    ("seeds and a seed axis", {"seeds": 2, "zip": [{"workload.seed": [1, 2]}]}, ["workload.seed", "sweep.seeds"]),
    ("unknown part", {"axis": {SEQS: [1]}}, ["sweep.axis", "did you mean axes"]),
    ("swept rule broken", {"axes": {"engine.preemption_mode": ["recompute", "swap"]}}, ["swap_space_blocks = 0"]),
    (
        "rule broken in one corner",
        {"axes": {"engine.enable_chunked_prefill": [True, False], "engine.max_model_len": [1024, 4096]}},
        ["enable_chunked_prefill = false", "max_model_len = 4096"],
    ),
    ("zip breaks a rule", {"zip": [{"workload.prompt.dist": ["constant", "uniform"], "workload.prompt.mean": [5, 6]}]},
     ["workload.prompt.min is missing", '"uniform"']),
    ("missing trace", {"axes": {"workload.trace": ["no.csv"]}}, ["no.csv", "cannot be read"]),
    ("too large a grid", {"seeds": 2**31 - 1, "axes": {SEQS: {"start": 1, "stop": 50_000, "num": 50_000},
      "engine.block_size": {"start": 1, "stop": 50_000, "num": 50_000}}}, ["configurations", "2**62"]),
]  # fmt: skip


@pytest.mark.parametrize(("sweep", "named"), [case[1:] for case in SWEEPS], ids=[case[0] for case in SWEEPS])
def test_a_bad_sweep_is_one_sentence(sweep: Any, named: list[str]) -> None:
    bad_input(lambda: swept(sweep), *named)


OPTIONS = [
    (["engine.max_num_seqs"], ["--axis", "key=v1,v2 was"]),
    (["engine.max_num_seqs="], ["--axis", "no values"]),
    (["engine.max_seqs=1,2"], ["--axis", "did you mean"]),
    (["engine.max_num_seqs=1,x"], ["--axis", '"x"']),
    (["engine.max_num_seqs=1,1"], ["--axis", "twice"]),
    (["engine.max_num_seqs=1", "engine.max_num_seqs=2"], ["--axis", "engine.max_num_seqs is given twice"]),
    (["engine.watermark=0,nan"], ["--axis", "nan"]),
]


@pytest.mark.parametrize(("axes", "named"), OPTIONS, ids=[" ".join(axes) for axes, _ in OPTIONS])
def test_a_bad_axis_option_is_one_sentence(axes: list[str], named: list[str]) -> None:
    bad_input(lambda: swept({}, axes=axes), *named)


def test_set_and_axis_of_one_key_conflict() -> None:
    bad_input(lambda: swept({}, ["engine.max_num_seqs=3"], ["engine.max_num_seqs=4,5"]), "--axis", "--set", SEQS)


def test_a_zipped_key_cannot_be_pinned() -> None:
    bad_input(lambda: swept({"zip": [{SEQS: [1, 2], MARK: [0, 0.1]}]}, [f"{SEQS}=3"]), "--set", SEQS, "zip")


def test_a_zipped_key_cannot_be_an_axis_option() -> None:
    bad_input(lambda: swept({"zip": [{SEQS: [1, 2]}]}, axes=[f"{SEQS}=3,4"]), SEQS, "sweep.zip")


def test_more_requests_than_a_trace_has_is_found_before_the_run() -> None:
    base = {"workload.trace": str(AZURE)}
    bad_input(lambda: swept({"axes": {"workload.num_requests": [10, 5000]}}, **base), "= 5000", "at most 2000")


def test_blocks_may_come_from_an_axis() -> None:
    grid = Grid.from_mapping({"sweep": {"axes": {"engine.num_gpu_blocks": [100, 200]}}})
    assert grid.config(1).engine.num_gpu_blocks == 200


@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_outside_is_one_sentence(index: int) -> None:
    bad_input(lambda: swept({"seeds": 4}).config(index), f"config-id {index}", "from 0 to 3")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"limit": 0}, ["--limit 0"]),
        ({"sample": -3}, ["--sample -3"]),
        ({"limit": 1, "sample": 1}, ["--limit 1", "--sample 1"]),
        ({"shard": (0, 3)}, ["--shard 0/3"]),
        ({"shard": (4, 3)}, ["--shard 4/3"]),
        ({"rows_per_part": 0}, ["rows per part 0"]),
    ],
)
def test_a_bad_selection_is_one_sentence(options: dict[str, Any], named: list[str]) -> None:
    bad_input(lambda: swept({"seeds": 4}).select(**options), *named)


def test_a_column_that_is_not_there_is_one_sentence() -> None:
    bad_input(lambda: swept({"seeds": 4}).column("engine.x", 0, 1), "engine.x", "neither a key nor an axis")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["start", "stop", "num", "scale", SEQS, MARK, "engine", "x"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(values)
def test_no_sweep_ends_in_a_traceback(value: Any) -> None:
    for part in (
        {"axes": {SEQS: value}},
        {"axes": value},
        {"zip": [value]},
        {"seeds": value},
        {"choice": {"c": value}},
    ):
        one_line_or_none(swept, part)


@given(st.text(max_size=30))
def test_no_axis_option_ends_in_a_traceback(text: str) -> None:
    for option in (text, f"{MARK}={text}", f"{SEQS}={{{text}}}", f"workload.trace={text}"):
        one_line_or_none(swept, {}, [], [option])
