"""KV cache groups and speculation as a spec writes them: what is understood, what is refused, what comes out."""

import numpy as np
import pytest

from fastsim.config import Config, check_rules
from fastsim.config.speculation import accept_permille
from fastsim.engines.vllm.group_texts import KVCacheGroup, effective_groups, parsed_groups
from fastsim.errors import InputError
from fastsim.records import records_of
from fastsim.simulation import simulate, simulate_chunk
from fastsim.workload import Workload

WORKLOAD = Workload.from_arrays([0, 0, 900, 50_000], [70, 40, 300, 33], [60, 90, 20, 5])
HYBRID = ("sliding:40*2", "full")


def config(spec: dict[str, object] | None = None, **engine: object) -> Config:
    return Config.model_validate({"engine": {"num_gpu_blocks": 60, **engine}, "spec": spec or {}})


def test_groups_are_read() -> None:
    assert parsed_groups(("sliding:1024*2", "full/32", "mamba")) == (
        KVCacheGroup("sliding", 1024, 0),
        KVCacheGroup("sliding", 1024, 0),
        KVCacheGroup("full", 0, 32),
        KVCacheGroup("mamba", 0, 0),
    )
    assert effective_groups(("chunked:64", "full"), False, 16)[0] == KVCacheGroup("chunked", 64, 16)
    assert effective_groups(("chunked:64", "full"), True, 16) == (KVCacheGroup("full", 0, 16),)


@pytest.mark.parametrize("text", ["", "sliding", "sliding:0", "full:3", "half", "full*0", "full/0", "full *2"])
def test_what_is_no_group_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="sliding:WINDOW"):
        config(kv_cache_groups=(text,))


def test_acceptance() -> None:
    assert accept_permille(3, (0.5,), None) == (500, 500, 500)
    assert accept_permille(2, (0.8, 0.25), None) == (800, 250)
    assert accept_permille(3, None, 4.0) == (1000,) * 3
    assert accept_permille(3, None, 1.0) == (0,) * 3
    (share, *_) = accept_permille(3, None, 2.5)
    assert sum((share / 1000) ** j for j in range(4)) == pytest.approx(2.5, abs=0.01)


@pytest.mark.parametrize(
    ("spec", "engine", "sentence"),
    [
        ({}, {"name": "vllm-0.16.0", "kv_cache_groups": HYBRID}, "engine.name"),
        ({"method": "ngram"}, {"preemption_mode": "restart"}, "engine.preemption_mode"),
        ({"method": "ngram"}, {"name": "blis"}, "engine.name"),
        ({"method": "ngram"}, {"long_prefill_token_threshold": 3}, "long_prefill_token_threshold"),
        ({"method": "ngram", "num_drafts": "hashed"}, {"name": "vllm-0.33.0-async"}, "spec.num_drafts"),
        ({"method": "ngram", "acceptance": (0.5, 0.4)}, {}, "spec.acceptance"),
        ({"method": "ngram", "mean_acceptance_length": 4.5}, {}, "spec.mean_acceptance_length"),
        (
            {"method": "eagle", "lookahead_hashes": False},
            {"kv_cache_groups": ("chunked:64", "full")},
            "lookahead_hashes",
        ),
        ({}, {"kv_cache_groups": HYBRID, "prefix_cache_retention_interval": 24}, "retention_interval"),
        ({}, {"kv_cache_groups": ("mamba/32", "full")}, "equal block sizes"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    spec: dict[str, object], engine: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        check_rules(config(spec, **engine))


def test_one_full_group_is_the_plain_engine() -> None:
    plain = simulate(config(), WORKLOAD).metrics
    assert simulate(config(kv_cache_groups=("full",)), WORKLOAD).metrics == plain
    off = simulate(config(kv_cache_groups=HYBRID, disable_hybrid_kv_cache_manager=True), WORKLOAD).metrics
    assert off == plain
    assert simulate(config(kv_cache_groups=HYBRID), WORKLOAD).metrics != plain


def test_columns_of_speculation() -> None:
    row = simulate(config({"method": "eagle3", "num_speculative_tokens": 2, "acceptance": (1.0,)}), WORKLOAD).metrics
    assert row["draft_acceptance_rate"] > 0.9
    assert 2.5 < row["mean_acceptance_length"] <= 3
    assert row["output_tokens"] == 175
    assert simulate(config(), WORKLOAD).metrics["draft_tokens"] is None
    slow = config({"method": "eagle3", "num_speculative_tokens": 2, "acceptance": (1.0,), "draft_us": 5000.0})
    assert simulate(slow, WORKLOAD).metrics["simulated_s"] > row["simulated_s"]


def test_a_chunk_may_mix_them() -> None:
    """Rows come in the order of the configurations, whichever kernel ran them, and are those of each alone."""
    configs = [
        config(),
        config(kv_cache_groups=HYBRID),
        config({"method": "ngram"}),
        config(kv_cache_groups=("mamba*3", "full"), enable_prefix_caching=False),
        config(block_size=8),
        config({"method": "eagle"}, name="vllm-0.33.0-async", kv_cache_groups=("chunked:32", "full")),
    ]
    rows = simulate_chunk(WORKLOAD, records_of(configs))
    for place, one in enumerate(configs):
        alone = simulate_chunk(WORKLOAD, records_of([one]))
        np.testing.assert_array_equal(rows.floats[place], alone.floats[0])
        np.testing.assert_array_equal(rows.ints[place], alone.ints[0])
