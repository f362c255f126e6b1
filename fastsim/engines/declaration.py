"""What a spec can say of an engine: the light half of the contract, which loads no compiler.

An engine's `knobs.py` holds its pydantic class and one `ENGINE = Engine(...)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from fastsim.engines.limits import Limits, Value, no_limits
from fastsim.model import Model, Positive, Share, type_integer
from fastsim.rule import Derived, Effect, Rule

DEFAULT_ENGINE = "vllm-0.33.0"
"""The value of `engine.name` where a spec says nothing. An engine that is no server is deployed as this one is."""


class SharedKnobs(Model):
    """What every engine has, below `engine.`."""

    name: str = DEFAULT_ENGINE
    """Which scheduler's rules hold."""
    num_gpu_blocks: Positive | None = None
    """KV blocks on the GPU, vLLM's null block included: under vLLM, usable are one fewer. Required."""
    block_size: Annotated[int, type_integer, Field(ge=1, le=2**20)] = 16
    """Tokens per KV block."""
    max_num_seqs: Positive = 256
    """Most requests running at once."""
    max_num_batched_tokens: Positive = 2048
    """Most tokens in one step."""
    starvation_window_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = 30.0
    """Least time without a completion, or without a token for a request, that can count as starvation."""
    starvation_overtakes: Positive = 20
    """How many later requests must come and be done while a request gets no token for it to count as starved."""
    thrash_threshold: Share = 0.1
    """Share of the busy time lost to recomputation and swapping above which a run is called thrashing."""


class OwnColumn(NamedTuple):
    """A float result column that one engine fills; null under the others.

    `adds_up`: of a fleet it is the sum over replicas; otherwise a fleet's is null, or made of totals.
    """

    name: str
    unit: str
    description: str
    better: Literal["more", "less", "none"]
    adds_up: bool = False


@dataclass(frozen=True)
class PolicyRow:
    """A row of `fastsim policies`: what some knobs decide. `knobs` are keys, `turn_on` the setting that selects it."""

    name: str
    turn_on: str
    what: str
    origin: str
    knobs: tuple[str, ...]


class Taken(NamedTuple):
    """What a server takes from a GPU by itself.

    Attributes
    ----------
    limits
        `engine.max_num_seqs` and `engine.max_num_batched_tokens`, as far as the GPU decides them.
    settings
        Other keys.
    deployment
        Fields of `Deployment`: what becomes KV pool.
    source
        Whose choice this is, in words.
    """

    limits: dict[str, Any]
    settings: dict[str, Any]
    deployment: dict[str, Any]
    source: str


def _nothing_of_pool(tokens: int, max_model_len: int) -> dict[str, Any]:
    return {}


class Server(NamedTuple):
    """How a server with this engine is started, and what it takes from the GPU where nothing is said.

    Attributes
    ----------
    command
        What starts it, up to its flags.
    flags, switches
        Flag of a key, with its value behind; flags of a key that is on and of one that is off (empty: none).
    deployment
        Flags of `tensor_parallel`, `gpu_memory_utilization`, of a KV cache in fp8 (`fp8`, with its value), and of a
        host that the GPU waits for (`sync`), and of one KV cache group of all layers (`one_group`).
    of_gpu
        `of_gpu(release or None for the newest known, name of a GPU, its bytes, GPUs)`: what it takes.
    of_pool
        `of_pool(tokens of the KV pool, max_model_len)`: settings.
    of_release
        `of_release(release)`: settings that stand for a release's rules, `engine.name` among them; None: there is only
        the one that was recorded.
    """

    command: str
    flags: Mapping[str, str]
    switches: Mapping[str, tuple[str, str]]
    deployment: Mapping[str, str]
    of_gpu: Callable[[str | None, str, float, int], "Taken"]
    of_pool: Callable[[int, int], dict[str, Any]] = _nothing_of_pool
    of_release: Callable[[str], dict[str, Any]] | None = None


def _always(value: Value) -> bool:
    return True


def _no_groups(value: Value, tokens: int) -> list[tuple[str, int]]:
    return []


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine, as the configuration, the metrics and the command line know it.

    Attributes
    ----------
    folder
        Its folder below `fastsim/engines`.
    names
        The values of `engine.name` that stand for it: releases that share their kernels are one engine.
    table, knobs, latency
        Its own keys: `engine.<table>.*`, and `latency.<table>.*` where its step times have a form of their own. vLLM's
        knobs are the common language and stand in `engine.*` itself: its table is None.
    own_keys
        Further keys that mean something only under this engine.
    reads
        vLLM's knobs that it reads too (without `engine.`); all others must stand at their defaults. None: reads all.
    instead
        Its own key for a knob of vLLM's that it does not read: the refusal names it.
    says
        For values of such a knob its own key and value that say the same: a spec under several engines is put so.
    caveat
        What must be known of every figure it gives, as a sentence; every command that shows one says it.
    rules, effects, derived
        What holds between its keys, what they need to matter, and defaults that follow other keys.
    start_rules
        What its server refuses at its start. A grid may hold such configurations: they become rows of status `refused`.
    columns
        Result columns that only it fills.
    policies
        What its own knobs decide; without any, `fastsim policies` has one row of all of them.
    reserved_blocks
        Blocks of `engine.num_gpu_blocks` that no request can hold.
    limits
        What it asks of every request: who fails can never be served.
    is_plain
        Whether a configuration holds a token in one block and decodes one a step: fits and averages follow from that.
    groups_held
        `groups_held(value, tokens)`: name of each KV cache group, and the blocks that a decoding request of so many
        tokens holds in it; nothing where there is one group of full attention.
    grouped
        Those of its names under which layers with windows have KV cache groups of their own.
    context_time
        Whether its step time knows the context (`latency.b3_us_per_context_token`).
    table_time
        Whether its step time can come from a table, with terms for prefills and windows; else it is linear.
    ends_at_max_model_len
        Whether it ends an output where prompt and output reach `engine.max_model_len`.
    records_steps
        Whether it can write down its steps: timelines and `explain` are made of them.
    has_sessions
        Whether searches that only change coefficients and blocks can run in one memory: calibration does.
    pauses
        Whether a run can rest at any time and be looked at: routers of fleets do.
    has_averages
        Whether the averages of `fastsim check` describe it.
    has_flags
        Whether its knobs are flags of a server that can be recommended.
    takes_policies
        Whether it calls functions of one's own (`engine.policy_file`).
    has_prefix_trees
        Whether prefixes may extend one another, as those of conversations do.
    server
        How it is served; None: it is no server.
    live
        The installed package it can be compared with (`fastsim verify --against`).
    """

    folder: str
    names: tuple[str, ...]
    table: str | None = None
    knobs: type[Model]
    latency: type[Model] | None = None
    own_keys: tuple[str, ...] = ()
    reads: frozenset[str] | None = frozenset()
    instead: Mapping[str, str] = field(default_factory=dict)
    says: Mapping[str, Mapping[Any, tuple[str, Any]]] = field(default_factory=dict)
    caveat: str | None = None
    rules: tuple[Rule, ...] = ()
    start_rules: tuple[Rule, ...] = ()
    effects: tuple[Effect, ...] = ()
    derived: tuple[Derived, ...] = ()
    columns: tuple[OwnColumn, ...] = ()
    policies: tuple[PolicyRow, ...] = ()
    reserved_blocks: int = 0
    limits: Limits = no_limits
    is_plain: Callable[[Value], bool] = _always
    groups_held: Callable[[Value, int], list[tuple[str, int]]] = _no_groups
    grouped: tuple[str, ...] = ()
    context_time: bool = True
    table_time: bool = False
    ends_at_max_model_len: bool = False
    records_steps: bool = False
    has_sessions: bool = False
    pauses: bool = False
    has_averages: bool = False
    has_flags: bool = False
    has_prefix_trees: bool = False
    takes_policies: bool = False
    server: Server | None = None
    live: str | None = None

    @property
    def title(self) -> str:
        """What people call it: the first of its names."""
        return self.names[0]

    def own_policies(self) -> tuple[PolicyRow, ...]:
        """The rows of `fastsim policies` about its own knobs."""
        knobs = tuple(key for key in self.keys if key.startswith("engine."))
        if self.policies or not knobs:
            return self.policies
        name = self.title
        return (PolicyRow(name, f"engine.name={name}", f"The knobs of {name} itself.", name, ("engine.name", *knobs)),)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that mean something only under this engine."""
        if self.table is None:
            return self.own_keys
        tables = (("engine", self.knobs), ("latency", self.latency))
        return (
            *self.own_keys,
            *(f"{top}.{self.table}.{name}" for top, model in tables if model for name in model.model_fields),
        )
