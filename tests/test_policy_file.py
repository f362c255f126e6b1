"""A policy of one's own: what is refused, what it is given, and that kernels, jumps and oracle decide alike.

`FASTSIM_POLICIES` sets how many random policies are run (ordinarily 48; 1,000 take a quarter of an hour of CPU).
"""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from fastsim.config import Config, EngineConfig, check_rules
from fastsim.engines.vllm.codes import Reads
from fastsim.engines.vllm.policy_file.records import queue_moves, reads_of
from fastsim.engines.vllm.policy_text.fields import ADMIT, CAP, FIELDS, HOOKS
from fastsim.engines.vllm.policy_text.source import load_policy
from fastsim.errors import InputError, PolicyError
from tests.policy_draw import policy_case
from tests.reference.cases import random_case
from tests.reference.requests import Request
from tests.vllm_cases import check, records_of, run_recorded, workload_of

POLICIES = int(os.environ.get("FASTSIM_POLICIES", "48"))
CHUNK = 16


def written(folder: Path, text: str) -> str:
    """A policy file of this text."""
    path = folder / "mine.py"
    path.write_text(text)
    return str(path)


# --- Kernels, jumps and oracle ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, POLICIES, CHUNK))
def test_random_policies(first: int, tmp_path: Path) -> None:
    """Stepping, fast-forward with and without a record, and the oracle leave the same."""
    preemptions = 0
    for seed in range(first, min(first + CHUNK, POLICIES)):
        case, requests = policy_case(seed, tmp_path)
        preemptions += check(case, requests, f"policy {seed}:\n{Path(case['policy_file']).read_text()}").totals[
            "preemptions"
        ]
    assert preemptions > 0


BUILT_IN = {
    "tail": "return request.position",
    "priority": "return request.priority * 1000000000 + request.arrival_us",
    "least_computed": "return -request.computed_tokens",
    "most_computed": "return request.computed_tokens",
    "least_generated": "return -request.generated_tokens",
    "most_blocks": "return request.blocks",
}
"""The built-in victim rules in one line each; but `random` draws by the number of the decision, which no field is."""


@pytest.mark.parametrize("rule", BUILT_IN)
def test_a_built_in_victim_rule_written_as_a_policy_gives_the_same_bytes(rule: str, tmp_path: Path) -> None:
    ties = 'victim_ties = "first"\n' if rule == "priority" else ""
    path = written(tmp_path, f"{ties}def victim_key(view, request):\n    {BUILT_IN[rule]}\n")
    preemptions = 0
    for seed in range(40):
        case, requests = random_case(random.Random(seed), family="policies")
        case |= {"max_num_seqs": 256, "scheduler_reserve_full_isl": False, "slot_preempt": False, "watermark": 0.0}
        if rule == "tail" and case["boost_after"]:
            case["boost_after"] = 0  # under tail one that is its own victim ends the loop, and so may a protected one
        rows = []
        for settings in ({"victim": rule}, {"victim": None, "policy_file": path}):
            records = records_of(case | settings)
            run = run_recorded(records, workload_of(case, requests), fast_forward=True, record_steps=False)
            rows.append((run.rows.floats.tobytes(), run.rows.ints.tobytes(), run.log.finish_us.tolist()))
            preemptions += int(run.totals["preemptions"][0])
        assert rows[0] == rows[1], f"seed {seed}"
    assert preemptions > 100


QUEUES = {
    "priority": "return request.priority",
    "sjf": "return request.prompt_tokens",
    "aging": "return request.priority + 0.25 * (request.arrival_us / 1e6)",
}


@pytest.mark.parametrize("order", QUEUES)
@pytest.mark.parametrize("changes", ["", "queue_changes = True\n"])
def test_a_built_in_queue_order_written_as_a_policy_gives_the_same_bytes(
    order: str, changes: str, tmp_path: Path
) -> None:
    path = written(tmp_path, f"{changes}def queue_key(view, request):\n    {QUEUES[order]}\n")
    for seed in range(30):
        case, requests = random_case(random.Random(seed), family=("policies", "async-policies")[seed % 2])
        case |= {"slot_preempt": False, "aging_per_s": 0.25, "unservable": "reject"}
        rows = []
        for settings in ({"queue_order": order}, {"queue_order": None, "policy_file": path}):
            records = records_of(case | settings)
            run = run_recorded(records, workload_of(case, requests), fast_forward=True, record_steps=False)
            rows.append((run.rows.floats.tobytes(), run.rows.ints.tobytes(), run.log.finish_us.tolist()))
        assert rows[0] == rows[1], f"seed {seed}"


def test_a_gate_and_a_cap_never_lock_an_empty_engine(tmp_path: Path) -> None:
    path = written(tmp_path, "def admit(view, request):\n    return False\n\n\ndef cap(view):\n    return -3\n")
    case = {"engine": "vllm-0.33.0", "num_gpu_blocks": 100, "enable_prefix_caching": True, "policy_file": path}
    outcome = check(case, [Request(0, 5, 3), Request(0, 5, 3), Request(4, 5, 3)], "refuses everything")
    assert outcome.totals["completed"] == 3
    assert outcome.totals["running_peak"] == 1


# --- What is read, and what that does to jumps ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def cap(view):\n    return view.usable_blocks // 40", Reads.STEADY),
        ("def cap(view):\n    return view.running + 1", Reads.STEADY),
        ("def cap(view):\n    return view.waiting", Reads.ARRIVALS),
        ("def cap(view):\n    return view.free_blocks", Reads.STEPS),
        ("def share(view):\n    return view.now_us\n\ndef cap(view):\n    return share(view)", Reads.STEPS),
        ("def admit(view, request):\n    return request.preemptions < 3", Reads.STEADY),
        ("def admit(view, request):\n    return request.waiting_since_us < view.now_us", Reads.STEPS),
        ("def admit(view, request):\n    return request.blocks < 9", Reads.HITS),
    ],
)
def test_what_a_function_reads_decides_the_jumps(text: str, expected: Reads, tmp_path: Path) -> None:
    source = load_policy(written(tmp_path, text))
    assert max(reads_of(source, hook, caching=True) for hook in (ADMIT, CAP)) == expected


def test_a_key_that_depends_on_the_moment_stops_jumps_at_arrivals(tmp_path: Path) -> None:
    text = "def queue_key(view, request):\n    return request.prompt_tokens - view.{}\n"
    moves = {field: queue_moves(load_policy(written(tmp_path, text.format(field)))) for field in ("now_us", "waiting")}
    assert moves == {"now_us": True, "waiting": False}


# --- What is refused --------------------------------------------------------------------------------------------------

REFUSED = {
    "no function": ("x = 1", "none of the functions victim_key, queue_key, admit, cap"),
    "not Python": ("def cap(view)\n    return 1", "line 1: not Python (expected ':')"),
    "an import": ("import random\ndef cap(view):\n    return 1", "line 1: `import random`, but only"),
    "a name from math": ("from math import pi\ndef cap(view):\n    return pi", "line 1: `from math import pi`"),
    "state": (
        "n = 0\ndef cap(view):\n    global n\n    n = n + 1\n    return n",
        "line 3: `global n`, but a policy keeps",
    ),
    "a list": ("def cap(view):\n    return [3, 4][view.step % 2]", "line 2: `[3, 4][view.step % 2]`, but only numbers"),
    "a loop without end": (
        "def cap(view):\n    while True:\n        pass",
        "line 2: `while True:`, but a loop was expected",
    ),
    "print": ("def cap(view):\n    print(1)\n    return 1", "line 2: `print(1)` is not what policies are made of"),
    "open": ("def cap(view):\n    return open('x')", "line 2: a call of open"),
    "a power": (
        "def cap(view):\n    return view.running ** 2",
        "line 2: an operator that policies do not have, but x * x",
    ),
    "a hook's parameters": (
        "def cap(view, request):\n    return 1",
        "line 1: cap(view, request), but cap(view) was expected",
    ),
    "an unknown field": (
        "def cap(view):\n    return view.free_block",
        "line 2: view.free_block is no field; did you mean free_blocks?",
    ),
    "a field of another hook": (
        "def queue_key(view, request):\n    return request.position",
        "line 2: request.position in queue_key, but only victim_key can read it",
    ),
    "a field of another hook, in a function": (
        "def far(request):\n    return request.cached_tokens\ndef victim_key(view, request):\n    return far(request)",
        "line 2: request.cached_tokens in victim_key, but only admit can read it",
    ),
    "the view itself": ("def cap(view):\n    v = view\n    return v.running", "line 2: view by itself"),
    "no answer": (
        "def cap(view):\n    if view.running > 3:\n        return 1",
        "line 1: cap may end without an answer",
    ),
    "no value": (
        "def cap(view):\n    if view.running > 3:\n        x = 1\n    return x",
        "line 4: x may have no value here",
    ),
    "recursion": ("def cap(view):\n    return cap(view)", "line 1: cap calls itself"),
    "a default": ("def cap(view=3):\n    return 1", "line 1: cap was expected to have plain parameters"),
    "an endless number": ("def cap(view):\n    return 1e999", "line 2: inf is too large"),
    "division by 0": ("def cap(view):\n    return 9 / view.running", "line 2: a division by 0, where view.running = 0"),
    "an overflow": (
        "def victim_key(view, request):\n    return request.arrival_us * request.arrival_us * request.arrival_us",
        "line 2: an integer beyond 2**53",
    ),
    "a logarithm of 0": ("import math\ndef cap(view):\n    return math.log(view.step)", "line 3: ValueError: "),
    "NaN": ("def cap(view):\n    return 1e308 * 10 - 1e308 * 10", "line 1, cap: a result that is no finite number"),
    "ties": (
        'victim_ties = "middle"\ndef cap(view):\n    return 1',
        'line 1: victim_ties = "first" or "last" was expected',
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_fault_is_one_sentence_with_its_line(name: str, tmp_path: Path) -> None:
    text, expected = REFUSED[name]
    with pytest.raises(InputError) as fault:
        load_policy(written(tmp_path, text))
    sentence = str(fault.value)
    assert sentence.startswith("mine.py")
    assert expected in sentence
    assert "\n" not in sentence


def test_a_file_that_is_none() -> None:
    with pytest.raises(InputError, match=r"engine.policy_file = /nowhere/x.py: cannot be read \(No such file"):
        load_policy("/nowhere/x.py")


VICTIM_FILE = "def victim_key(view, request):\n    return request.blocks\n"
CHANGING_FILE = "queue_changes = True\ndef queue_key(view, request):\n    return -view.now_us\n"
CONFLICTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "victim": (VICTIM_FILE, {"victim": "tail"}, 'engine.victim = "tail" with engine.policy_file'),
    "queue_order": (CHANGING_FILE, {"queue_order": "sjf"}, 'engine.queue_order = "sjf" with engine.policy_file'),
    "slot_preempt": (VICTIM_FILE, {"slot_preempt": True, "policy": "priority"}, "engine.slot_preempt = true with"),
    "spin": (CHANGING_FILE, {"unservable": "spin"}, 'engine.unservable = "spin" with engine.policy_file'),
    "groups": (VICTIM_FILE, {"kv_cache_groups": ("sliding:128", "full")}, "none was expected with several KV cache"),
    "another engine": (VICTIM_FILE, {"name": "sglang-0.5.23"}, "it was expected only with vLLM's engines"),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_what_contradicts_a_policy_is_refused(name: str, tmp_path: Path) -> None:
    text, settings, expected = CONFLICTS[name]
    config = Config(engine=EngineConfig(num_gpu_blocks=100, policy_file=written(tmp_path, text), **settings))
    with pytest.raises(InputError) as fault:
        check_rules(config)
    assert expected in str(fault.value)


def test_a_fault_while_it_runs_names_the_line(tmp_path: Path) -> None:
    """No made-up state has this number, so only the run finds it."""
    path = written(tmp_path, "def victim_key(view, request):\n    x = 3\n    return x / (view.usable_blocks - 87654)\n")
    case = {"engine": "vllm-0.33.0", "num_gpu_blocks": 87655, "enable_prefix_caching": False, "policy_file": path}
    case |= {"block_size": 1, "max_num_batched_tokens": 100000, "max_model_len": 100000}
    case |= {"scheduler_reserve_full_isl": False}
    requests = [Request(0, 40000, 9000), Request(0, 40000, 9000)]
    with pytest.raises(PolicyError, match=r"^mine.py, line 3: a division by 0$"):
        run_recorded(records_of(case), workload_of(case, requests), fast_forward=True, record_steps=False)


def test_every_field_is_described_and_every_hook_can_read_some() -> None:
    for fields in FIELDS.values():
        assert all(field.what and set(field.hooks) <= set(HOOKS) for field in fields.values())
