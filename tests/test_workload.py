"""Workloads from distributions: S1's recipe, common random numbers, every distribution, every range."""

import gzip
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.config import (
    ArrivalConfig,
    LengthConfig,
    MaxTokensConfig,
    PrefixConfig,
    PriorityConfig,
    ThinkConfig,
    WorkloadConfig,
    load_config,
)
from fastsim.workload import Workload, WorkloadPlan, build_workload
from fastsim.workload.synthetic import choices, exact_counts
from fastsim.workload.workload import COLUMNS

from .sentences import bad_input

GOLDEN = Path(__file__).parent / "golden"
N = 20_000


def build(**values: object) -> Workload:
    return build_workload(WorkloadConfig(**{"num_requests": 300, **values}))  # type: ignore[arg-type]


def drawn(length: LengthConfig, seed: int = 3) -> npt.NDArray[np.int32]:
    return build(num_requests=N, seed=seed, prompt=length).prompt_tokens


# --- the recipe --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [7, 0, 12345])
def test_defaults_are_the_recipe_drawn_with_numpy_directly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrivals = np.floor(np.cumsum(rng.exponential(1e6 / 10, 300)))
    prompts = np.clip(np.rint(rng.normal(300, 200, 300)), 200, 400)
    outputs = np.clip(np.rint(rng.normal(3500, 3200, 300)), 3200, 3596)
    workload = build_workload(WorkloadConfig(seed=seed))
    assert workload.arrival_us.tolist() == arrivals.tolist()
    assert workload.prompt_tokens.tolist() == prompts.tolist()
    assert workload.output_tokens.tolist() == outputs.tolist()


def test_the_first_requests_of_seed_7() -> None:
    workload = build(seed=7)
    assert workload.arrival_us[:4].tolist() == [70752, 173273, 230128, 319639]
    assert workload.prompt_tokens[:4].tolist() == [200, 200, 400, 400]
    assert workload.output_tokens[:4].tolist() == [3596, 3200, 3200, 3200]


@pytest.mark.parametrize(
    ("case", "values"),
    [
        ("l00_seed_sustained_s256", {}),
        ("l04_seed_spike50_s256", {"num_requests": 50, "arrival": ArrivalConfig(kind="all_at_once")}),
    ],
)
def test_the_recipe_gives_the_requests_of_recorded_vllm_runs(case: str, values: dict[str, object]) -> None:
    with gzip.open(GOLDEN / "vllm-0.33.0" / f"{case}.json.gz") as file:
        requests = json.load(file)["requests"]
    workload = build(seed=7, **values)
    columns = (workload.arrival_us, workload.prompt_tokens, workload.output_tokens)
    assert [list(row) for row in zip(*map(np.ndarray.tolist, columns), strict=True)] == [row[:3] for row in requests]


def test_arrivals_that_are_not_random_draw_nothing() -> None:
    rng = np.random.default_rng(7)
    prompts = np.clip(np.rint(rng.normal(300, 200, 50)), 200, 400)
    outputs = np.clip(np.rint(rng.normal(3500, 3200, 50)), 3200, 3596)
    for arrival in ({"kind": "all_at_once"}, {"kind": "constant"}, {"kind": "spikes"}):
        workload = build(num_requests=50, seed=7, arrival=ArrivalConfig(**arrival))
        assert workload.prompt_tokens.tolist() == prompts.tolist()
        assert workload.output_tokens.tolist() == outputs.tolist()


# --- common random numbers --------------------------------------------------------------------------------


def test_rates_share_their_draws() -> None:
    slow = build(arrival=ArrivalConfig(rate_per_s=5.0))
    fast = build(arrival=ArrivalConfig(rate_per_s=10.0))
    assert np.abs(slow.arrival_us - 2 * fast.arrival_us).max() <= 2
    assert slow.prompt_tokens.tolist() == fast.prompt_tokens.tolist()
    scaled = build(arrival=ArrivalConfig(rate_per_s=5.0), rate_scale=2.0)
    assert np.abs(scaled.arrival_us - fast.arrival_us).max() <= 1


@pytest.mark.parametrize(
    "extra",
    [
        {"max_tokens": MaxTokensConfig(dist="uniform", min=4000, max=5000)},
        {"priority": PriorityConfig(values=(0, 1))},
        {"prefix": PrefixConfig(groups=4, tokens=64)},
        {"arrival": ArrivalConfig(kind="gamma", cv=1.0)},
        {"prompt": LengthConfig(dist="uniform", min=1, max=9)},
    ],
)
def test_adding_a_random_part_changes_no_other(extra: dict[str, object]) -> None:
    plain, more = build(), build(**extra)
    changed = {name for name in COLUMNS if not np.array_equal(getattr(plain, name), getattr(more, name))}
    part = next(iter(extra))
    allowed = {"arrival": {"arrival_us"}, "prompt": {"prompt_tokens"}, "prefix": {"prefix_group", "prefix_tokens"}}
    assert changed == allowed.get(part, {part})


def test_the_scheduler_does_not_touch_the_workload() -> None:
    base = ["engine.num_gpu_blocks=100", "workload.seed=3"]
    other = [*base, "engine.max_num_seqs=2", "engine.policy=priority", "run.horizon_s=3", "latency.b0_us=7"]
    one, two = (build_workload(load_config(None, sets).workload) for sets in (base, other))
    assert one.workload_id == two.workload_id


def test_a_plan_builds_each_workload_once() -> None:
    plan = WorkloadPlan(kept=2)
    first = plan.build(WorkloadConfig(seed=1))
    assert plan.build(WorkloadConfig(seed=1)) is first
    assert plan.draws(1, 300) is plan.draws(1, 300)
    for seed in (2, 3):
        plan.build(WorkloadConfig(seed=seed))
    again = plan.build(WorkloadConfig(seed=1))
    assert again is not first
    assert again.workload_id == first.workload_id


# --- identity --------------------------------------------------------------------------------


def test_workload_id_is_of_the_content() -> None:
    one = Workload.from_arrays([0, 5], [3, 4], [5, 6])
    assert one.workload_id == Workload.from_arrays(np.array([0, 5]), np.array([3, 4], np.int8), (5, 6)).workload_id
    assert int(one.workload_id, 16) >= 0
    assert len(one.workload_id) == 16
    ids = {
        one.workload_id,
        Workload.from_arrays([0, 6], [3, 4], [5, 6]).workload_id,
        Workload.from_arrays([0, 5], [3, 4], [5, 6], priority=[0, 1]).workload_id,
        Workload.from_arrays([0, 5], [3, 4], [5, 6], think_us=[0, 1]).workload_id,
        Workload.from_arrays([0, 5], [3, 4], [5, 6], concurrency=1).workload_id,
        Workload.from_arrays([], [], []).workload_id,
    }
    assert len(ids) == 6


def test_workload_ids_are_the_same_everywhere() -> None:
    assert build(seed=7).workload_id == "d9ea10999fb139c6"
    lognormal = LengthConfig(dist="lognormal", mean=700.0, stdev=900.0)
    gamma = ArrivalConfig(kind="gamma", cv=2.5)
    assert build(seed=7, prompt=lognormal, arrival=gamma).workload_id == "48200656574dc921"


# --- arrivals --------------------------------------------------------------------------------


def test_constant_arrivals_are_one_gap_apart_and_start_after_one() -> None:
    arrivals = build(arrival=ArrivalConfig(kind="constant", rate_per_s=4.0)).arrival_us
    assert arrivals[:3].tolist() == [250_000, 500_000, 750_000]


def test_spikes_arrive_together() -> None:
    arrivals = build(arrival=ArrivalConfig(kind="spikes", spike_requests=100, spike_interval_s=2.0)).arrival_us
    assert np.unique(arrivals, return_counts=True)[0].tolist() == [0, 2_000_000, 4_000_000]
    assert np.unique(arrivals, return_counts=True)[1].tolist() == [100, 100, 100]


def test_gamma_has_its_rate_and_cv() -> None:
    for cv in (0.3, 1.0, 3.0):
        gaps = np.diff(build(num_requests=N, arrival=ArrivalConfig(kind="gamma", rate_per_s=8.0, cv=cv)).arrival_us)
        assert gaps.mean() == pytest.approx(125_000, rel=0.08)
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08)


def test_a_closed_loop_starts_all_clients_at_0() -> None:
    workload = build(concurrency=16, think=ThinkConfig(mean_s=2.0))
    assert workload.concurrency == 16
    assert not workload.arrival_us.any()
    assert workload.think_us.mean() == pytest.approx(2e6, rel=0.2)
    assert (build(concurrency=16, think=ThinkConfig(dist="constant", mean_s=2.0)).think_us == 2_000_000).all()


def test_clients_may_start_one_by_one() -> None:
    workload = build(concurrency=16, arrival=ArrivalConfig(kind="poisson"))
    assert workload.concurrency == 16
    assert workload.arrival_us.tolist() == build().arrival_us.tolist()


def test_arrival_order_is_stable() -> None:
    workload = Workload.from_arrays([5, 0, 5, 0], [1] * 4, [1] * 4)
    assert workload.arrival_order().tolist() == [1, 3, 0, 2]
    assert workload.arrival_order().dtype == np.int32


# --- lengths --------------------------------------------------------------------------------


def test_constant() -> None:
    assert set(drawn(LengthConfig(dist="constant", mean=100.0)).tolist()) == {100}


def test_uniform_covers_both_ends_evenly() -> None:
    values, counts = np.unique(drawn(LengthConfig(dist="uniform", min=5, max=9)), return_counts=True)
    assert values.tolist() == [5, 6, 7, 8, 9]
    assert counts.min() > 0.9 * N / 5


def test_normal_and_its_clipping() -> None:
    free = drawn(LengthConfig(dist="normal", mean=1000.0, stdev=50.0))
    assert free.mean() == pytest.approx(1000, abs=2)
    assert free.std() == pytest.approx(50, rel=0.03)
    assert drawn(LengthConfig(dist="normal", mean=10.0, stdev=50.0)).min() == 1
    clipped = drawn(LengthConfig(dist="normal", mean=1000.0, stdev=50.0, min=990, max=1010))
    assert (clipped.min(), clipped.max()) == (990, 1010)
    assert (clipped == np.clip(free, 990, 1010)).all()


def test_lognormal_has_its_mean_and_stdev() -> None:
    values = drawn(LengthConfig(dist="lognormal", mean=500.0, stdev=400.0))
    assert values.mean() == pytest.approx(500, rel=0.03)
    assert values.std() == pytest.approx(400, rel=0.08)


def test_empirical_follows_its_weights() -> None:
    values = drawn(LengthConfig(dist="empirical", values=(10, 20, 30), weights=(1.0, 0.0, 3.0)))
    share = np.count_nonzero(values == 30) / N
    assert set(values.tolist()) == {10, 30}
    assert share == pytest.approx(0.75, abs=0.02)
    equal = drawn(LengthConfig(dist="empirical", values=(10, 20)))
    assert np.count_nonzero(equal == 10) / N == pytest.approx(0.5, abs=0.02)


def test_longer_means_longer_for_every_request() -> None:
    for dist in ("normal", "lognormal"):
        short, long = (drawn(LengthConfig(dist=dist, mean=mean, stdev=100.0)) for mean in (500.0, 900.0))  # type: ignore[arg-type]
        assert (long >= short).all()


def test_means() -> None:
    workload = Workload.from_arrays([0, 0, 0], [1, 2, 6], [10, 20, 30])
    assert (workload.mean_prompt_tokens, workload.mean_output_tokens) == (3.0, 20.0)
    assert Workload.from_arrays([], [], []).mean_prompt_tokens == 0.0


# --- declared limits, prefixes, priorities ------------------------------------------------------------


def test_a_declared_limit_by_factor_bounds_the_output() -> None:
    workload = build(max_tokens=MaxTokensConfig(dist="factor", factor=1.5))
    assert (workload.max_tokens == np.ceil(workload.output_tokens * 1.5)).all()
    assert (build().max_tokens == 0).all()


def test_a_declared_limit_cuts_the_output_and_says_so() -> None:
    workload = build(max_tokens=MaxTokensConfig(dist="constant", mean=3300.0))
    assert workload.output_tokens.max() == 3300
    cut = int((build().output_tokens > 3300).sum())
    assert workload.report.notes == (f"{cut} of 300 outputs are cut at the declared max_tokens",)


def test_prefix_groups() -> None:
    workload = build(num_requests=N, prefix=PrefixConfig(groups=3, tokens=128, share=0.5))
    member = workload.prefix_group >= 0
    assert member.mean() == pytest.approx(0.5, abs=0.02)
    assert (workload.prefix_tokens == np.where(member, 128, 0)).all()
    counts = np.bincount(workload.prefix_group[member])
    assert len(counts) == 3
    assert counts.min() > 0.9 * counts.mean()
    popular = build(num_requests=N, prefix=PrefixConfig(groups=3, tokens=128, zipf=1.0)).prefix_group
    assert np.bincount(popular)[0] / N == pytest.approx(6 / 11, abs=0.02)
    added = build(prefix=PrefixConfig(groups=3, tokens=128, adds_to_prompt=True))
    assert (added.prompt_tokens == build().prompt_tokens + 128).all()


def test_priority_classes_have_exact_counts() -> None:
    classes = PriorityConfig(values=(0, -3), shares=(30.0, 1.0))
    workload = build(num_requests=31, priority=classes)
    assert np.unique(workload.priority, return_counts=True)[0].tolist() == [-3, 0]
    assert np.unique(workload.priority, return_counts=True)[1].tolist() == [1, 30]
    places = {int(build(num_requests=31, seed=seed, priority=classes).priority.argmin()) for seed in range(8)}
    assert len(places) > 3


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=8).filter(lambda s: sum(s) > 0), st.integers(0, 10_000))
def test_exact_counts_add_up(shares: list[float], count: int) -> None:
    counts = exact_counts(tuple(shares), count)
    assert counts.sum() == count
    assert (np.abs(counts - np.array(shares) / sum(shares) * count) < 1 + 1e-6 * count).all()


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, 1e-9]), min_size=1, max_size=6).filter(any))
def test_choices_never_take_a_weight_of_0(weights: list[float]) -> None:
    picked = choices(weights, np.array([0.0, 0.1, 0.5, 0.999, np.nextafter(1, 0)]))
    assert all(weights[index] > 0 for index in picked)


# --- the arrays --------------------------------------------------------------------------------


def test_arrays_are_contiguous_read_only_and_of_their_dtype() -> None:
    source = np.arange(10, dtype=np.int64)
    workload = Workload.from_arrays(source[::2], source[1::2], source[1::2])
    for name, column in COLUMNS.items():
        values = getattr(workload, name)
        assert values.dtype == column.dtype
        assert values.shape == (5,)
        assert values.flags.c_contiguous
        assert not values.flags.writeable
    source[:] = 99
    assert workload.arrival_us.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"arrival_us": [-1]}, ["arrival_us of request 0 is -1", "from 0"]),
        ({"arrival_us": [2**61]}, ["arrival_us", str(2**61)]),
        ({"prompt_tokens": [0]}, ["prompt_tokens of request 0 is 0", "from 1"]),
        ({"prompt_tokens": [2**31]}, ["prompt_tokens", "2147483648", "2147483647"]),
        ({"prompt_tokens": [2**70]}, ["prompt_tokens"]),
        ({"output_tokens": [0]}, ["output_tokens of request 0 is 0"]),
        ({"output_tokens": [1.5]}, ["output_tokens has dtype float64", "integers"]),
        ({"output_tokens": ["x"]}, ["output_tokens has dtype", "integers"]),
        ({"output_tokens": [1, 2]}, ["output_tokens has shape (2,)", "(1,)"]),
        ({"prefix_group": [-2]}, ["prefix_group", "-2"]),
        ({"priority": [2**31]}, ["priority"]),
        ({"prompt_tokens": [2**30], "output_tokens": [2**30]}, ["request 0", str(2**31), "prompt and output"]),
        ({"concurrency": -1}, ["concurrency = -1"]),
    ],
)
def test_arrays_out_of_range_are_refused_at_the_boundary(arrays: dict[str, object], named: list[str]) -> None:
    good: dict[str, object] = {"arrival_us": [0], "prompt_tokens": [1], "output_tokens": [1]}
    bad_input(lambda: Workload.from_arrays(**{**good, **arrays}), "workload", *named)  # type: ignore[arg-type]


def test_arrivals_beyond_the_clock_are_refused() -> None:
    slow = WorkloadConfig(num_requests=2_000_000, arrival=ArrivalConfig(kind="constant", rate_per_s=1e-6))
    bad_input(lambda: build_workload(slow), "workload.arrival.rate_per_s")


def test_a_contradiction_is_refused_without_a_spec() -> None:
    bad_input(lambda: build(prompt=LengthConfig(dist="uniform")), "workload.prompt.min is missing")


lengths = st.one_of(
    st.builds(LengthConfig, dist=st.just("constant"), mean=st.floats(1, 1e9)),
    st.builds(LengthConfig, dist=st.just("normal"), mean=st.floats(1, 1e6), stdev=st.floats(0, 1e9), max=st.just(9**9)),
    st.builds(LengthConfig, dist=st.just("lognormal"), mean=st.floats(1, 1e6), stdev=st.floats(0, 2e9), max=st.just(9)),
    st.builds(LengthConfig, dist=st.just("uniform"), min=st.integers(1, 10), max=st.integers(10, 2**30)),
    st.builds(LengthConfig, dist=st.just("empirical"), values=st.tuples(st.integers(1, 10**6))),
)  # fmt: skip


@settings(max_examples=60)
@given(
    prompt=lengths,
    kind=st.sampled_from(["poisson", "gamma", "constant", "all_at_once", "spikes"]),
    cv=st.floats(0.01, 100),
    rate=st.floats(1e-6, 1e6),
    count=st.integers(1, 60),
    seed=st.integers(0, 2**63 - 1),
)
def test_any_valid_configuration_builds_within_range(
    prompt: LengthConfig, kind: str, cv: float, rate: float, count: int, seed: int
) -> None:
    arrival = ArrivalConfig(kind=kind, cv=cv, rate_per_s=rate)  # type: ignore[arg-type]
    workload = build(num_requests=count, seed=seed, prompt=prompt, arrival=arrival)
    assert workload.num_requests == count
    assert (np.diff(workload.arrival_us) >= 0).all()
    for name, column in COLUMNS.items():
        values = getattr(workload, name)
        assert values.min() >= column.low
        assert values.max() <= column.high
