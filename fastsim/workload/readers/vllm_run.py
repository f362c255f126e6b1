"""Per-request times of a vLLM engine (JSON lines), as LLMServingSim's bench records them.

`input_toks`, `output_toks` and times in seconds on the engine's monotonic clock: `queued_ts`, `scheduled_ts`,
`first_token_ts`, `last_token_ts`. A request arrives when the engine queued it: the client's `arrival_time` is on
another clock and before tokenisation, which no scheduler sees.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fastsim.errors import InputError
from fastsim.workload.readers.lines import Rows, UnusableRowError, has_keys, number, read_rows, whole
from fastsim.workload.readers.table import since_first_us
from fastsim.workload.trace import Format, Head, Trace

REQUESTS = "requests.jsonl"


def read(path: Path) -> Trace:
    """Read a run: its `requests.jsonl`, or the folder that holds it.

    Raises
    ------
    InputError
        When the file cannot be read.
    """
    file = path / REQUESTS if path.is_dir() else path
    if not file.is_file():
        raise InputError(f"{file}: is not there, but the requests of a recorded run were expected")
    rows = Rows(queued_s="d", ttft_us="d", e2e_us="d", prompt_tokens="q", output_tokens="q")

    def take(row: dict[str, Any]) -> None:
        queued, first, last = (number(row, key) for key in ("queued_ts", "first_token_ts", "last_token_ts"))
        if not queued <= first <= last:
            raise UnusableRowError("queued_ts, first_token_ts and last_token_ts that are not in this order")
        rows.add(
            queued_s=queued,
            ttft_us=(first - queued) * 1e6,
            e2e_us=(last - queued) * 1e6,
            prompt_tokens=whole(row, "input_toks"),
            output_tokens=whole(row, "output_toks"),
        )

    read_rows(file, rows, take)
    return rows.trace(
        path,
        FORMAT.name,
        since_first_us(rows["queued_s"]),
        ttft_us=np.array(rows["ttft_us"]),
        e2e_us=np.array(rows["e2e_us"]),
    )


def _detect(head: Head) -> bool:
    return (head.path / REQUESTS).is_file() if head.path.is_dir() else has_keys("input_toks", "queued_ts")(head)


FORMAT = Format("vllm-run", "vLLM engine times JSONL", (), _detect, read)
