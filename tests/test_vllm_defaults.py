"""What a vLLM server sets when nobody says otherwise, by version, GPU and entry point."""

import pytest

from fastsim.cli import main
from fastsim.engines.vllm.versions import GIB, server_defaults
from fastsim.presets import load_gpu

from .sentences import bad_input


@pytest.mark.parametrize(
    ("version", "gpu", "offline", "expected"),
    [
        (None, "h100", False, (1024, 8192, 0.92)),
        ("0.33.0", "h100", True, (1024, 16384, 0.92)),
        ("0.33.0", "a100-80gb", False, (256, 2048, 0.92)),
        ("0.33.0", "l40s", False, (256, 2048, 0.92)),
        ("0.33.0", "l40s", True, (256, 8192, 0.92)),
        ("0.33.0", "b200", False, (1024, 16384, 0.92)),
        ("0.27.1", "b200", False, (1024, 8192, 0.92)),
        ("0.19.0", "h100", False, (1024, 8192, 0.9)),
        ("0.8.5", "a100-80gb", False, (1024, 8192, 0.9)),
        ("0.9.0", "a100-80gb", False, (256, 2048, 0.9)),
        ("0.16.0", "rtx-4090", False, (256, 2048, 0.9)),
    ],
)
def test_defaults(version: str | None, gpu: str, offline: bool, expected: tuple[int, int, float]) -> None:
    found = server_defaults(version, gpu, load_gpu(gpu).memory_bytes, offline=offline)
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.gpu_memory_utilization) == expected
    assert (version or "0.33.0") in found.source


def test_versions_that_are_none() -> None:
    bad_input(lambda: server_defaults("0.7.0", "h100", 80 * GIB), "0.7.0", "V0")
    bad_input(lambda: server_defaults("new", "h100", 80 * GIB), "'new'")


def test_run_names_them_and_uses_them(capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--set", "workload.prompt.mean=100", "--set", "workload.output.mean=20"]
    load += [
        "--set",
        "workload.num_requests=20",
        "--set",
        "workload.prompt.dist=constant",
        "--set",
        "workload.output.dist=constant",
    ]
    for given, expected in (
        ([], "max_num_seqs 1,024, max_num_batched_tokens 8,192"),
        (["--set", "engine.max_num_seqs=64"], "max_num_seqs 64, max_num_batched_tokens 8,192"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["run", "--model", "llama-3.1-8b", "--gpu", "h100", *load, *given])
        printed = " ".join(capsys.readouterr().err.split())
        assert ended.value.code == 0
        assert expected in printed
        assert "vLLM 0.33.0's own for a server on h100" in printed
        assert "92% of" in printed
