"""The script that makes the shipped tables of step times: an engine with known parts gives its terms back."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")

from benchmarks.step_tables import COLUMNS, KNOTS, MODELS, Parts, deployments, document, kernels_by_tokens, table_of

Op = tuple[str, float, float, str]


class Engine:
    """A tool of three parts: a GEMM with one slow point, an output layer, and attention that is exactly linear."""

    def _gemm_ms(self, tokens: int) -> float:
        return 9.0 if tokens == 1 else 4.0 + 0.01 * tokens

    def decode_step_per_op(self, tokens: int, context: int, _: int) -> list[Op]:
        attention = 0.5 + 0.002 * tokens + 1e-5 * tokens * context
        return [
            ("generation_gemm", self._gemm_ms(tokens), 0.0, ""),
            ("generation_logits_gemm", 0.1 + 0.001 * tokens, 0.0, ""),
            ("generation_attention", attention, 0.0, ""),
        ]

    def mixed_step_breakdown_per_op(self, tokens: int, *_: int) -> tuple[list[Op], list[Op], list[Op]]:
        return [("context_gemm", self._gemm_ms(tokens), 0.0, "")], [], []

    def evaluate_context_ops(self, indices: list[int], *, batch_size: int, s: int, prefix: int = 0) -> list[Op]:
        assert batch_size == 1
        parts = [
            ("context_gemm", self._gemm_ms(s), 0.0, ""),
            ("context_attention", 0.8 + 1e-6 * s * (prefix + s / 2), 0.0, ""),
        ]
        if max(indices) >= len(parts):
            raise ValueError("index out of range")
        return [parts[i] for i in indices]


def test_terms_are_found_and_a_slow_point_is_not_believed() -> None:
    parts: Any = Parts(Engine())
    assert parts.attention == [1]
    found = table_of(parts)
    assert found.context_us == pytest.approx(0.01, rel=1e-3)
    assert found.decode_us == pytest.approx(2.0, rel=1e-2)
    assert found.pair_us == pytest.approx(0.001, rel=1e-3)
    assert found.prefill_step_us == pytest.approx(300, abs=2)
    assert found.tokens_us[0] < found.tokens_us[1]  # 9 ms at one token is no more than the 4.02 at two
    assert found.tokens_us[KNOTS.index(64)] == pytest.approx(4640 + 164 + 500, rel=1e-3)
    assert found.tokens_us == sorted(found.tokens_us)
    assert found.smoothed_pct > 40


def test_the_output_layer_stays_for_prefills() -> None:
    parts: Any = Parts(Engine())
    kernels = kernels_by_tokens(parts)
    sampled = kernels[:, -1]
    assert sampled[-1] == sampled[KNOTS.index(512)] == pytest.approx(612)
    assert np.all(np.diff(sampled) >= 0)


def test_a_document_is_what_presets_read() -> None:
    import json

    parts: Any = Parts(Engine())
    text = json.loads(document({"llama-3.1-8b|h100|1|bfloat16": table_of(parts)}))
    assert tuple(text["columns"]) == COLUMNS
    assert len(text["tables"]["llama-3.1-8b|h100|1|bfloat16"]) == len(COLUMNS)
    assert set(text["models"]) == {f"{model}|{dtype}" for model, dtype in MODELS}


def test_only_what_fits_is_asked_for() -> None:
    asked = set(deployments())
    assert ("llama-3.1-70b", "h100", 2, "bfloat16") not in asked or (
        "llama-3.1-70b",
        "h100",
        1,
        "bfloat16",
    ) not in asked
    assert ("deepseek-v3", "h200", 8, "fp8") in asked
    assert ("deepseek-v3", "h100", 1, "fp8") not in asked
