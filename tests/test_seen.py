"""What users look for where they look: hit rates, by turn too, and the key behind a flag of another engine."""

import pytest

from fastsim.cli import main
from fastsim.config import KEYS, Config, find_key, with_values
from fastsim.config.other_names import OTHER_NAMES, nearest
from fastsim.simulation import simulate
from fastsim.workload import build_workload
from fastsim.workload.turns import turns_of

from .sentences import bad_input

SETTINGS = {
    "engine.num_gpu_blocks": 4000,
    "workload.num_requests": 90,
    "workload.arrival.rate_per_s": 2.0,
    "workload.prompt.dist": "constant",
    "workload.prompt.mean": 160.0,
    "workload.output.dist": "constant",
    "workload.output.mean": 8.0,
    "workload.sessions.turns": 3,
    "workload.sessions.gap_s": 60.0,
}


def config_of(**more: object) -> Config:
    """Conversations on a small pool."""
    return with_values(Config(), SETTINGS | {key.replace("__", "."): value for key, value in more.items()})


@pytest.mark.parametrize("longest", [None, 400])
def test_turns_are_those_of_the_conversations(longest: int | None) -> None:
    workload = build_workload(config_of(workload__sessions__max_prompt_tokens=longest).workload)
    turns = turns_of(workload)
    # Lengths are constant, so that a prompt's length tells its turn: 160, and 168 more each time
    expected = 1 + (workload.prompt_tokens - 160) // 168
    assert turns.tolist() == expected.tolist()
    assert set(turns.tolist()) == ({1, 2, 3} if longest is None else {1, 2})


def test_a_run_says_what_the_prefix_cache_had(capsys: pytest.CaptureFixture[str]) -> None:
    sets = [text for key, value in SETTINGS.items() for text in ("--set", f"{key}={value}")]
    with pytest.raises(SystemExit):
        main(["run", *sets])
    text = capsys.readouterr().out
    result = simulate(config_of())
    log, prompt = result.requests.prefix_hit_tokens_first, build_workload(config_of().workload).prompt_tokens
    share = log.sum() / prompt.sum()
    assert f"prefixes    {100 * share:.1f} % of prompt tokens hit at first admission" in text
    table = text[text.index("turn  admitted") :].splitlines()
    for turn, row in zip((1, 2, 3), table[1:4], strict=True):
        mine = turns_of(build_workload(config_of().workload)) == turn
        assert row.split()[:2] == [str(turn), "30"]
        assert f"{100 * log[mine].sum() / prompt[mine].sum():.1f}".removesuffix(".0") in row
    with pytest.raises(SystemExit):
        main(["run", *sets, "--set", "engine.enable_prefix_caching=false"])
    assert "prefixes  " not in capsys.readouterr().out


def test_every_other_name_leads_to_a_key() -> None:
    for name, found in OTHER_NAMES.items():
        assert found.key is None or found.key in KEYS, name
        assert f"engine.{name}" not in KEYS, f"{name} is a key itself"
        assert found.why
    assert nearest("--no-enable-prefix-cache") == nearest("enable_prefix_cache")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("engine.max_num_partial_prefills", ["nearest is engine.long_prefill_token_threshold", "partial prefills"]),
        ("max-running-requests", ["nearest is engine.max_num_seqs"]),
        ("engine.num_scheduler_steps", ["there is no key for it", "V0"]),
        ("max_num_seqz", ["did you mean engine.max_num_seqs"]),
    ],
)
def test_flags_of_others_get_the_nearest_key_and_why(name: str, said: list[str]) -> None:
    bad_input(lambda: find_key(name, "--set"), f"{name} is not a key", *said)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--max-num-seqs", "keys are set by --set engine.max_num_seqs=VALUE"),
        ("--mem-fraction-static", "nearest is hardware.gpu_memory_utilization"),
    ],
)
def test_flags_as_options_too(option: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", option, "3"])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
