"""The pages that people read first: their commands, and the outputs that are printed under them.

A block ```` ```text head=N ```` shows the first N lines of what the `fastsim` command above prints (`head=N from=TEXT`:
from the first line on that holds TEXT). `python -m tests.pages` runs README.md's commands and writes the outputs anew.
"""

import contextlib
import io
import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

PAGES = (
    "README.md",
    "fastsim/cli/README.md",
    "fastsim/workload/README.md",
    "fastsim/fleet/README.md",
    "sweeps/questions.md",
    "sweeps/policies/README.md",
)
"""Pages whose `sh` blocks are run, in order: a later command may use the folder that an earlier one made."""

FENCE = re.compile(r"```(?P<info>[^\n]*)\n(?P<body>.*?)```\n", re.DOTALL)
OUTPUT = re.compile(r"text head=(?P<head>\d+)(?: from=(?P<start>.+))?")

TIMINGS = (
    r"[\d.,]+ rows/s",
    r"kernel [\d.,]+ ms",
    r"[\d.,]+ s in all",
    r"about [\d.,]+ s",
    r"[\d.,]+ to [\d.,]+ ms each",
    r"in [\d.,]+ s\b",
    r", [\d.,]+ s$",
)
"""What differs from one machine, or one run, to the next."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    info: str
    body: str


@dataclass(frozen=True)
class Example:
    """A command, and the lines of its output that the page shows (none if it shows no output)."""

    command: str
    info: str | None = None
    shown: str | None = None


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = (ROOT / page).read_text()
    return [Block(match["info"].strip(), match["body"]) for match in FENCE.finditer(text)]


def commands(block: Block) -> list[str]:
    """Every `fastsim ...` command of a shell block, without comments, continued lines joined."""
    if block.info != "sh":
        return []
    lines = [line.split("  #")[0].strip() for line in block.body.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("fastsim ")]


def examples(page: str) -> list[Example]:
    """The commands of a page, with the outputs shown."""
    found: list[Example] = []
    for block in blocks(page):
        if OUTPUT.fullmatch(block.info):
            found[-1] = Example(found[-1].command, block.info, block.body)
        found += [Example(command) for command in commands(block)]
    return found


def specs(page: str) -> dict[str, str]:
    """Every TOML block by the file name in its first line."""
    named = {}
    for block in blocks(page):
        if block.info == "toml":
            name, _, text = block.body.partition("\n")
            assert name.startswith("# "), f"{page}: a TOML block begins with its file's name"
            named[name[2:]] = text
    return named


def policies(page: str) -> dict[str, str]:
    """Every Python block that begins with a file's name, by that name."""
    found = [re.match(r"# (\w+\.py)\n", block.body) for block in blocks(page) if block.info == "python"]
    return {match[1]: match.string for match in found if match}


def excerpt(printed: str, info: str) -> str:
    """The lines of an output that a block of this kind shows."""
    match = OUTPUT.fullmatch(info)
    assert match is not None
    lines = printed.splitlines()
    if match["start"]:
        lines = lines[next(k for k, line in enumerate(lines) if match["start"] in line) :]
    shown = lines[: int(match["head"])]
    return "".join(line.rstrip() + "\n" for line in [*shown, *(["..."] if len(lines) > len(shown) else [])])


def timeless(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern in TIMINGS:
        text = re.sub(pattern, "T", text, flags=re.MULTILINE)
    return text


def working_folder(folder: Path) -> None:
    """A folder that sees the repository's sweeps and recordings, and has the specs of all pages."""
    for name in ("sweeps", "tests"):
        (folder / name).symlink_to(ROOT / name)
    for page in PAGES:
        for name, text in {**specs(page), **policies(page)}.items():
            (folder / name).write_text(text)


def run(command: str) -> str:
    """What a command prints on its standard output."""
    from fastsim.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(shlex.split(command)[1:])
    return printed.getvalue()


def write_outputs(page: str) -> None:
    """Run the commands of a page and put their outputs into it."""
    path, here = ROOT / page, Path.cwd()
    text = path.read_text()
    with tempfile.TemporaryDirectory() as folder:
        working_folder(Path(folder))
        os.chdir(folder)
        for example in examples(page):
            printed = run(example.command)
            if example.info is not None:
                old, new = f"```{example.info}\n{example.shown}```", excerpt(printed, example.info)
                before, after = text.split(example.command, 1)
                text = before + example.command + after.replace(old, f"```{example.info}\n{new}```", 1)
        os.chdir(here)
    path.write_text(text)


if __name__ == "__main__":
    write_outputs("README.md")
    write_outputs("sweeps/policies/README.md")
