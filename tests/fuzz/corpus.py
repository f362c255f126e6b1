"""Small valid inputs to start from: one or more for every trace format, specs, and command line options."""

import json
from dataclasses import dataclass, field
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Seed:
    """A file of a format. `beside` are files that belong to it; `folder`: the reader is given their folder."""

    name: str
    data: bytes
    beside: dict[str, bytes] = field(default_factory=dict)
    folder: bool = False


def _lines(*rows: object) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _first(path: str, count: int) -> bytes:
    return b"".join((DATA / path).read_bytes().splitlines(keepends=True)[:count])


_BLIS = b"""request_id,slo_class,prefix_group,prefix_length,input_tokens,output_tokens,deadline_us,server_input_tokens,\
arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,status
0,critical,a,16,100,10,0,0,0,0,50,900,ok
1,batch,a,16,120,11,0,0,1000,1001,2000,3000,ok
2,,,0,7,3,5000,9,2000,0,0,0,error
"""
_BLIS_HEADER = b"trace_version: 3\ntime_unit: microseconds\nmode: real\nwarm_up_requests: 1\nserver:\n  type: vllm\n"

_BENCH = {
    "request_rate": 2.5, "burstiness": 1.0, "max_concurrency": None, "request_throughput": 1.0,
    "input_lens": [10, 20, 30], "output_lens": [5, 1, 0], "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.02, 0.03, 0.04], [], []], "errors": ["", "", "boom"], "start_times": [1.0, 1.5, 1.25],
}  # fmt: skip

_GUIDELLM_REQUEST = {
    "prompt_tokens": 10, "output_tokens": 20, "start_time": 1000.0, "first_token_time": 1000.5,
    "last_token_time": 1002.0, "request_latency": 1.5, "info": {"timings": {"request_start": 1060.0}},
}  # fmt: skip
_GUIDELLM = {"benchmarks": [{"requests": {"successful": [_GUIDELLM_REQUEST] * 2, "incomplete": [], "errored": [{}]}}]}

_STAGES = b"""load:
  type: poisson
  interval: 10   # seconds
  stages:
  - rate: 2
    duration: 5
  - rate: 10.0
    duration: 2
data:
  type: random
  input_distribution:
    min: 100
    max: 300
    mean: 200
    std_dev: 30
  output_distribution:
    min: 5
    max: 50
    mean: 20
    std_dev: 100
"""
_SHARED = b"""load:
  stages:
    - rate: 10
      duration: 10
data:
  type: shared_prefix
  shared_prefix:
    num_groups: 4
    num_prompts_per_group: 5
    system_prompt_len: 100
    question_len: 20
    output_len: 30
"""

_CLIENT = "servegen_m-large/chunk-0"

READERS: dict[str, tuple[Seed, ...]] = {
    "plain": (
        Seed("p.csv", b"arrival_s,prompt_tokens,output_tokens\n0,10,5\n0.5,20,6\n1.25,7,1\n"),
        Seed(
            "p.csv",
            b"arrival_s,prompt_tokens,output_tokens,max_tokens,priority,prefix_path,prefix_tokens,ttft_s,e2e_s\n"
            b"0,100,5,8,1,7:0/3:32,48,0.5,1.25\n1,100,5,,0,7:0,32,,\n2,100,5,3,,,,,\n",
        ),
        Seed(
            "p.csv",
            b"arrival_s,prompt_tokens,output_tokens,prefix_group,prefix_tokens\n0,9,1,1,4\n1,9,1,1,4\n2,9,1,,\n",
        ),
    ),
    "azure": (Seed("a.csv", _first("azure2023_conv_first2000.csv", 5)),),
    "burstgpt": (
        Seed(
            "b.csv",
            b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            b"5,ChatGPT,472,18,490,Conversation log\n"
            b'45.25,ChatGPT,1087,230,1317,"Conv, log"\n118,GPT-4,417,0,417,API log\n',
        ),
    ),
    "vidur": (
        Seed("v.csv", b"arrived_at,num_prefill_tokens,num_decode_tokens\n0.000007,10,20\n0.5,11,3\n0.75,12,21\n"),
    ),
    "vllm-run": (Seed("requests.jsonl", _first("vllm-0.19.0_RTX4090_Llama-3.1-8B/requests.jsonl", 4)),),
    "llmservingsim": (
        Seed(
            "l.jsonl",
            _lines(*({"input_toks": 10 + n, "output_toks": 5, "arrival_time_ns": 1000 * n} for n in range(4))),
        ),
    ),
    "mooncake": (Seed("m.jsonl", _first("mooncake_conversation_first300.jsonl", 5)),),
    "vllm-bench": (
        Seed("r.json", json.dumps(_BENCH).encode()),
        Seed("r.json", json.dumps({k: v for k, v in _BENCH.items() if k != "start_times"}).encode()),
    ),
    "guidellm": (Seed("g.json", json.dumps(_GUIDELLM).encode()),),
    "inference-perf": (Seed("i.yaml", _STAGES), Seed("i.yaml", _SHARED)),
    "servegen": (
        Seed(
            "chunk-0-trace.csv",
            (DATA / f"{_CLIENT}-trace.csv").read_bytes(),
            {"chunk-0-dataset.json": (DATA / f"{_CLIENT}-dataset.json").read_bytes()},
            folder=True,
        ),
        Seed(
            "chunk-0-dataset.json",
            (DATA / f"{_CLIENT}-dataset.json").read_bytes(),
            {"chunk-0-trace.csv": (DATA / f"{_CLIENT}-trace.csv").read_bytes()},
            folder=True,
        ),
    ),
    "blis": (Seed("t.csv", _BLIS, {"t.yaml": _BLIS_HEADER}), Seed("t.yaml", _BLIS_HEADER, {"t.csv": _BLIS})),
}  # fmt: skip

_TRACE_CSV = READERS["plain"][0].data

SPECS: tuple[Seed, ...] = (
    Seed(
        "spec.toml",
        b"""extends = "base.toml"
workload.prompt = { dist = "uniform", min = 16, max = 200 }
run.horizon_s = 20
slo.ttft_ms = 500
[sweep]
seeds = 3
zip = [{ "engine.block_size" = [8, 16], "latency.b0_us" = [1e3, 2e3] }]
[sweep.axes]
engine.max_num_seqs = { start = 1, stop = 64, num = 4, scale = "log" }
engine.watermark = [0, 0.05]
[sweep.choice.policy]
a = { "engine.policy" = "fcfs" }
b = { "engine.policy" = "priority" }
[answer]
where = ["ttft_p99_ms <= 2000"]
best = ["least preemptions"]
""",
        {"base.toml": b"engine.num_gpu_blocks = 64\nworkload.num_requests = 8\n"},
    ),
    Seed(
        "spec.toml",
        b"""engine.num_gpu_blocks = 100
workload.trace = "t.csv"
[sweep.axes]
workload.rate_scale = [1, 2, 4]
""",
        {"t.csv": _TRACE_CSV},
    ),
    Seed("spec.toml", b'engine.name = "blis"\nengine.num_gpu_blocks = 64\n[sweep]\nseeds = [1, 5, 9]\n'),
    Seed("spec.toml", b'engine = { name = "vllm-rlt", num_gpu_blocks = 64 }\nworkload.num_requests = 5\n'),
)

OPTIONS: tuple[str, ...] = (
    "engine.max_num_seqs=1,2,4",
    "engine.watermark={start=0,stop=0.5,num=5}",
    "engine.policy=fcfs,priority",
    "workload.trace=t.csv",
    "workload.prompt.values=[1,2,3]",
    "workload.seed=3",
    "sweep.seeds=4",
    "run.horizon_s=none,10",
    'latency.b0_us={start=1,stop=1e6,num=3,scale="log"}',
    "engine.name=vllm-0.33.0",
    "workload.arrival.rate_per_s=1e3",
)

PATHS: tuple[bytes, ...] = (
    b"/dev/zero", b"/dev/stdin", b"/dev/full", b"/dev/tty", b"/proc/self/mem", b"/proc/self/environ", b"/", b".", b"..",
    b"../../../../etc/passwd", b"loop", b"pipe", b"spec.toml", b"a" * 300, b"a\\u0000b", b"~/x", b"//x/y", b"t.csv/",
    b"link", b"broken", b"%s%n", b"$(reboot)", b"\\n", b"*", b"t*.csv", b"http://localhost/x.csv", b"s3://bucket/x.csv",
)  # fmt: skip
"""Names of files that a spec may give; `link`, `broken`, `loop` and `pipe` are made beside it."""
