"""Classes of requests in rows: each class's columns against their definition, whatever the engine, and every command
that names a metric."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fastsim import build_workload, metrics, simulate
from fastsim.analysis.answer import answer_from
from fastsim.analysis.compare.paired import compare
from fastsim.analysis.evaluate.loads import Load, changed
from fastsim.analysis.phase.map import phase
from fastsim.analysis.recommend.recommend import recommend
from fastsim.analysis.recommend.trials import Traffic
from fastsim.analysis.terms import slo_terms
from fastsim.cli import main
from fastsim.config import Config, WorkloadConfig, spec_from_mapping
from fastsim.engines.outputs import NEVER, Status
from fastsim.errors import InputError
from fastsim.metrics import columns_with
from fastsim.metrics.columns import CLASS_COLUMNS
from fastsim.records import records_of
from fastsim.simulation import Result, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner import sweep

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
LONG = {"dist": "constant", "mean": 900}
SHORT = {"dist": "uniform", "min": 20, "max": 120}
CLASSES: dict[str, Any] = {
    "chat": {"share": 3.0, "prompt": SHORT},
    "code": {"prompt": LONG, "output": {"dist": "uniform", "min": 30, "max": 90}},
}
ENGINES: dict[str, dict[str, Any]] = {
    "plain": {},
    "policy": {"running_cap": "auto", "preemption_mode": "restart"},
    "async": {"name": "vllm-0.33.0-async"},
    "groups": {"kv_cache_groups": ["full", "sliding:64"]},
    "blis": {"name": "blis"},
    "sglang": {"name": "sglang-0.5.23"},
    "trtllm": {"name": "trtllm"},
    "rlt": {"name": "vllm-rlt"},
}


def table(engine: dict[str, Any], **more: Any) -> dict[str, Any]:
    out: dict[str, Any] = {
        "engine": {"num_gpu_blocks": 160, "max_num_seqs": 12} | engine,
        "workload": {
            "num_requests": 90,
            "arrival": {"rate_per_s": 30.0},
            "output": {"dist": "uniform", "min": 1, "max": 60},
            "classes": CLASSES,
        },
        "run": {"horizon_s": 8.0},
        "slo": {"ttft_ms": 900.0, "tpot_ms": 60.0},
        "metrics": {"warmup_s": 0.5},
    }
    return out | more


def config_of(engine: dict[str, Any], **more: Any) -> Config:
    return spec_from_mapping(table(engine, **more)).config()


# --- The definition -----------------------------------------------------------------------------------------------


def quantile_ms(served: list[float], censored: int, q: float) -> float | None:
    """Sort, the unserved last and infinite, interpolate: what touches infinity is null."""
    values = sorted(served) + [math.inf] * censored
    if not values:
        return None
    position = (len(values) - 1) * q
    low = math.floor(position)
    if math.inf in values[low : low + 2 if position > low else low + 1]:
        return None
    return float(np.quantile(np.array([*sorted(served), *[1e18] * censored]), q)) / 1000


def defined(result: Result, name: str, slo: dict[str, float]) -> dict[str, Any]:
    """The columns of a class, request by request."""
    log, workload = result.requests, result.workload
    assert workload.request_class is not None
    mine = [i for i in range(workload.num_requests) if workload.class_names[workload.request_class[i]] == name]
    frontend = result.config.latency.frontend_us or 0
    since = result.config.metrics.warmup_s * 1e6
    status = {i: Status(log.status[i]) for i in mine}
    gone = (Status.REJECTED, Status.TIMED_OUT)
    offered = [i for i in mine if status[i] not in (Status.PENDING, Status.UNSERVABLE)]
    people = [i for i in offered if log.arrival_us[i] >= since]
    limit = result.config.engine.max_model_len if result.config.engine.name.startswith("vllm-0") else 10**9
    several = [i for i in people if min(workload.output_tokens[i], limit - workload.prompt_tokens[i]) >= 2]
    done = [i for i in people if status[i] == Status.FINISHED]
    tpot = {
        i: int(log.finish_us[i] - log.first_token_us[i]) / (int(log.num_generated[i]) - 1)
        for i in done
        if log.num_generated[i] > 1
    }
    e2e = {i: int(log.finish_us[i] - log.arrival_us[i]) + frontend for i in done}
    ttft = {
        i: int(log.first_token_us[i] - log.arrival_us[i]) + frontend
        for i in people
        if log.first_token_us[i] != NEVER and status[i] not in gone
    }
    out: dict[str, Any] = {}
    for prefix, values, of in (("ttft", ttft, people), ("tpot", tpot, several), ("e2e", e2e, people)):
        served = list(values.values())
        censored = sum(i not in values for i in of)
        for q, share in QUANTILES.items():
            out[f"{prefix}_{q}_ms"] = quantile_ms(served, censored, share)
            out[f"{prefix}_served_{q}_ms"] = quantile_ms(served, 0, share)
        out[f"{prefix}_censored_share"] = censored / (len(served) + censored) if served or censored else None
        out[f"{prefix}_served_mean_ms"] = sum(served) / len(served) / 1000 if served else None
    good = sum(
        ttft[i] <= slo.get("ttft", math.inf) * 1000
        and e2e[i] <= slo.get("e2e", math.inf) * 1000
        and tpot.get(i, 0.0) <= slo.get("tpot", math.inf) * 1000
        for i in done
    )
    end_us, first_us = result.totals["end_us"], result.totals["first_arrival_us"]
    out["goodput_share"] = good / len(people) if people else None
    out["goodput_req_per_s"] = good / ((end_us - max(since, first_us)) / 1e6)
    generated = sum(int(log.num_generated[i]) for i in mine)
    out["output_throughput_tok_per_s"] = generated / ((end_us - first_us) / 1e6)
    out["output_tokens"] = generated
    out["num_requests"], out["offered"] = len(mine), len(offered)
    out["completed"] = sum(each == Status.FINISHED for each in status.values())
    out["preemptions"] = sum(int(log.num_preemptions[i]) for i in mine)
    return out


@pytest.mark.parametrize("name", ENGINES)
def test_columns_of_classes_are_their_definition(name: str) -> None:
    config = config_of(ENGINES[name])
    result = simulate(config)
    row = result.metrics
    for of in CLASSES:
        expected = defined(result, of, {"ttft": 900.0, "tpot": 60.0})
        assert {key: row[f"{key}[{of}]"] for key in expected} == expected
    for key in ("num_requests", "offered", "completed", "preemptions", "output_tokens", "prompt_tokens", "unservable"):
        assert sum(row[f"{key}[{of}]"] for of in CLASSES) == row[key], key
    assert row["goodput_req_per_s"] == pytest.approx(sum(row[f"goodput_req_per_s[{of}]"] for of in CLASSES))
    assert row["completed"] > 20
    # In a chunk, between other configurations, the row is the same
    others = [config, replace_slots(config, 3), config]
    workload = build_workload(config.workload)
    rows = simulate_chunk(workload, records_of(others))
    for place in (0, 2):
        again = metrics.named_values(rows.floats[place], rows.ints[place], workload.class_names)
        assert again == {key: row[key] for key in again}
    # What is said of all requests does not hang on the classes
    blind = replace(workload, class_names=(), request_class=None)
    alone = simulate_chunk(blind, records_of(others))
    width = len(metrics.FLOAT_COLUMNS)
    assert rows.floats[:, :width].tobytes() == alone.floats.tobytes()
    assert rows.ints.tobytes() == alone.ints.tobytes()
    assert rows.floats.shape[1] == width + 2 * len(CLASS_COLUMNS)


def replace_slots(config: Config, count: int) -> Config:
    return config.model_copy(update={"engine": config.engine.model_copy(update={"max_num_seqs": count})})


@pytest.mark.parametrize("name", ["plain", "groups", "blis"])
def test_a_class_is_judged_by_its_own_bounds(name: str) -> None:
    own = {"chat": CLASSES["chat"] | {"slo": {"ttft_ms": 60.0}}, "code": CLASSES["code"]}
    given = table(ENGINES[name])
    given["workload"]["classes"] = own
    config = spec_from_mapping(given).config()
    result = simulate(config)
    row = result.metrics
    slos = {"chat": {"ttft": 60.0, "tpot": 60.0}, "code": {"ttft": 900.0, "tpot": 60.0}}
    good = 0.0
    for of, slo in slos.items():
        expected = defined(result, of, slo)
        assert {key: row[f"{key}[{of}]"] for key in expected} == expected
        good += expected["goodput_req_per_s"]
    assert row["goodput_req_per_s"] == pytest.approx(good)
    common = simulate(config_of(ENGINES[name])).metrics
    assert row["goodput_req_per_s"] < common["goodput_req_per_s"]
    assert row["misses_slo"] is True
    assert row["misses_slo[chat]"] is True
    # Bounds that all keep: nothing is missed, though all requests together would miss a bound as tight as chat's
    for of in own:
        own[of] = own[of] | {"slo": {"ttft_ms": 1e7, "tpot_ms": 1e7}}
    loose = spec_from_mapping(given | {"run": {}}).config()
    kept = simulate(loose).metrics
    assert (kept["misses_slo"], kept["misses_slo[chat]"], kept["goodput_share"]) == (False, False, 1.0)
    assert kept["verdict"] != "misses_slo"
    strict = simulate(spec_from_mapping(given | {"run": {}, "slo": {"ttft_ms": 1.0}}).config()).metrics
    assert strict["verdict"] == kept["verdict"]  # every class has a bound of its own, so that the common one is idle


def test_the_label_follows_the_bounds_of_classes() -> None:
    given = table({"num_gpu_blocks": 4000, "max_num_seqs": 64}) | {"run": {}, "slo": {}}
    assert simulate(spec_from_mapping(given).config()).metrics["verdict"] == "ok"
    given["workload"]["classes"] = CLASSES | {"chat": CLASSES["chat"] | {"slo": {"ttft_ms": 1.0}}}
    assert simulate(spec_from_mapping(given).config()).metrics["verdict"] == "misses_slo"


def test_a_class_without_requests_has_nulls_and_zeros() -> None:
    given = table({})
    given["workload"]["classes"] = CLASSES | {"late": {"start_s": 5000.0, "arrival": {"kind": "spikes"}}}
    row = simulate(spec_from_mapping(given).config()).metrics
    assert (row["num_requests[late]"], row["ttft_p99_ms[late]"], row["goodput_share[late]"]) == (0, None, None)


# --- Commands -----------------------------------------------------------------------------------------------------


def spec_text(folder: Path, extra: str = "") -> Path:
    path = folder / "classes.toml"
    path.write_text(
        """latency = { b0_us = 6250, b1_us_per_prefill_token = 21.7, b2_us_per_decode_token = 1.44 }
engine = { num_gpu_blocks = 28268, max_model_len = 131072, max_num_batched_tokens = 8192 }
[workload]
num_requests = 120
arrival.rate_per_s = 4
[workload.classes.long]
arrival = { kind = "constant", rate_per_s = 0.1 }
prompt = { dist = "constant", mean = 60000 }
output = { dist = "constant", mean = 30 }
[workload.classes.short]
prompt = { dist = "constant", mean = 500 }
output = { dist = "constant", mean = 40 }
[sweep.axes]
engine.long_prefill_token_threshold = [0, 1024, 4096]
[sweep]
seeds = 3
"""
        + extra
    )
    return path


QUESTION = """[answer]
question = "Which threshold keeps the short class's TTFT p99 under 160 ms?"
where = ["ttft_p99_ms[short] <= 160"]
best = ["least ttft_p99_ms[long]"]
show = "completed[long]"
"""


def test_a_sweep_answers_a_question_about_one_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_text(tmp_path, QUESTION)
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "1"])
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "long_prefill_token_threshold = 1,024 meets ttft_p99_ms[short] <= 160" in told
    rows = pl.read_parquet(tmp_path / "out" / "parts" / "*.parquet").sort("config_id")
    assert rows.schema["completed[long]"] == pl.Int64
    assert rows.schema["misses_slo[long]"] == pl.Boolean
    assert rows["completed[long]"].dtype == pl.Int64
    grid = Grid.from_toml(spec)
    for place in (1, 5):
        expected = simulate(grid.config(place)).metrics
        row = rows.row(place, named=True)
        assert {name: row[name] for name in expected} == expected
    found = compare(
        tmp_path / "out", "engine.long_prefill_token_threshold", ["ttft_p99_ms[short]", "goodput_share[long]"]
    )
    better = found.filter(metric="ttft_p99_ms[short]")
    assert better["verdict"].to_list() == ["better", "better"]
    with pytest.raises(InputError, match=r"ttft_p99_ms\[shrot\]': the classes are long, short"):
        compare(tmp_path / "out", "engine.long_prefill_token_threshold", ["ttft_p99_ms[shrot]"])
    with pytest.raises(InputError, match="kv_use_mean is not told by class"):
        compare(tmp_path / "out", "engine.long_prefill_token_threshold", ["kv_use_mean[short]"])
    with pytest.raises(SystemExit) as ended:
        main(["report", str(tmp_path / "out"), "--html", str(tmp_path / "report.html")])
    assert ended.value.code == 0
    assert "TTFT p99 of long" in (tmp_path / "report.html").read_text()


def test_rows_without_classes_have_no_column_of_one(tmp_path: Path) -> None:
    given = table({}, sweep={"axes": {"engine.max_num_seqs": [4, 8]}})
    del given["workload"]["classes"]
    sweep(Grid.from_mapping(given), tmp_path / "plain", workers=1)
    rows = pl.read_parquet(tmp_path / "plain" / "parts" / "*.parquet")
    assert not [name for name in rows.columns if "[" in name]
    with pytest.raises(InputError, match="there are no classes"):
        compare(tmp_path / "plain", "engine.max_num_seqs", ["ttft_p99_ms[short]"])


def test_a_sweep_over_a_bound_of_a_class_keeps_the_requests(tmp_path: Path) -> None:
    given = table({}, sweep={"axes": {"workload.classes.chat.slo.ttft_ms": [30.0, 300.0, 5000.0]}})
    sweep(Grid.from_mapping(given), tmp_path / "slo", workers=1)
    rows = pl.read_parquet(tmp_path / "slo" / "parts" / "*.parquet").sort("workload.classes.chat.slo.ttft_ms")
    assert rows["workload_id"].n_unique() == 1
    assert rows["ttft_p99_ms"].n_unique() == 1
    assert rows["goodput_share[chat]"].is_sorted()
    assert rows["goodput_share[chat]"].n_unique() == 3
    assert rows["goodput_share[code]"].n_unique() == 1


def test_phase_maps_a_class(tmp_path: Path) -> None:
    spec = spec_text(tmp_path)
    axis = "engine.long_prefill_token_threshold=0,1024"
    found = phase(spec, "workload.arrival.rate_per_s=2,4", axis, "ttft_p99_ms[short] <= 160", seeds=2)
    assert found.classes[1] == "ttft_p99_ms[short] <= 160"
    assert found.labels.tolist() == [[0, 0], [1, 1]]
    with pytest.raises(InputError, match="the classes are long, short"):
        phase(spec, "workload.arrival.rate_per_s=2,4", axis, "ttft_p99_ms[other] <= 100")


def test_recommend_meets_the_bound_of_a_class(tmp_path: Path) -> None:
    spec = spec_text(tmp_path)
    found = recommend(
        spec,
        ["workload.classes.short.slo.ttft_ms=160"],
        ["engine.long_prefill_token_threshold=0,1024"],
        seeds=2,
        workers=1,
    )
    assert [term.text for term in found.terms] == ["TTFT p99 of short <= 160 ms"]
    assert found.meets
    assert found.best.config.engine.long_prefill_token_threshold == 1024
    assert found.current is not None
    assert not found.current.outlook.meets
    assert "ttft_p99_ms[short]" in json.dumps(found.to_json(None))


def test_terms_of_classes_take_what_they_leave_open_from_the_common_slo() -> None:
    given = table({})
    given["workload"]["classes"] = CLASSES | {"chat": CLASSES["chat"] | {"slo": {"ttft_ms": 60.0}}}
    texts = [term.text for term in slo_terms(spec_from_mapping(given).config())]
    assert texts == [
        "TTFT p99 of chat <= 60 ms",
        "TPOT p99 of chat <= 60 ms",
        "TTFT p99 of code <= 900 ms",
        "TPOT p99 of code <= 60 ms",
    ]


def test_a_replica_gets_the_classes_of_its_requests() -> None:
    config = WorkloadConfig.model_validate({"num_requests": 40, "classes": CLASSES})
    whole = build_workload(config)
    half = changed(whole, Load(config, replicas=2, replica=1))
    assert half.request_class is not None
    code = half.class_names.index("code")
    assert ((half.prompt_tokens == 900) == (half.request_class == code)).all()
    assert len(half.request_class) == 20


def test_the_rate_of_classes_is_that_of_all_of_them() -> None:
    classes = CLASSES | {"tools": {"arrival": {"kind": "constant", "rate_per_s": 0.5}, "prompt": SHORT}}
    given = {"num_requests": 400, "arrival": {"rate_per_s": 9.0}, "classes": classes}
    assert Traffic(WorkloadConfig.model_validate(given)).rate_per_s == 9.5
    classes["tools"] = {"arrival": {"kind": "spikes"}}
    rate = Traffic(WorkloadConfig.model_validate(given)).rate_per_s
    assert rate is not None
    assert rate > 9.5


def test_answers_name_only_classes_there_are() -> None:
    asked = {"where": ["ttft_p99_ms[chat] <= 5"]}
    chat, code = ([column.name for column in columns_with((name,))] for name in ("chat", "code"))
    assert answer_from(asked, "spec", [], chat).columns == ["ttft_p99_ms[chat]"]
    with pytest.raises(InputError, match=r"ttft_p99_ms\[chat\] is not a result column"):
        answer_from(asked, "spec", [], code)


# --- Rules --------------------------------------------------------------------------------------------------------


def projected(chat: dict[str, Any], code: dict[str, Any], common: dict[str, Any] | None = None) -> Config:
    given = table({"admission": "projected", "projection": "max_tokens"})
    given["workload"]["classes"] = {"chat": CLASSES["chat"] | chat, "code": CLASSES["code"] | code}
    if common is not None:
        given["workload"]["max_tokens"] = common
    return spec_from_mapping(given).config()


def test_projected_admission_looks_at_the_limits_of_classes() -> None:
    limit = {"max_tokens": {"dist": "constant", "mean": 100}}
    large = {"max_tokens": {"dist": "constant", "mean": 1100}}
    assert simulate(projected(limit, limit)).metrics["completed"] > 20
    with pytest.raises(InputError, match=r"workload\.classes\.code\.max_tokens\.dist was expected"):
        projected(limit, {})
    both = projected(limit, large)
    assert simulate(both).metrics == simulate(projected({}, large, {"dist": "constant", "mean": 100})).metrics
    assert simulate(both).metrics["queue_time_p99_ms"] != simulate(projected(limit, limit)).metrics["queue_time_p99_ms"]
    grid = table({"admission": "projected"}, sweep={"axes": {"engine.projection": ["oracle", "max_tokens"]}})
    with pytest.raises(InputError, match=r"workload\.classes\.chat\.max_tokens\.dist was expected"):
        Grid.from_mapping(grid)
    grid["workload"]["classes"] = {name: each | limit for name, each in CLASSES.items()}
    assert Grid.from_mapping(grid).size == 2
