"""Bad settings: each is refused with one sentence that names file or option, key, value and what was expected."""

from pathlib import Path

import pytest

from fastsim.config import load_config, load_spec

from .sentences import bad_input

BLOCKS = "engine.num_gpu_blocks=7463"

SETTINGS = [
    # one key
    ("engine.max_num_seq=3", ["engine.max_num_seq", "did you mean engine.max_num_seqs"]),
    ("max_num_seqs=3", ["did you mean engine.max_num_seqs"]),
    ("engin.watermark=0.1", ["did you mean engine.watermark"]),
    ("nonsense=1", ["nonsense is not a key"]),
    ("engine=1", ["engine is a table", "engine.name"]),
    ("workload.arrival=1", ["workload.arrival is a table", "workload.arrival.kind"]),
    ("engine.max_num_seqs", ["key=value"]),
    ("=1", ["key=value"]),
    ("engine.max_num_seqs=many", ['engine.max_num_seqs = "many"', "an integer from 1"]),
    ("engine.max_num_seqs=true", ["engine.max_num_seqs = true", "an integer"]),
    ("engine.max_num_seqs=2.5", ["engine.max_num_seqs = 2.5", "an integer"]),
    ("engine.max_num_seqs=0", ["engine.max_num_seqs = 0", "from 1 to 2147483647"]),
    ("engine.max_num_seqs=-1", ["engine.max_num_seqs = -1", "from 1"]),
    ("engine.max_num_seqs=99999999999", ["engine.max_num_seqs = 99999999999", "2147483647"]),
    ("engine.max_num_seqs=" + "9" * 5000, ["engine.max_num_seqs", "2147483647"]),
    ("engine.max_num_seqs=[1,2]", ["engine.max_num_seqs = [1, 2]", "an integer"]),
    ("engine.max_num_seqs={a=1}", ["engine.max_num_seqs", "an integer"]),
    ("engine.watermark=nan", ["engine.watermark = nan", "from 0 to below 1"]),
    ("engine.watermark=inf", ["engine.watermark = inf", "from 0 to below 1"]),
    ("engine.watermark=1", ["engine.watermark = 1", "from 0 to below 1"]),
    ("engine.watermark=-0.1", ["engine.watermark = -0.1", "from 0"]),
    ("engine.policy=lifo", ['engine.policy = "lifo"', '"fcfs", "priority"']),
    ("engine.name=vllm", ['engine.name = "vllm"', '"vllm-0.33.0"']),
    ("engine.enable_prefix_caching=1", ["engine.enable_prefix_caching = 1", "true or false"]),
    ("latency.b0_us=0", ["latency.b0_us = 0", "from 1"]),
    ("latency.b1_us_per_prefill_token=-1", ["latency.b1_us_per_prefill_token = -1", "from 0"]),
    ("run.horizon_s=0", ["run.horizon_s = 0", "above 0"]),
    ("run.max_steps=inf", ["run.max_steps = inf", "an integer"]),
    ("workload.num_requests=0", ["workload.num_requests = 0", "from 1"]),
    ("workload.seed=-1", ["workload.seed = -1", "from 0"]),
    ("workload.arrival.rate_per_s=0", ["workload.arrival.rate_per_s = 0"]),
    ("workload.arrival.kind=bursty", ['workload.arrival.kind = "bursty"', '"gamma"']),
    ("workload.prompt.values=[]", ["workload.prompt.values = []", "a list"]),
    ("workload.prompt.values=[1,0]", ["workload.prompt.values = [1, 0]", "an integer from 1"]),
    ("workload.trace=", ['workload.trace = ""', "text"]),
    ("slo.ttft_ms=-5", ["slo.ttft_ms = -5", "above 0"]),
    # keys that contradict each other
    ("engine.num_gpu_blocks=1", ["engine.num_gpu_blocks = 1", "null block"]),
    ("engine.enable_chunked_prefill=false", ["engine.enable_chunked_prefill = false", "2048", "8192"]),
    ("engine.slot_preempt=true", ["engine.slot_preempt = true", "engine.queue_order"]),
    ("engine.preemption_mode=swap", ["engine.swap_space_blocks = 0", "at least 1"]),
    ("workload.arrival.kind=closed_loop", ["workload.concurrency"]),
    ("workload.arrival.kind=trace", ["workload.trace"]),
    ("workload.output.dist=trace", ["workload.output.dist", "workload.trace"]),
    ("workload.prompt.mean=100", ["workload.prompt.mean = 100", "workload.prompt.dist"]),
    ("workload.prompt.dist=uniform", ["workload.prompt.min is missing", "uniform"]),
    ("workload.prompt.dist=empirical", ["workload.prompt.values is missing"]),
    ("workload.max_tokens.dist=normal", ["workload.max_tokens.mean is missing"]),
    ("workload.priority.shares=[1,2]", ["workload.priority.shares = [1.0, 2.0]", "workload.priority.values"]),
    ("workload.prefix.groups=3", ["workload.prefix.tokens = 0", "workload.prefix.groups = 3"]),
    ("workload.think.mean_s=1", ["workload.think.mean_s = 1.0", "workload.concurrency"]),
]

COMBINED = [
    (["engine.admission=projected", "engine.projection=max_tokens"], ["engine.projection", "workload.max_tokens.dist"]),
    (["engine.queue_order=aging", "engine.aging_per_s=0"], ["engine.aging_per_s = 0", "above 0"]),
    (["engine.slot_preempt=true", "engine.policy=priority", "engine.queue_order=sjf"], ["slot_preempt", '"sjf"']),
    (
        ["workload.prompt.dist=uniform", "workload.prompt.min=9", "workload.prompt.max=3"],
        ["workload.prompt.min = 9", "workload.prompt.max = 3"],
    ),
    (
        ["workload.output.dist=empirical", "workload.output.values=[1,2]", "workload.output.weights=[1]"],
        ["workload.output.weights = [1.0]", "workload.output.values"],
    ),
    (["metrics.warmup_s=60", "run.horizon_s=60"], ["metrics.warmup_s = 60", "run.horizon_s"]),
    (["engine.max_num_seqs=3", "engine.max_num_seqs=4"], ["engine.max_num_seqs is given twice"]),
    (
        ["engine.enable_chunked_prefill=0", "engine.max_num_scheduled_tokens=9"],
        ["engine.enable_chunked_prefill = 0", "true or false"],
    ),
]


@pytest.mark.parametrize(("setting", "named"), SETTINGS, ids=[setting[:60] for setting, _ in SETTINGS])
def test_a_bad_setting_is_one_sentence(setting: str, named: list[str]) -> None:
    sets = [setting] if setting.startswith("engine.num_gpu_blocks") else [BLOCKS, setting]
    bad_input(lambda: load_config(None, sets), "--set", *named)


@pytest.mark.parametrize(("sets", "named"), COMBINED, ids=[" ".join(sets)[:60] for sets, _ in COMBINED])
def test_bad_combinations_are_one_sentence(sets: list[str], named: list[str]) -> None:
    bad_input(lambda: load_config(None, [BLOCKS, *sets]), "--set", *named)


def test_blocks_are_required() -> None:
    bad_input(lambda: load_config(None), "engine.num_gpu_blocks is missing")


FILES = [
    (b"engine.num_gpu_blocks = \n", ["not valid TOML", "line 1"]),
    (b"engine.num_gpu_blocks = 1\nengine.num_gpu_blocks = 2\n", ["not valid TOML"]),
    (b"\xff\xfe\x00", ["not UTF-8"]),
    (b"a = " + b"[" * 20_000, ["not valid TOML", "nested"]),
    (b"engine.num_gpu_blocks = " + b"9" * 5000, ["not valid TOML"]),
    (b"[engines]\nnum_gpu_blocks = 5\n", ["engines", "is not a key"]),
    (b"[engine]\nnum_gpu_block = 5\n", ["did you mean engine.num_gpu_blocks"]),
    (b"engine = 3\n", ["engine = 3", "a table"]),
    (b"extends = 3\n", ["extends = 3", "TOML file"]),
    (b'extends = "missing.toml"\n', ["missing.toml", "cannot be read"]),
    (b'"engine.block_size" = 16\n[engine]\nblock_size = 16\n', ["engine.block_size is given twice"]),
    (b'engine.policy = "a\\nb"\n', ['engine.policy = "a\\nb"']),
    (b"[engine.max_num_seqs]\nx = 1\n", ["engine.max_num_seqs", "an integer"]),
    (b"workload.trace = 7\n", ["workload.trace = 7", "text"]),
    (b"sweep = 3\n", ["sweep = 3", "a table"]),
    (b"workload.num_requests = 1979-05-27\n", ["workload.num_requests = 1979-05-27", "an integer"]),
]


@pytest.mark.parametrize(("data", "named"), FILES, ids=[str(data[:40]) for data, _ in FILES])
def test_a_bad_file_is_one_sentence(tmp_path: Path, data: bytes, named: list[str]) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(data)
    bad_input(lambda: load_spec(path), str(tmp_path), *named)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    bad_input(lambda: load_spec(tmp_path / "no.toml"), "no.toml", "cannot be read")
    bad_input(lambda: load_spec(tmp_path), str(tmp_path), "cannot be read")


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.toml"
    path.write_bytes(b"#" * (4 * 2**20 + 1))
    bad_input(lambda: load_spec(path), "4 MiB")
