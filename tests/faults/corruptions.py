"""Files changed by hand, by failing disks, by power cuts: parts, manifest, journal, spec."""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from fastsim.errors import InputError
from fastsim.sweeps.runner import sweep
from fastsim.sweeps.store import SweepFolder
from fastsim.sweeps.store.folder import known_parts
from tests.faults.sweeps import FaultError, Target, check_kept, stamps

Damage = Callable[[Path, random.Random], None]


def cut(path: Path, rng: random.Random) -> None:
    """End it early, as a power cut does."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def flip(path: Path, rng: random.Random) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def scribble(path: Path, rng: random.Random) -> None:
    """Overwrite a stretch."""
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    data[start : start + 50] = rng.randbytes(len(data[start : start + 50]))
    path.write_bytes(data)


def delete(path: Path, _rng: random.Random) -> None:
    """Remove it."""
    path.unlink()


def lengthen(path: Path, rng: random.Random) -> None:
    """Append to it."""
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 100)))


def swap(path: Path, rng: random.Random) -> None:
    """Put the contents of another file there."""
    others = sorted(
        other for other in path.parent.iterdir() if other.is_file() and other.name not in (path.name, ".lock")
    )
    path.write_bytes(rng.choice(others).read_bytes() if others else b"")


def link(path: Path, _rng: random.Random) -> None:
    """Put a dangling link there."""
    path.unlink()
    path.symlink_to("nowhere")


DAMAGES: tuple[Damage, ...] = (cut, flip, scribble, delete, lengthen, swap, link)
TABLES = ("manifest.json", "parts.jsonl", "spec.toml")


def inflict(target: Target, work: Path, rng: random.Random, count: int, say: Callable[[str], None]) -> Counter[str]:
    """Damage a finished or half finished folder `count` times; what is left is kept, the rest computed again.

    When both witnesses of what the parts are, manifest and journal, are damaged in one case, the folder may be refused
    in one sentence; then `--fresh` completes it.

    Returns
    -------
    Counter
        `cases`, damages by what was done to what, `refused`, `parts_kept` and `parts_recomputed`.
    """
    counts: Counter[str] = Counter()
    for case in range(count):
        out = work / "corrupted"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "calm", out, symlinks=True)
        if rng.random() < 0.5:
            forget_some(target, out, rng)
        damaged = _damage(out, rng, counts)
        intact = {index: stamp for index, stamp in _stamps_of_good(target, out).items() if index in known_parts(out)}
        try:
            computed = sweep(target.grid, out, workers=2, limit=target.limit).computed
        except InputError as error:
            if not {"manifest.json", "parts.jsonl"} <= damaged or "--fresh" not in str(error):
                raise FaultError(f"{out}: refused, though only {sorted(damaged)} were damaged: {error}") from None
            counts["refused"] += 1
            sweep(target.grid, out, workers=2, limit=target.limit, fresh=True)
        else:
            check_kept(out, intact)
            counts["parts_kept"] += len(intact)
            counts["rows_recomputed"] += computed
        target.check_complete(out)
        counts["cases"] += 1
        say(f"corruptions {case + 1}/{count}")
    return counts


def forget_some(target: Target, out: Path, rng: random.Random) -> None:
    """As if the sweep had been interrupted: parts from some point on are gone, from the journal too."""
    with SweepFolder(out, target.grid, target.grid.select(limit=target.limit)) as folder:
        keep = rng.randrange(1, len(folder.records))
        for index in list(folder.records)[keep:]:
            del folder.records[index]
            (out / "parts" / f"part-{index:06d}.parquet").unlink()
        folder.write_manifest("interrupted")
    lines = [line for line in (out / "parts.jsonl").read_bytes().splitlines(keepends=True) if _is_kept(line, out)]
    (out / "parts.jsonl").write_bytes(b"".join(lines))


def _is_kept(line: bytes, out: Path) -> bool:
    entry = json.loads(line)
    return "part" not in entry or (out / "parts" / f"part-{entry['part']:06d}.parquet").exists()


def _damage(out: Path, rng: random.Random, counts: Counter[str]) -> set[str]:
    """One to four damages to different files; their names."""
    parts = sorted((out / "parts").glob("*.parquet"))
    chosen = rng.sample(parts, min(len(parts), rng.randint(1, 3)))
    if rng.random() < 0.6:
        chosen += [out / name for name in rng.sample(TABLES, rng.choice((1, 1, 1, 2)))]
    for path in chosen:
        what = rng.choice(DAMAGES)
        what(path, rng)
        counts[f"{what.__name__} {'part' if path.suffix == '.parquet' else path.name}"] += 1
    if rng.random() < 0.3:
        (out / "parts" / ".part-000000.parquet.4711.tmp").write_bytes(rng.randbytes(100))
    return {path.name for path in chosen}


def _stamps_of_good(target: Target, out: Path) -> dict[int, tuple[int, int]]:
    """Stamps of the parts that still have their bytes."""
    good = target.good_parts(out)
    return {index: stamp for index, stamp in stamps(out).items() if f"part-{index:06d}.parquet" in good}


def cut_everywhere(target: Target, work: Path, step: int, say: Callable[[str], None]) -> Counter[str]:
    """Cut manifest and journal at every `step`-th byte: no part that the other knows is lost, none is believed wrongly.

    Returns
    -------
    Counter
        `manifest_cuts` and `journal_cuts`.
    """
    counts: Counter[str] = Counter()
    selection = target.grid.select(limit=target.limit)
    every = {part.index for part in selection.parts()}
    out = work / "cut"
    for name, key in (("manifest.json", "manifest_cuts"), ("parts.jsonl", "journal_cuts")):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "calm", out)
        forget_some(target, out, random.Random(1))
        done = set(known_parts(out))
        whole = {path: path.read_bytes() for path in (out / "manifest.json", out / "parts.jsonl")}
        for length in range(0, len(whole[out / name]), step):
            for path, data in whole.items():
                path.write_bytes(data[:length] if path.name == name else data)
            with SweepFolder(out, target.grid, selection) as folder:
                missing = {part.index for part in folder.missing_parts()}
            if missing != every - done:
                raise FaultError(f"{name} cut at byte {length}: {len(missing)} parts missing, not {len(every - done)}")
            counts[key] += 1
            if counts[key] % 1000 == 0:
                say(f"cuts {sum(counts.values())}")
    return counts
