"""Every engine at the ends of its ranges: 0 and 1 requests, blocks of 1 and 1,024 tokens, lengths around every border.

The same numbers compiled, interpreted, and with every index checked. The long form takes minutes:
`FASTSIM_CASES=300 python -m pytest -m slow tests/test_kernel_extremes.py`.
"""

import hashlib
import os
import random

import numpy as np
import pytest

from fastsim.config import Config, check_rules
from fastsim.config.spec import spec_from_mapping
from fastsim.errors import InputError
from fastsim.simulation import simulate
from fastsim.workload import Workload
from tests.processes import run_elsewhere

ENGINES = ("vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async", "blis", "vllm-rlt")
INT32_MAX = 2**31 - 1
NEVER_US = 2**62
"""What no time of a run reaches: `last_completion_us` of a run in which nobody is served."""


def extreme_config(engine: str, rng: random.Random) -> Config:
    """Few blocks of one or very many tokens, one or very many running, budgets from one token on."""
    block_size = rng.choice((1, 1, 2, 16, 1024, 1024))
    table = {
        "engine.name": engine,
        "engine.block_size": block_size,
        "engine.num_gpu_blocks": rng.choice((2, 3, 5, 17, 300)),
        "engine.max_num_seqs": rng.choice((1, 2, 7, 1024)),
        "engine.max_num_batched_tokens": rng.choice((1024, 8192, INT32_MAX)),
        "run.max_steps": rng.choice((1, 2, 50, 400)),
    }
    if engine.startswith("vllm-0"):
        table |= {
            "engine.enable_prefix_caching": rng.random() < 0.5,
            "engine.watermark": rng.choice((0.0, 0.05, 0.999)),
            "engine.policy": rng.choice(("fcfs", "priority")),
            "engine.long_prefill_token_threshold": rng.choice((0, 0, 1, 7)),
            "engine.victim": rng.choice(("tail", "least_computed", "random")),
        }
    return spec_from_mapping(table).base


def extreme_workload(config: Config, rng: random.Random) -> Workload:
    """No request, one, or a few: as long as nothing, a block, the cache, a token more, or more than anything holds."""
    count = rng.choice((0, 1, 1, 2, 3, 9))
    block, blocks = config.engine.block_size, config.engine.num_gpu_blocks or 2
    borders = [1, 2, block - 1, block, block + 1, 2 * block, block * (blocks - 1), block * blocks, block * blocks + 1]
    lengths = [min(max(length, 1), 4000) for length in borders]
    huge = rng.random() < 0.2
    prompt = [INT32_MAX - 4000 if huge and rng.random() < 0.5 else rng.choice(lengths) for _ in range(count)]
    output = [min(rng.choice(lengths), 300) for _ in range(count)]
    arrival = sorted(rng.choice((0, 0, 1, 10**6, 2**60)) for _ in range(count))
    shared = rng.random() < 0.5 and config.engine.name.startswith("vllm-0")
    group = [rng.choice((-1, 0, 0, 1)) if shared else -1 for _ in range(count)]
    tokens = [rng.choice(lengths) if each >= 0 else 0 for each in group]
    priority = [rng.choice((0, 0, 1, 7)) for _ in range(count)]
    return Workload.from_arrays(
        np.array(arrival, np.int64), np.array(prompt, np.int64), np.array(output, np.int64),
        prefix_group=np.array(group, np.int64), prefix_tokens=np.array(tokens, np.int64),
        priority=np.array(priority, np.int64),
    )  # fmt: skip


def digest(engine: str, seed: int) -> str:
    """What a random extreme case leaves behind, as a hash; why it is refused, if it is."""
    rng = random.Random(f"{engine} {seed}")
    config = extreme_config(engine, rng)
    try:
        check_rules(config, "case")
        result = simulate(config, extreme_workload(config, rng))
    except InputError as error:
        return "refused:" + hashlib.blake2b(str(error).encode(), digest_size=8).hexdigest()
    numbers = [value for value in result.totals.values() if value is not None]
    assert all(-1 <= value <= NEVER_US for value in numbers), (engine, seed, result.totals)
    return hashlib.blake2b(repr((result.metrics, result.totals)).encode(), digest_size=8).hexdigest()


def digests(count: int, first: int = 0) -> list[str]:
    """`count` cases of every engine."""
    return [digest(engine, seed) for engine in ENGINES for seed in range(first, first + count)]


def digests_elsewhere(count: int, **environment: str) -> list[str]:
    """`digests` in a process whose environment decides how kernels are compiled."""
    program = f"from tests.test_kernel_extremes import digests; print(*digests({count}))"
    done = run_elsewhere(program, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_extremes_interpreted_equal_compiled() -> None:
    here = digests(8)
    assert sum(not each.startswith("refused") for each in here) > len(here) // 2
    assert digests_elsewhere(8, NUMBA_DISABLE_JIT="1") == here


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_extremes_stay_in_bounds() -> None:
    count = int(os.environ.get("FASTSIM_CASES", "200"))
    here = digests(count)
    assert digests_elsewhere(count, NUMBA_BOUNDSCHECK="1") == here
    print(f"\n{len(here)} cases, {sum(each.startswith('refused') for each in here)} of them refused in one sentence")


@pytest.mark.parametrize("total", [INT32_MAX, INT32_MAX + 1])
def test_lengths_that_do_not_fit_are_refused_at_the_boundary(total: int) -> None:
    lengths = ([0], [total - 5], [5])
    if total <= INT32_MAX:
        assert Workload.from_arrays(*lengths).prompt_tokens.tolist() == [total - 5]
    else:
        with pytest.raises(InputError, match=f"has {total} prompt and output tokens, but at most {INT32_MAX}"):
            Workload.from_arrays(*lengths)
