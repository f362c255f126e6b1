"""Mooncake's traces (JSON lines): `timestamp` in ms, `input_length`, `output_length`, `hash_ids`.

`hash_ids` name the content of each 512-token block of the prompt together with everything before it, so prompts that
begin with the same ids share that content. They become a tree of prefix groups in tokens, which the engine cuts into
blocks of its own size.
"""

import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.workload.prefix_tree import groups_of_chains
from fastsim.workload.readers.lines import LineRows, UnusableRowError, has_keys, number, read_rows, whole
from fastsim.workload.readers.table import whole_us
from fastsim.workload.trace import Format, Trace

BLOCK_TOKENS = 512


def read(path: Path) -> Trace:
    """Read a Mooncake JSONL; arrivals count from the start of the recording.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    rows = LineRows(time_ms="d", prompt_tokens="q", output_tokens="q", chain_end="q")
    chains = array("q")

    def take(row: dict[str, Any]) -> None:
        time_ms = number(row, "timestamp")
        if time_ms < 0:
            raise UnusableRowError("a timestamp below 0")
        prompt, output = whole(row, "input_length"), whole(row, "output_length")
        ids = row.get("hash_ids", [])
        if not isinstance(ids, list) or not all(type(each) is int and abs(each) < 2**62 for each in ids):
            raise UnusableRowError("hash_ids that are not a list of whole numbers")
        chains.extend(ids[: math.ceil(prompt / BLOCK_TOKENS)])
        rows.add(time_ms=time_ms, prompt_tokens=prompt, output_tokens=output, chain_end=len(chains))

    read_rows(path, rows, take)
    ids = np.frombuffer(chains, np.int64) if len(chains) else np.zeros(0, np.int64)
    grouped = groups_of_chains(ids, rows["chain_end"], rows["prompt_tokens"], BLOCK_TOKENS)
    return rows.trace(
        path,
        FORMAT.name,
        whole_us(np.round(rows["time_ms"] * 1e3, 3)),
        prefix_group=grouped.group,
        prefix_tokens=grouped.tokens,
        groups=grouped.tree,
    )


FORMAT = Format("mooncake", "Mooncake JSONL", (), has_keys("timestamp", "input_length", "output_length"), read)
