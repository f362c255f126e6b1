"""What the prefix cache had of each turn of the conversations."""

from typing import TYPE_CHECKING, Any

from fastsim.cli.run_text import percent
from fastsim.cli.tables import table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fastsim.workload import Workload

MOST_TURNS = 12
"""Later ones are told together."""


def turns_text(workload: "Workload", hit_tokens: "npt.NDArray[np.int32]") -> str:
    """A table by turn: requests that were admitted, their prompt tokens, and which share of them the cache had."""
    import numpy as np

    from fastsim.workload.turns import turns_of

    turns = turns_of(workload)
    admitted = hit_tokens >= 0
    rows: list[list[Any]] = []
    for turn in range(1, min(int(turns.max()), MOST_TURNS) + 1):
        last = turn == MOST_TURNS
        mine = admitted & ((turns >= turn) if last else (turns == turn))
        prompt = int(workload.prompt_tokens[mine].sum(dtype=np.int64))
        share = float(hit_tokens[mine].sum(dtype=np.int64)) / prompt if prompt else None
        name = f"{turn} and later" if last and turns.max() > turn else str(turn)
        rows.append([name, int(mine.sum()), float(prompt / max(int(mine.sum()), 1)), percent(share)])
    return table(["turn", "admitted", "prompt tokens each", "prefix hits"], rows)
