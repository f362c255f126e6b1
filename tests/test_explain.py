"""The story of a request: its numbers are the run's, its sentences fit the screen, every end has its words."""

from pathlib import Path

import pytest

from fastsim.analysis.explain.explain import Story, explain, worst_request
from fastsim.analysis.explain.history import History, history_of
from fastsim.analysis.explain.waits import stays_of
from fastsim.cli import main
from fastsim.cli.explain import story_text
from fastsim.config import Config, load_config
from fastsim.engines.outputs import Status
from fastsim.simulation import Result, simulate
from fastsim.sweeps.grid import Grid

TIGHT = [
    "engine.num_gpu_blocks=350",
    "workload.num_requests=24",
    "workload.arrival.rate_per_s=20",
    "workload.output.dist=uniform",
    "workload.output.min=200",
    "workload.output.max=900",
]
"""Two dozen requests on a cache that holds seven."""

VARIANTS = {
    "plain": ["engine.watermark=0.02", "latency.frontend_us=1500"],
    "cached": ["engine.enable_prefix_caching=true", "engine.long_prefill_token_threshold=64"],
    "asynchronous": ["engine.name=vllm-0.33.0-async"],
    "restart": ["engine.preemption_mode=restart"],
    "swap": ["engine.preemption_mode=swap", "engine.swap_space_blocks=200"],
    "slots": [
        "engine.max_num_seqs=4",
        "engine.slot_preempt=true",
        "engine.policy=priority",
        "workload.priority.values=[0,1,2]",
    ],
    "drafts": ["spec.method=ngram", "spec.num_speculative_tokens=2"],
    "impatient": ["workload.timeout_s=4"],
    "refused": ["engine.max_num_queued_reqs=3"],
    "horizon": ["run.horizon_s=2"],
    "unservable": ["engine.num_gpu_blocks=40", "engine.max_model_len=4096"],
}


def run(sets: list[str]) -> tuple[Config, Result, History]:
    given = dict(text.split("=", 1) for text in [*TIGHT, *sets])
    config = load_config(None, [f"{key}={value}" for key, value in given.items()])
    result = simulate(config, record_steps=True)
    return config, result, history_of(result)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_story_adds_up(name: str) -> None:
    config, result, history = run(VARIANTS[name])
    seen = set()
    for request in range(result.workload.num_requests):
        story = explain(history, config, request)
        status = Status(int(result.requests.status[request]))
        seen.add(status)
        frontend_us = round(config.latency.frontend_us or 0.0)
        if status is Status.FINISHED:
            log = result.requests
            arrival_us = int(log.arrival_us[request])
            assert sum(s.total_us for s in story.shares) == log.finish_us[request] - arrival_us + frontend_us
            assert sum(s.ttft_us for s in story.shares) == log.first_token_us[request] - arrival_us + frontend_us
            assert story.events[-1][1] == "last token: done"
        stays = stays_of(history, request)
        for stay in stays:
            moments = [stay.since_us, *(part.end_us for part in stay.parts)]
            assert [part.start_us for part in stay.parts] == moments[:-1]
            assert moments[-1] == stay.until_us
        assert sum(us for _, us in story.waits) == sum(stay.until_us - stay.since_us for stay in stays)
        evictions = [event for _, event in history.preemptions if event.request == request]
        assert len([words for _, words in story.events if words.startswith("PREEMPTED")]) == len(evictions)
        text = story_text(story, whole=True)
        assert max(map(len, text.splitlines())) <= 80
        assert str(request) in text.splitlines()[0]
    expected = {
        "impatient": Status.TIMED_OUT,
        "refused": Status.REJECTED,
        "horizon": Status.WAITING,
        "unservable": Status.UNSERVABLE,
    }
    assert expected.get(name, Status.FINISHED) in seen


def first(history: History, config: Config, status: Status) -> Story:
    return explain(history, config, history.log.status.tolist().index(status))


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("unservable", Status.UNSERVABLE, "39 are usable"),
        ("refused", Status.REJECTED, "rejected at the door: max_num_queued_reqs = 3"),
        ("impatient", Status.TIMED_OUT, "given up by its client 4.000 s after it arrived"),
        ("horizon", Status.RUNNING, "was still running when the run ended at 2.0"),
        ("horizon", Status.WAITING, "was still waiting when the run ended"),
    ],
)
def test_every_end_has_its_words(name: str, status: Status, words: str) -> None:
    config, _, history = run(VARIANTS[name])
    assert words in first(history, config, status).answer


def test_the_discussion_told() -> None:
    """A request of the discussion's run, checked by hand against the record."""
    config = load_config("sweeps/discussion.toml", ["workload.arrival.kind=all_at_once", "workload.num_requests=50"])
    result = simulate(config, record_steps=True)
    history = history_of(result)
    assert result.steps is not None
    step = next(step for step in result.steps if step.preempted)
    victim = step.preempted[0]
    story = explain(history, config, victim)
    (told,) = [words for at_us, words in story.events if words.startswith("PREEMPTED")]
    at_us = next(at_us for at_us, words in story.events if words.startswith("PREEMPTED"))
    assert at_us == step.t_us
    (eviction,) = [event for _, event in history.preemptions if event.request == victim]
    assert f"request {eviction.evictor} needs 1 more block than are free" in told
    assert f"keeps {eviction.generated_tokens:,} generated" in told
    assert "preempted once" in story.facts[0]
    again = sum(span.recomputed_tokens for span in history.spans[victim])
    assert again == eviction.computed_tokens
    assert f"computed {again:,} tokens again" in story.facts[1]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s").mkdir()
    keys = [text.replace("=uniform", '="uniform"') for text in TIGHT]
    (tmp_path / "s" / "spec.toml").write_text("\n".join([*keys, "[sweep.axes]", "engine.watermark = [0.0, 0.05]"]))
    grid = Grid.from_toml(tmp_path / "s" / "spec.toml")
    with pytest.raises(SystemExit) as stop:
        main(["explain", str(tmp_path / "s"), "--config-id", "1", "--request", "20"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    config = grid.config(1)
    history = history_of(simulate(config, record_steps=True))
    assert shown.strip() == story_text(explain(history, config, 20))
    with pytest.raises(SystemExit) as stop:
        main(["explain", str(tmp_path / "s"), "--config-id", "1"])
    assert stop.value.code == 0
    shown = capsys.readouterr()
    assert f"request {worst_request(history)} was held up longest" in shown.err
    with pytest.raises(SystemExit) as stop:
        main(["explain", str(tmp_path / "s"), "--config-id", "1", "--request", "24"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.strip().endswith("\n--request 24, but an integer from 0 to 23 was expected")


def test_a_long_story_is_cut_and_says_so() -> None:
    config, _, history = run(VARIANTS["plain"])
    story = explain(history, config, worst_request(history))
    long = Story(story.answer, story.facts, story.events * 20, story.shares, story.waits, story.tokens_after_first)
    text = story_text(long)
    assert f"{len(long.events) - 42:,} more events: --all shows them" in text
    assert len(text.splitlines()) < len(story_text(long, whole=True).splitlines())
