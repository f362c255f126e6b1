"""What is fuzzed: each trace reader, the spec reader, and the options; files as a user would give them."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from fastsim.cli.spec import read_grid
from fastsim.config import WorkloadConfig
from fastsim.sweeps.grid import Grid
from fastsim.workload import build_workload, load_trace, trace
from fastsim.workload.readers import inference_perf, servegen
from tests.fuzz.corpus import OPTIONS, READERS, SPECS, Seed
from tests.fuzz.mutate import mutate

inference_perf.MOST_REQUESTS = servegen.MOST_REQUESTS = 10**6
"""Here: to draw the ten million that a description may stand for takes seconds, and is no hang."""

Input = tuple[Callable[[], object], bytes]
"""What to call, and the bytes that decide what happens: kept when it goes wrong."""


def check_seeds(folder: Path) -> None:
    """Every seed is valid as it stands. This also loads all libraries, before memory is measured."""
    for name, seeds in READERS.items():
        for seed in seeds:
            path = _write(seed, seed.data, emptied(folder))
            given = folder if seed.folder else path
            load_trace(given, name)
            build_workload(WorkloadConfig(trace=str(given)))
    for seed in SPECS:
        _use(read_grid(_write(seed, seed.data, emptied(folder)))[0])
    emptied(folder).rmdir()


def names() -> list[str]:
    """All targets."""
    return ["spec", "options", *READERS]


def make(name: str, folder: Path, rng: random.Random) -> Input:
    """One input of a target, written into `folder`."""
    if name == "options":
        return _options(folder, rng)
    if name == "spec":
        return _spec(folder, rng)
    return _trace(name, folder, rng)


def _trace(name: str, folder: Path, rng: random.Random) -> Input:
    seeds = READERS[name]
    seed = rng.choice(seeds)
    data = mutate(seed.data, rng, tuple(other.data for other in seeds))
    path = _write(seed, data, folder)
    given = folder if seed.folder else path
    known = rng.choice((None, name))

    def call() -> None:
        trace._load.cache_clear()  # the file may have the time and size of the one before
        load_trace(given, known)
        build_workload(WorkloadConfig(trace=str(given), format=known))

    return call, data


def _spec(folder: Path, rng: random.Random) -> Input:
    seed = rng.choice(SPECS)
    data = mutate(seed.data, rng, tuple(other.data for other in SPECS), paths=True)
    path = _write(seed, data, folder)
    _make_traps(folder)

    def call() -> None:
        grid, _ = read_grid(path)
        _use(grid)

    return call, data


def _options(folder: Path, rng: random.Random) -> Input:
    others = tuple(option.encode() for option in OPTIONS)
    texts = [mutate(rng.choice(others), rng, others).decode(errors="surrogateescape") for _ in range(rng.randint(1, 2))]
    kind = rng.choice(("sets", "axes"))
    (folder / "t.csv").write_bytes(READERS["plain"][0].data)

    def call() -> None:
        table = {"engine": {"num_gpu_blocks": 64}}
        _use(Grid.from_mapping(table, **{kind: texts}, folder=folder))

    return call, repr((kind, texts)).encode()


def _use(grid: Grid) -> None:
    """What every verb does with a grid before anything runs."""
    grid.to_toml()
    grid.select(limit=10)
    grid.select(sample=10)
    grid.config(0)
    grid.config(grid.size - 1)
    assert grid.spec_hash


def _write(seed: Seed, data: bytes, folder: Path) -> Path:
    for name, other in seed.beside.items():
        (folder / name).write_bytes(other)
    (folder / seed.name).write_bytes(data)
    return folder / seed.name


def _make_traps(folder: Path) -> None:
    """Files that are not what they seem."""
    if (folder / "pipe").exists():
        return
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "broken").symlink_to("nowhere")
    (folder / "link").symlink_to("/etc/passwd")


def emptied(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
