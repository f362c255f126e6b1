"""What an engine can say of a policy file (`engine.policy_file`), for `fastsim check-policy`."""

from dataclasses import dataclass
from typing import NamedTuple


class Function(NamedTuple):
    """One function: where it stands, what it decides, what it reads, and what that means for jumps in time."""

    name: str
    line: int
    what: str
    reads: tuple[str, ...]
    jumps: str


class RunCost(NamedTuple):
    """CPU milliseconds of a run of 300 requests in which blocks are short, medians, and its preemptions."""

    own_ms: float
    built_in_ms: float
    own_preemptions: int
    built_in_preemptions: int


@dataclass(frozen=True)
class PolicyReport:
    """A file that is a policy: its functions, and what can be read.

    `states` and `cases` are how many made-up states, for each function, and random cases were tried. `fault` is what
    was found there in one sentence: None when nothing was. `cost` is measured last.
    """

    name: str
    digest: str
    functions: tuple[Function, ...]
    fields: tuple[tuple[str, str], ...]
    states: int = 0
    cases: int = 0
    fault: str | None = None
    cost: RunCost | None = None
