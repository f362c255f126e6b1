"""`fastsim policies`: complete, true to the configuration, and readable."""

import json

import pytest

from fastsim.cli.policies import policies
from fastsim.config import KEYS, load_spec
from tests.processes import run

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
