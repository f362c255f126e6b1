"""Grids: decoding by index, columns, identity, selections and parts."""

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.config import KEYS, Config, resolved
from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid, PartPlan, Selection

AZURE = Path(__file__).parent / "data" / "azure2023_conv_first2000.csv"
BASE: dict[str, Any] = {"engine.num_gpu_blocks": 7463}


def grid(sweep: dict[str, Any], axes: tuple[str, ...] = (), sets: tuple[str, ...] = (), **base: Any) -> Grid:
    return Grid.from_mapping({**BASE, **base, "sweep": sweep}, sets, axes)


MIXED = {
    "axes": {
        "engine.max_num_seqs": [16, 32, 64],
        "workload.arrival.rate_per_s": [2, 10],
        "engine.name": ["vllm-0.33.0", "vllm-0.16.0"],
    },
    "zip": [{"engine.block_size": [8, 16], "engine.watermark": [0.0, 0.05]}],
    "seeds": 2,
    "choice": {
        "remedy": {
            "none": {},
            "swap": {"engine.preemption_mode": "swap", "engine.swap_space_blocks": 500},
            "urgent": {"engine": {"policy": "priority"}},
        }
    },
}


# --- decoding --------------------------------------------------------------------------------


def test_a_spec_without_a_sweep_is_a_grid_of_one() -> None:
    one = Grid.from_mapping(BASE)
    assert (one.size, one.axes, one.values(0)) == (1, (), {})
    assert one.config(0) == one.base
    assert one.select().plan.bounds(0) == (0, 1)


def test_workload_axes_are_most_significant_and_seeds_come_first() -> None:
    mixed = grid(MIXED)
    assert [axis.name for axis in mixed.axes] == [
        "workload.seed",
        "workload.arrival.rate_per_s",
        "engine.max_num_seqs",
        "engine.name",
        "engine.block_size",
        "engine.watermark",
        "choice.remedy",
    ]
    assert mixed.size == 2 * 2 * 3 * 2 * 2 * 3
    assert (mixed.num_workloads, mixed.configs_per_workload) == (4, 36)
    workloads = [mixed.config(index).workload for index in range(mixed.size)]
    assert len(set(workloads)) == 4
    for index, workload in enumerate(workloads):
        assert mixed.workload_config(mixed.workload_index(index)) == workload


def test_every_combination_is_there_once() -> None:
    mixed = grid(MIXED)
    rows = [tuple(mixed.values(index).values()) for index in range(mixed.size)]
    zipped = [(8, 0.0), (16, 0.05)]
    expected = itertools.product(
        [0, 1], [2.0, 10.0], [16, 32, 64], ["vllm-0.33.0", "vllm-0.16.0"], zipped, ["none", "swap", "urgent"]
    )
    assert rows == [(a, b, c, d, *e, f) for a, b, c, d, e, f in expected]


def test_a_configuration_is_what_its_row_says() -> None:
    mixed = grid(MIXED)
    for index in range(0, mixed.size, 5):
        config, row = mixed.config(index), mixed.values(index)
        for name, value in row.items():
            if name in KEYS:
                assert config.value(name) == value
        assert config.engine.preemption_mode == ("swap" if row["choice.remedy"] == "swap" else "recompute")
        assert config.engine.policy == ("priority" if row["choice.remedy"] == "urgent" else "fcfs")


@pytest.mark.parametrize("name", sorted(KEYS))
def test_columns_agree_with_configurations(name: str) -> None:
    mixed = grid(MIXED)
    column = mixed.column(name, 0, mixed.size)
    assert column.tolist() == [resolved(mixed.config(index)).value(name) for index in range(mixed.size)]
    key = KEYS[name]
    if isinstance(key.default, bool):
        assert column.dtype == np.bool_
    elif key.is_number and not key.optional:
        assert column.dtype == (np.int64 if key.is_integer else np.float64)


def test_columns_are_encoded_value_by_value() -> None:
    mixed = grid(MIXED)
    codes = {"recompute": 0, "swap": 2}
    encoded = mixed.column("engine.preemption_mode", 0, 6, codes.__getitem__)
    assert encoded.tolist() == [0, 2, 0, 0, 2, 0]
    assert encoded.dtype == np.int64
    off = mixed.column("engine.max_num_active_seqs", 3, 5, lambda value: value or -1)
    assert off.tolist() == [-1, -1]
    assert mixed.column("choice.remedy", 1, 4).tolist() == ["swap", "urgent", "none"]
    assert mixed.take("engine.max_num_seqs", np.array([0, 143, 12])).tolist() == [16, 64, 32]


def test_a_grid_travels_to_a_worker() -> None:
    mixed = grid(MIXED)
    mixed.column("engine.policy", 0, 4, lambda policy: policy == "priority")
    other: Grid = pickle.loads(pickle.dumps(mixed))
    assert other.spec_hash == mixed.spec_hash
    assert other.config(100) == mixed.config(100)
    assert other.column("engine.policy", 0, 4).tolist() == mixed.column("engine.policy", 0, 4).tolist()
    selection: Selection = pickle.loads(pickle.dumps(mixed.sample(40)))
    assert rows(selection) == rows(mixed.sample(40))


def test_digits_are_positions() -> None:
    mixed = grid(MIXED)
    digits = mixed.digits(10, 130)
    for axis in mixed.axes:
        assert digits[axis.name].dtype == np.int32
        values = [axis.values[position] for position in digits[axis.name].tolist()]
        assert values == [mixed.values(index)[axis.name] for index in range(10, 130)]


def test_a_huge_grid_costs_nothing() -> None:
    huge = grid({"seeds": 2**31 - 1, "axes": {"engine.max_num_seqs": {"start": 1, "stop": 100_000, "num": 100_000}}})
    assert huge.size == (2**31 - 1) * 100_000
    last = huge.config(huge.size - 1)
    assert (last.workload.seed, last.engine.max_num_seqs) == (2**31 - 2, 100_000)
    assert huge.column("workload.seed", 10**14, 10**14 + 2).tolist() == [10**9, 10**9]
    assert huge.column("engine.max_num_seqs", huge.size - 2, huge.size).tolist() == [99_999, 100_000]
    assert huge.sample(1000).size == 1000
    assert huge.limit(10).size == 10
    assert huge.select().plan.bounds(0) == (0, 14_286)
    assert next(huge.select(shard=(1, 3)).parts()).rows == 14_286
    with pytest.raises(InputError, match=r"files, but at most 1048576 were expected: pick from them with --limit"):
        huge.select().check_parts()
    huge.select(shard=(20_000, 20_000)).check_parts()
    with pytest.raises(
        InputError, match=r"^--sample 3000000000000, but at most 16777216 configurations were expected$"
    ):
        huge.sample(3 * 10**12)


# --- what is swept --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "table", "expected"),
    [
        ("engine.watermark", {"start": 0, "stop": 0.3, "num": 4}, [0.0, 0.1, 0.2, 0.3]),
        ("engine.max_num_seqs", {"start": 1, "stop": 64, "num": 7, "scale": "log"}, [1, 2, 4, 8, 16, 32, 64]),
        ("engine.max_num_seqs", {"start": 10, "stop": 1, "num": 4}, [10, 7, 4, 1]),
        ("workload.arrival.rate_per_s", {"start": 1, "stop": 100, "num": 3, "scale": "log"}, [1.0, 10.0, 100.0]),
        ("engine.watermark", {"start": 0.25, "stop": 9, "num": 1}, [0.25]),
        ("engine.max_num_active_seqs", ["none", 4], [None, 4]),
        ("workload.priority.values", [[0], [0, 1]], ["[0]", "[0, 1]"]),
    ],
)  # fmt: skip
def test_axis_values(key: str, table: Any, expected: list[Any]) -> None:
    swept = grid({"axes": {key: table}})
    assert list(swept.axes[0].values) == expected


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("engine.max_num_seqs=16,32", [16, 32]),
        ("engine.max_num_seqs=[16, 32]", [16, 32]),
        ("engine.max_num_seqs={start=1, stop=3, num=3}", [1, 2, 3]),
        ("engine.policy=fcfs,priority", ["fcfs", "priority"]),
        ("engine.name=vllm-0.33.0,vllm-0.16.0", ["vllm-0.33.0", "vllm-0.16.0"]),
        ("engine.max_num_active_seqs=none,4", [None, 4]),
        ("engine.watermark=0", [0.0]),
        ("workload.seed=5,1", [5, 1]),
    ],
)
def test_axis_options(option: str, expected: list[Any]) -> None:
    assert list(grid({"seeds": 1} if "seed" in option else {}, (option,)).axes[0].values) == expected


def test_seeds_are_a_count_from_the_base_seed_or_a_list() -> None:
    assert list(grid({"seeds": 3}).axes[0].values) == [0, 1, 2]
    assert list(grid({"seeds": 3}, **{"workload.seed": 7}).axes[0].values) == [7, 8, 9]
    assert list(grid({"seeds": [7, 3]}).axes[0].values) == [7, 3]
    assert list(grid({"seeds": 5}, sets=("sweep.seeds=2",)).axes[0].values) == [0, 1]


def test_a_setting_pins_an_axis() -> None:
    pinned = grid(MIXED, sets=("engine.max_num_seqs=99",))
    assert "engine.max_num_seqs" not in [axis.name for axis in pinned.axes]
    assert pinned.config(0).engine.max_num_seqs == 99
    assert grid({"seeds": 5}, sets=("workload.seed=3",)).size == 1


def test_an_axis_option_replaces_an_axis() -> None:
    replaced = grid(MIXED, ("engine.max_num_seqs=7",))
    assert {replaced.config(index).engine.max_num_seqs for index in range(replaced.size)} == {7}


def test_axes_can_be_zipped_by_name() -> None:
    swept = grid({"axes": {"engine.max_num_seqs": [1, 2], "engine.watermark": [0.1, 0.2]},
                  "zip": [["engine.watermark", "engine.max_num_seqs"]]})  # fmt: skip
    assert [tuple(swept.values(index).values()) for index in range(swept.size)] == [(0.1, 1), (0.2, 2)]


def test_sweeps_are_inherited_and_overridden(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        "engine.num_gpu_blocks = 100\n[sweep]\nseeds = 9\n[sweep.axes]\nengine.max_num_seqs = [1, 2]\n"
        "engine.watermark = [0, 0.1]\n"
    )
    (tmp_path / "child.toml").write_text(
        'extends = "base.toml"\nengine.watermark = 0.5\n[sweep]\nseeds = 2\n[sweep.axes]\nengine.block_size = [8, 16]\n'
    )
    child = Grid.from_toml(tmp_path / "child.toml")
    assert [axis.name for axis in child.axes] == ["workload.seed", "engine.max_num_seqs", "engine.block_size"]
    assert child.size == 8
    assert child.config(0).engine.watermark == 0.5


def test_an_idle_axis_is_warned_of() -> None:
    assert grid({"axes": {"engine.feedback_window": [10, 20]}}).warnings == [
        "spec: axis engine.feedback_window changes nothing: engine.running_cap is not feedback"
    ]
    both = {"engine.feedback_window": [10, 20], "engine.running_cap": ["fixed", "feedback"]}
    assert grid({"axes": both}).warnings == []
    assert len(grid({"axes": {"workload.arrival.rate_per_s": [1, 2]}}, **{"workload.concurrency": 4}).warnings) == 1


def test_a_trace_axis_shows_names_without_folders(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens\n0,1,1\n"
    for name in ("a.csv", "b.csv", "x/a.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    spec = {**BASE, "sweep": {"axes": {"workload.trace": ["a.csv", "b.csv"]}}}
    swept = Grid.from_mapping(spec, folder=tmp_path)
    assert list(swept.axes[0].values) == ["a.csv", "b.csv"]
    assert swept.config(1).workload.trace == str(tmp_path / "b.csv")
    spec = {**BASE, "sweep": {"axes": {"workload.trace": ["a.csv", "x/a.csv"]}}}
    shown = [value.rpartition("/")[0] for value in Grid.from_mapping(spec, folder=tmp_path).axes[0].values]
    assert shown == [tmp_path.name, "x"]


# --- identity --------------------------------------------------------------------------------


def test_the_hash_is_of_what_is_computed() -> None:
    one = grid(MIXED)
    assert one.spec_hash == grid(MIXED).spec_hash
    assert one.spec_hash == "891dba13d7b4cd8fe162524c34909e18"
    assert one.spec_hash == grid(MIXED, **{"engine.max_model_len": 8192}).spec_hash
    others = [
        grid(MIXED, **{"engine.max_model_len": 4096}),
        grid({**MIXED, "seeds": 3}),
        grid({**MIXED, "seeds": [1, 0]}),
        grid(MIXED, ("engine.max_num_seqs=16,64,32",)),
        grid({**MIXED, "choice": {}}),
    ]
    assert len({one.spec_hash, *(other.spec_hash for other in others)}) == 6
    assert grid({"seeds": [4, 5]}).spec_hash == grid({"seeds": 2}, **{"workload.seed": 4}).spec_hash


def test_a_trace_counts_by_content(tmp_path: Path) -> None:
    def of(folder: str, text: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + text)
        return Grid.from_mapping({**BASE, "workload.trace": "t.csv"}, folder=tmp_path / folder).spec_hash

    assert of("a", "0,1,1\n") == of("b", "0,1,1\n")
    assert of("a", "0,1,1\n") != of("a", "0,1,2\n")


def test_the_exported_spec_is_the_same_grid(tmp_path: Path) -> None:
    for sweep, extra in (
        (MIXED, {}),
        ({"seeds": [5, 2]}, {"workload.trace": str(AZURE)}),
        ({"axes": {"workload.trace": [str(AZURE)], "engine.max_num_active_seqs": ["none", 3]}}, {}),
        ({"choice": {"odd": {'la"bel\n': {"workload.priority.values": [0, 1]}, "b": {}}}}, {}),
        ({}, {"run.horizon_s": 120, "workload.prompt.dist": "empirical", "workload.prompt.values": [1, 2]}),
    ):
        one = grid(sweep, **extra)  # type: ignore[arg-type]
        (tmp_path / "spec.toml").write_text(one.to_toml())
        other = Grid.from_toml(tmp_path / "spec.toml")
        assert other.spec_hash == one.spec_hash
        assert [other.values(index) for index in range(one.size)] == [one.values(index) for index in range(one.size)]
        assert [other.config(index) for index in range(one.size)] == [one.config(index) for index in range(one.size)]


# --- selections and parts --------------------------------------------------------------------------------


def rows(selection: Selection) -> list[int]:
    return [int(index) for part in selection.parts() for index in part.indices()]


def test_all_and_limit() -> None:
    mixed = grid(MIXED)
    assert rows(mixed.select()) == list(range(mixed.size))
    assert rows(mixed.limit(50)) == list(range(50))
    assert rows(mixed.limit(10**9)) == list(range(mixed.size))
    assert mixed.select().name == mixed.limit(10**9).name == "all"


def test_shards_are_disjoint_and_together_the_whole() -> None:
    swept = grid({"seeds": 40, "axes": {"engine.max_num_seqs": [1, 2, 3, 4, 5]}})
    for selection in (swept.select(rows_per_part=7), swept.select(sample=60, rows_per_part=7)):
        shards = [rows(selection.shard(n, 3)) for n in (1, 2, 3)]
        assert sorted(itertools.chain.from_iterable(shards)) == rows(selection)
        assert all(shards)


@settings(max_examples=200)
@given(
    workloads=st.integers(1, 12),
    configs=st.integers(1, 12),
    per_part=st.integers(1, 40),
    sample=st.none() | st.integers(1, 150),
    shards=st.integers(1, 4),
)
def test_parts_tile_any_selection(workloads: int, configs: int, per_part: int, sample: int | None, shards: int) -> None:
    swept = grid({"seeds": workloads, "axes": {"engine.max_num_seqs": list(range(1, configs + 1))}})
    selection = swept.select(sample=sample, rows_per_part=per_part)
    chosen = [index for start, stop in selection.ranges.tolist() for index in range(start, stop)]
    assert rows(selection) == chosen
    assert selection.size == len(chosen)
    if sample is not None:
        assert len(chosen) == min(sample, swept.size)
    parts = [part for n in range(shards) for part in selection.shard(n + 1, shards).parts()]
    assert len({part.index for part in parts}) == len(parts)
    for part in parts:
        assert (part.start, part.stop) == selection.plan.bounds(part.index)
        assert selection.part(part.index) == part
        assert shards == 1 or selection.shard((part.index + 1) % shards + 1, shards).part(part.index) is None
        assert part.rows == len(part.indices())
        first, last = swept.workload_index(part.start), swept.workload_index(part.stop - 1)
        whole = part.start == first * configs and part.stop == (last + 1) * configs
        assert whole or first == last, "a part neither cuts two workloads nor joins pieces of them"


@given(workloads=st.integers(1, 30), configs=st.integers(1, 50), per_part=st.integers(1, 60))
def test_part_ranges_tile_the_grid(workloads: int, configs: int, per_part: int) -> None:
    plan = PartPlan(workloads * configs, configs, per_part)
    bounds = [plan.bounds(part) for part in range(plan.count)]
    assert [index for start, stop in bounds for index in range(start, stop)] == list(range(workloads * configs))
    assert all(plan.part_of(index) == n for n, (start, stop) in enumerate(bounds) for index in (start, stop - 1))
    assert max(stop - start for start, stop in bounds) <= max(per_part, 1)


def test_workloads_are_the_same_for_all_their_configurations() -> None:
    mixed = grid(MIXED)
    for workload in range(mixed.num_workloads):
        first = workload * mixed.configs_per_workload
        configs: list[Config] = [mixed.config(first + n) for n in range(mixed.configs_per_workload)]
        assert len({config.workload for config in configs}) == 1


def test_a_folder_as_a_trace_counts_by_its_content(tmp_path):
    def spec_hash(folder, text):
        folder.mkdir()
        (folder / "meta.json").write_text("{}")
        (folder / "requests.jsonl").write_text(text)
        return Grid.from_mapping({"engine.num_gpu_blocks": 64, "workload.trace": str(folder)}).spec_hash

    row = '{"input_toks": 5, "output_toks": %d, "queued_ts": 0.0, "first_token_ts": 1.0, "last_token_ts": 2.0}\n'
    first = spec_hash(tmp_path / "a", row % 2)
    assert spec_hash(tmp_path / "b", row % 2) == first
    assert spec_hash(tmp_path / "c", row % 3) != first
