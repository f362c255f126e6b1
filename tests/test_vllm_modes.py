"""The vLLM kernel compiled once, interpreted, and with every index checked: three ways to the same numbers."""

import hashlib
import random
import sys
from types import ModuleType
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pytest

from fastsim._jit import borrow, entry, helper
from fastsim.engines.vllm.chunk import run_chunk
from fastsim.simulation import simulate_chunk
from fastsim.workload import Workload
from tests.processes import run_elsewhere
from tests.reference.cases import random_case
from tests.vllm_cases import MODES, kernel_facts, records_of, run_recorded, workload_of

FAMILIES = ("vllm", "policies", "async-policies")
TINY = {"max_requests": 6, "max_output": 12, "max_steps": 40}


def digest(family: str, seed: int, sizes: dict[str, int]) -> str:
    """All that one random case leaves behind, in every mode, as a hash."""
    case, requests = random_case(random.Random(seed), family=family, **sizes)
    records, workload = records_of(case), workload_of(case, requests)
    hashed = hashlib.blake2b(digest_size=16)
    for fast_forward, record_steps, dense in MODES.values():
        records.engine["dense"] = dense
        run = run_recorded(records, workload, fast_forward=fast_forward, record_steps=record_steps)
        facts = kernel_facts(run, case)
        hashed.update(repr((facts.steps, facts.requests, facts.totals, facts.free_order)).encode())
        for numbers in (facts.histogram, run.rows.floats, run.rows.ints):
            hashed.update(numbers.tobytes())
    return hashed.hexdigest()


def digests(count: int, sizes: dict[str, int]) -> list[str]:
    return [digest(family, seed, sizes) for family in FAMILIES for seed in range(count)]


def digests_elsewhere(count: int, sizes: dict[str, int], **environment: str) -> list[str]:
    """`digests` in another process."""
    program = f"from tests.test_vllm_modes import digests; print(*digests({count}, {sizes}))"
    done = run_elsewhere(program, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_interpreted_equals_compiled() -> None:
    assert digests_elsewhere(12, TINY, NUMBA_DISABLE_JIT="1") == digests(12, TINY)


class Numbers(NamedTuple):
    """Arrays for `read`."""

    values: npt.NDArray[np.int64]


@helper
def element(numbers, place):
    return numbers.values[place]


@entry
def read(numbers, place):
    numbers = borrow(numbers)
    return element(numbers, place)


@pytest.mark.timeout(900)
def test_every_index_is_in_bounds() -> None:
    """Compiled code does not notice an index out of bounds; this build of it does, and raises."""
    assert digests_elsewhere(80, {}, NUMBA_BOUNDSCHECK="1") == digests(80, {})


def test_an_index_out_of_bounds_is_noticed() -> None:
    program = (
        "import numpy as np; from tests.test_vllm_modes import Numbers, read; print(read(Numbers(np.arange(3)), {}))"
    )
    assert run_elsewhere(program.format(2), NUMBA_BOUNDSCHECK="1").stdout == "2\n"
    for place in (3, -1):
        outside = run_elsewhere(program.format(place), NUMBA_BOUNDSCHECK="1")
        assert outside.returncode != 0
        assert "IndexError" in outside.stderr


def entries() -> dict[str, Any]:
    """Every entry kernel loaded so far: those that release the GIL (see `fastsim._jit`)."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.startswith("fastsim.")]
    found: dict[str, Any] = {}
    for module in modules:
        assert isinstance(module, ModuleType)
        for value in vars(module).values():
            if isinstance(value, numba.core.dispatcher.Dispatcher) and value.targetoptions.get("nogil"):
                found[f"{value.py_func.__module__}.{value.py_func.__name__}"] = value
    return found


def test_one_compiled_version() -> None:
    """Whatever the arguments were made from, an entry sees one signature: another one would cost a compilation."""
    for seed in range(12):
        case, requests = random_case(random.Random(seed), family=FAMILIES[seed % 3])
        simulate_chunk(workload_of(case, requests), records_of(case))
        digest("vllm", seed, TINY)
    case, _ = random_case(random.Random(1), family="vllm")
    nothing = Workload.from_arrays([], [], [])
    strided = np.arange(1, 41, dtype=np.int16)[::2]
    read_only = np.broadcast_to(np.int64(3), (20,))
    for workload in (nothing, Workload.from_arrays(strided, read_only, strided.tolist())):
        run_recorded(records_of(case), workload, fast_forward=True, record_steps=False)
    assert len(run_chunk.signatures) == 1
    assert {name: len(kernel.signatures) for name, kernel in entries().items() if len(kernel.signatures) > 1} == {}
    assert "fastsim.engines.vllm.chunk.run_chunk" in entries()
