"""Inputs that are large, deep or endless, one by one: sparse files of 2 GiB, axes of 10^18 values, pipes, devices."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fastsim.cli.spec import read_grid
from fastsim.sweeps.grid import Grid
from fastsim.workload import load_trace
from tests.fuzz.corpus import READERS

HUGE_BYTES = 2 * 2**30
Case = tuple[str, Callable[[], object]]


def cases(folder: Path, *, few: bool) -> Iterator[Case]:
    """Every case, or only the quick kinds: what it is, and what to call."""
    yield from _special_files(folder)
    if not few:
        yield from _huge_lines(folder)
        yield from _grids(folder)
        yield from _nesting(folder)


def _huge_lines(folder: Path) -> Iterator[Case]:
    """A valid beginning, then a line of two gibibytes (a hole: it takes no disk)."""
    for key, seeds in READERS.items():
        for number, seed in enumerate(seeds):
            place = folder / f"{key}-{number}"
            place.mkdir()
            for name, data in seed.beside.items():
                (place / name).write_bytes(data)
            path = place / seed.name
            path.write_bytes(seed.data)
            os.truncate(path, HUGE_BYTES)
            given = place if seed.folder else path
            yield f"{key}: a line of 2 GiB in {seed.name}", lambda given=given, key=key: load_trace(given, key)
            yield f"found out: a line of 2 GiB in {seed.name}", lambda given=given: load_trace(given)
    spec = folder / "huge.toml"
    spec.write_bytes(b"engine.num_gpu_blocks = 64\n#")
    os.truncate(spec, HUGE_BYTES)
    yield "spec: 2 GiB", lambda: read_grid(spec)


def _special_files(folder: Path) -> Iterator[Case]:
    """What is named is a device, a pipe, a folder, a loop, or the spec itself."""
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    names = (
        "pipe",
        "loop",
        "zero",
        "/dev/zero",
        "/dev/stdin",
        "/dev/tty",
        "/proc/self/mem",
        ".",
        "/",
        "s.toml",
        "a" * 5000,
    )
    for name in names:
        for key in ("extends", "workload.trace"):
            text = f'engine.num_gpu_blocks = 64\n{key} = "{name}"\n'
            yield f"spec: {key} = {name[:20]}", _spec(folder, text)
        for key in READERS:
            yield f"{key}: {name[:20]}", lambda name=name, key=key: load_trace(folder / name, key)
        yield f"found out: {name[:20]}", lambda name=name: load_trace(folder / name)
        yield f"--set workload.trace={name[:20]}", lambda name=name: _grid_of_set(f"workload.trace={folder / name}")


def _grids(folder: Path) -> Iterator[Case]:
    """Long axes, many axes, huge numbers."""
    for text in (
        "engine.max_num_seqs={start=1,stop=2,num=1000000000000000000}",
        "engine.watermark={start=0,stop=0.5,num=1000000000000000000}",
        "engine.watermark={start=0,stop=0.5,num=100000}",
        "workload.seed={start=0,stop=1000000000000000000,num=1000000000000000000}",
        "engine.max_num_seqs=" + ",".join(map(str, range(1, 100_000))),
        "workload.prompt.values=" + "[" * 100_000,
        "engine.max_num_seqs=" + "9" * 1_000_000,
        "engine.max_num_seqs=" + "1," * 500_000,
    ):
        yield f"--axis {text[:60]}", lambda text=text: _grid_of_axis(text)
        yield f"--set {text[:60]}", lambda text=text: _grid_of_set(text)
    for seeds in ("1000000000000000000", "2147483647", "[" + "1," * 500_000 + "]"):
        text = f"engine.num_gpu_blocks = 64\nsweep.seeds = {seeds}\n"
        yield f"spec: sweep.seeds = {seeds[:20]}", _spec(folder, text)


def _nesting(folder: Path) -> Iterator[Case]:
    """Deep tables, arrays, documents, chains of files."""
    for what, text in {
        "arrays": "a = " + "[" * 100_000,
        "tables": "a = " + "{a=" * 100_000,
        "names": "a" + ".a" * 100_000 + " = 1",
        "header": "[a" + ".a" * 100_000 + "]",
        "sweep": "sweep.axes.engine = " + "{engine=" * 500 + "1" + "}" * 500,
    }.items():
        yield f"spec: deep {what}", _spec(folder, text)
    for key in ("vllm-bench", "guidellm", "mooncake", "inference-perf"):
        path = folder / f"deep-{key}"
        path.write_text('{"input_lens": ' + "[" * 300_000 if key != "inference-perf" else "load:\n" + "- " * 100_000)
        yield f"{key}: deep", lambda path=path, key=key: load_trace(path, key)
    for number in range(2_000):
        (folder / f"chain-{number}.toml").write_text(f'extends = "chain-{number + 1}.toml"\n')
    (folder / "chain-2000.toml").write_text("engine.num_gpu_blocks = 64\n")
    yield "spec: 2,000 files that extend each other", lambda: read_grid(folder / "chain-0.toml")


def _spec(folder: Path, text: str) -> Callable[[], object]:
    """Write a spec; reading it is the call."""
    path = folder / "s.toml"

    def call() -> object:
        return _used(lambda: read_grid(path)[0])

    path.write_text(text)
    return call


def _grid_of_axis(text: str) -> object:
    return _used(lambda: Grid.from_mapping({"engine.num_gpu_blocks": 64}, axes=[text]))


def _grid_of_set(text: str) -> object:
    return _used(lambda: Grid.from_mapping({"engine.num_gpu_blocks": 64}, [text]))


def _used(make: Callable[[], Grid]) -> object:
    grid = make()
    return grid.config(grid.size - 1), grid.select(sample=10), grid.spec_hash
