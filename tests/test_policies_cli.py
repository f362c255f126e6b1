"""`fastsim policies`: complete, true to the configuration, and readable."""

import json

import pytest

from fastsim import load_config, simulate
from fastsim.cli.policies import policies
from fastsim.config import KEYS, load_spec
from fastsim.engines import engines
from tests.processes import run, run_elsewhere

NOT_POLICIES = {
    "engine.kv_cache_groups",
    "engine.prefix_cache_retention_interval",
    "engine.disable_hybrid_kv_cache_manager",
    "engine.num_gpu_blocks",
    "engine.max_model_len",
}
"""What the hardware and the model decide."""


def test_every_scheduler_key_belongs_to_a_policy():
    knobs = {knob for policy in policies() for knob in policy.knobs}
    assert knobs <= set(KEYS)
    assert {key for key in KEYS if key.startswith("engine.")} - knobs == NOT_POLICIES


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: policy.name)
def test_what_turns_a_policy_on_is_one_of_its_knobs(policy):
    key, _, _ = policy.turn_on.partition("=")
    assert key in policy.knobs
    load_spec(None, [policy.turn_on])  # a valid value


def test_the_table_fits_and_names_all(capsys):
    code, out, _ = run(capsys, "policies")
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    words = " ".join(out.split())
    assert all(policy.name in words for policy in policies())


@pytest.mark.parametrize("policy", policies(), ids=lambda policy: policy.name)
def test_details_fit_and_explain_every_knob(policy, capsys):
    code, out, _ = run(capsys, "policies", policy.name)
    assert code == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    words = " ".join(out.split())
    for knob in policy.knobs:
        assert knob in out
        assert " ".join(KEYS[knob].summary.split()) in words


def test_json_has_the_same(capsys):
    code, out, _ = run(capsys, "policies", "--json")
    assert code == 0
    objects = json.loads(out)
    assert [item["name"] for item in objects] == [policy.name for policy in policies()]
    feedback = next(item for item in objects if item["name"] == "feedback cap")
    window = next(knob for knob in feedback["knobs"] if knob["key"] == "engine.feedback_window")
    assert window["default"] == 100


def test_an_unknown_name_is_refused(capsys):
    code, out, err = run(capsys, "policies", "vctim")
    assert (code, out) == (2, "")
    assert "no policy contains 'vctim'" in err


SMALL = ("workload.num_requests=8", "workload.arrival.rate_per_s=200", "run.max_steps=200")
SMALL += ("workload.prompt.dist=constant", "workload.prompt.mean=40")
SMALL += ("workload.output.dist=constant", "workload.output.mean=30")
NEEDS = {
    "swap": ("engine.swap_space_blocks=20",),
    "slot preemption": ("engine.queue_order=priority", "workload.priority.values=[0,1]", "engine.max_num_seqs=2"),
}
"""What must be set beside what turns a policy on."""


def steps_of_policies() -> list[int]:
    """Steps of a run under every policy, in a pool that is too small for all requests at once."""
    steps = []
    for policy in policies():
        if "engine.policy_file" in policy.knobs:
            continue  # a file of one's own: tests/test_policy_file.py
        named = [f"engine.name={each.names[0]}" for each in engines() if f".{each.table}." in policy.turn_on]
        blocks = 56 if ".rlt." in policy.turn_on else 14  # there a page takes a block in each of four planes
        wanted = (f"engine.num_gpu_blocks={blocks}", *NEEDS.get(policy.name, ()), *named, policy.turn_on)
        steps.append(simulate(load_config(None, [*SMALL, *wanted])).metrics["steps"])
    return steps


def test_every_policy_runs_without_compiler_and_without_a_warning():
    program = "from tests.test_policies_cli import steps_of_policies; print(*steps_of_policies())"
    done = run_elsewhere(program, NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stderr) == (0, "")
    steps = [int(word) for word in done.stdout.split()]
    assert len(steps) == len(policies()) - 1
    assert min(steps) > 20
