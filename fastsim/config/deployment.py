"""What a model on a GPU gives (`hardware.*`): pool, step times and the server's own defaults, where nothing else does.

A key follows the hardware where a spec leaves it open (`is_given`): what a spec says stands.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from fastsim.config.hardware import HardwareConfig
from fastsim.config.models import Config
from fastsim.engines import engine_of, engines, server_of
from fastsim.engines.declaration import DEFAULT_ENGINE, Server, Taken
from fastsim.errors import InputError

if TYPE_CHECKING:
    from fastsim.presets import Estimate

ValueOf = Callable[[str], Any]

NAME, BLOCK_SIZE, SEQS, TOKENS = (
    f"engine.{name}" for name in ("name", "block_size", "max_num_seqs", "max_num_batched_tokens")
)
BLOCKS, MODEL_LEN = "engine.num_gpu_blocks", "engine.max_model_len"
GROUPS, ONE_GROUP = "engine.kv_cache_groups", "engine.disable_hybrid_kv_cache_manager"
VERSION = "hardware.vllm_version"
SOURCE = "latency.source"
LINEAR = tuple(
    f"latency.{name}"
    for name in ("b0_us", "b1_us_per_prefill_token", "b2_us_per_decode_token", "b3_us_per_context_token")
)
"""A spec that gives all four gives its step times in full: nothing of the hardware's is added to them."""
LATENCY = (
    *LINEAR,
    *(
        f"latency.{name}"
        for name in (
            "b4_us_per_prefill_pair",
            "b5_us_per_prefill_step",
            "b6_us_per_window_token",
            "window_tokens",
            "table_tokens",
            "table_us",
            "frontend_us",
        )
    ),
)
HARDWARE = tuple(f"hardware.{name}" for name in HardwareConfig.model_fields)
_SERVER = (*HARDWARE, NAME)
_POOL = (*_SERVER, BLOCK_SIZE, SEQS, TOKENS, ONE_GROUP)
_TIMES = (*_SERVER, SOURCE, "latency.preset", *LINEAR)


def _set_by(server: Server) -> Iterable[str]:
    """Keys of its own that a server sets by the GPU: on which one does not matter."""
    return server.of_gpu(None, "", 80 * 2**30, 1).settings


FOLLOWS: Mapping[str, tuple[str, ...]] = {
    NAME: (VERSION,),
    "engine.scheduler_reserve_full_isl": (VERSION, NAME),
    SEQS: _POOL,
    TOKENS: _SERVER,
    BLOCKS: _POOL,
    MODEL_LEN: (*_POOL, BLOCKS),
    GROUPS: _POOL,
    **{key: _SERVER for engine in engines() if engine.server for key in _set_by(engine.server)},
    **dict.fromkeys(LATENCY, _TIMES),
}
"""Keys that can follow the hardware, and what each then depends on."""


def is_given(config: Config, key: str) -> bool:
    """Whether somebody gave a key of a configuration, rather than leaving it at its default."""
    *path, last = key.split(".")
    part: Any = config
    for name in path:
        part = getattr(part, name)
    return last in part.model_fields_set and getattr(part, last) is not None


def says_hardware(value_of: ValueOf) -> bool:
    """Whether a configuration says anything that other keys follow."""
    return any(value_of(key) is not None for key in HARDWARE)


@dataclass(frozen=True)
class Hardware:
    """A model on a GPU, served by an engine; `assumed` are further fields of `presets.Deployment` and their values.

    `gpus` is the number that share each layer, `given` what of the deployment was said and is no default, `release`
    that of the engine's server (None: the newest known).
    """

    model: str
    gpu: str
    engine: str
    block_size: int
    gpus: int
    assumed: tuple[tuple[str, Any], ...]
    given: tuple[tuple[str, Any], ...]
    release: str | None

    @property
    def taken(self) -> Taken:
        """What the engine's server takes from this GPU when nobody says otherwise."""
        return _taken(self.engine, self.release, self.gpu, self.gpus)

    @property
    def groups(self) -> tuple[str, ...] | None:
        """KV cache groups of the model's layers, where the engine has such; they are one when the manager is off."""
        from fastsim.presets import kv_groups, load_model

        return kv_groups(load_model(self.model)).texts if self.engine in engine_of(self.engine).grouped else None

    @property
    def name(self) -> str:
        """`llama-3.1-70b on 4 x h100`."""
        return f"{self.model} on {f'{self.gpus} x ' if self.gpus > 1 else ''}{self.gpu}"

    def estimate(self, max_num_seqs: int, max_num_batched_tokens: int) -> "Estimate":
        """What the data sheets give for these two batch limits, and everything that is assumed.

        Raises
        ------
        DoesNotFit
            When no room is left for KV blocks.
        """
        return _estimated(self, max_num_seqs, max_num_batched_tokens)

    def server_settings(self, pool_tokens: int, max_model_len: int) -> dict[str, Any]:
        """What the engine's server sets by itself on this GPU and with this pool, batch limits by the GPU aside."""
        return self.taken.settings | server_of(self.engine).of_pool(pool_tokens, max_model_len)


def _taken(engine: str, release: str | None, gpu: str, gpus: int) -> Taken:
    from fastsim.presets import load_gpu

    return server_of(engine).of_gpu(release, gpu, load_gpu(gpu).memory_bytes, gpus)


@cache
def _estimated(hardware: Hardware, max_num_seqs: int, max_num_batched_tokens: int) -> "Estimate":
    from fastsim.presets import estimate, load_gpu, load_model

    return estimate(
        load_model(hardware.model),
        load_gpu(hardware.gpu),
        block_size=hardware.block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        **dict(hardware.assumed),
    )


def hardware_of(value_of: ValueOf) -> Hardware | None:
    """The hardware of a configuration, whose `engine.name` is the one that runs; None where it names none.

    Raises
    ------
    InputError
        When the model is not known, or two keys give different numbers of GPUs.
    """
    from fastsim.presets import deployed_on, load_gpu, load_model

    model, gpu = value_of("hardware.model"), value_of("hardware.gpu")
    if model is None or gpu is None:
        return None
    said = {key.removeprefix("hardware."): value_of(key) for key in HARDWARE}
    for name in ("model", "gpu", "vllm_version"):
        said.pop(name)
    given = {name: value for name, value in said.items() if value is not None}
    gpu, given = deployed_on(gpu, given)
    gpus = given.get("tensor_parallel", 1)
    engine = engine_of(value_of(NAME))
    gpu = load_gpu(gpu).name
    taken = _taken(value_of(NAME), value_of(VERSION), gpu, gpus)
    source = value_of(SOURCE) if engine.table_time else "linear"
    assumed = taken.deployment | given | ({} if source == "auto" else {"step_times": source})
    if value_of(ONE_GROUP) or value_of(NAME) not in engine.grouped:
        assumed["disable_hybrid_kv_cache_manager"] = True
    load_model(model)
    return Hardware(
        model,
        gpu,
        value_of(NAME),
        value_of(BLOCK_SIZE),
        gpus,
        tuple(sorted(assumed.items())),
        tuple(sorted(given.items())),
        value_of(VERSION),
    )


@dataclass(frozen=True)
class Followed:
    """Values of keys that follow the hardware; `fault` is why no server starts there, and then the values stand in."""

    values: Mapping[str, Any] = field(default_factory=dict)
    fault: str | None = None


def release_settings(version: str) -> dict[str, Any]:
    """Settings that stand for the rules of a vLLM release, `engine.name` among them.

    Raises
    ------
    InputError
        When it is no release, or an older one than any that is known.
    """
    of_release = server_of(DEFAULT_ENGINE).of_release
    assert of_release is not None  # the default engine's server is vLLM's, which has releases
    return of_release(version)


_NOTHING = Followed()
_INPUTS = tuple(dict.fromkeys(key for keys in FOLLOWS.values() for key in keys))


def followed(value_of: ValueOf, given: Callable[[str], bool]) -> Followed:
    """What the hardware gives for the keys that are left open.

    Parameters
    ----------
    value_of, given
        Value of a key, and whether somebody gave it.

    Raises
    ------
    InputError
        When the model is not known, or keys of the hardware contradict each other.
    """
    if not says_hardware(value_of):
        return _NOTHING
    inputs = tuple(value_of(key) for key in _INPUTS)
    return _followed(inputs, frozenset(key for key in (*FOLLOWS, *_INPUTS) if given(key)))


@cache
def _followed(inputs: tuple[Any, ...], given: frozenset[str]) -> Followed:
    from fastsim.presets.estimate import DoesNotFit

    values = dict(zip(_INPUTS, inputs, strict=True))
    out: dict[str, Any] = {}
    if values[VERSION] is not None:
        out |= release_settings(values[VERSION])
    seen = values | {key: value for key, value in out.items() if key not in given}
    hardware = hardware_of(seen.__getitem__)
    fault = None
    if hardware is not None:
        try:
            out |= _of_hardware(hardware, seen, given)
        except DoesNotFit as error:
            out |= {BLOCKS: 2}
            fault = str(error)
    return Followed({key: value for key, value in out.items() if key not in given}, fault)


def _of_hardware(hardware: Hardware, values: Mapping[str, Any], given: frozenset[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    out |= {key: value for key, value in hardware.taken.limits.items() if key not in given}
    found = hardware.estimate(out.get(SEQS, values[SEQS]), out.get(TOKENS, values[TOKENS]))
    blocks = values[BLOCKS] if BLOCKS in given else found.num_gpu_blocks
    out |= {BLOCKS: blocks, MODEL_LEN: max(found.model_len(blocks), 1)}
    if hardware.groups is not None:
        out[GROUPS] = hardware.groups
    out |= hardware.server_settings(blocks * hardware.block_size, out[MODEL_LEN])
    if not given.issuperset(LINEAR) and "latency.preset" not in given:
        times = {f"latency.{name}": value for name, value in found.latency().items()}
        if not engine_of(hardware.engine).context_time:
            del times["latency.b3_us_per_context_token"]
        out |= times
    return out


class Values:
    """The keys of one combination of a grid: `settings` over a base, the rest as the hardware gives it.

    Parameters
    ----------
    base, settings
        The configuration, and what replaces its values.
    follow
        False: nothing says anything of hardware, and nothing has to be looked at.

    Attributes
    ----------
    fault
        Why no server starts on this hardware; None: one does.
    """

    def __init__(self, base: Config, settings: Mapping[str, Any], *, follow: bool = True) -> None:
        self._base = base
        self._settings = settings
        found = followed(self._raw, self._given) if follow else _NOTHING
        self._followed = found.values
        self.fault = found.fault

    def _raw(self, key: str) -> Any:
        return self._settings[key] if key in self._settings else self._base.value(key)

    def _given(self, key: str) -> bool:
        return self._settings[key] is not None if key in self._settings else is_given(self._base, key)

    def __call__(self, key: str) -> Any:
        """The value of a key."""
        if key in self._followed:
            return self._followed[key]
        value = self._raw(key)
        return _DEFAULTS.value(key) if value is None and key in _PLAIN else value


_DEFAULTS = Config()
_PLAIN = frozenset(key for key in FOLLOWS if _DEFAULTS.value(key) is not None)
"""Keys that are never none: where a choice leaves one open and there is no hardware, its default stands."""


def standing(config: Config) -> dict[str, Any]:
    """What a configuration's hardware gives for the keys that are left open, and defaults of those that a choice left.

    Raises
    ------
    InputError
        When the model does not fit on the hardware, or is not known.
    """
    found = followed(config.value, lambda key: is_given(config, key))
    if found.fault is not None:
        raise InputError(found.fault)
    plain = {key: _DEFAULTS.value(key) for key in _PLAIN if config.value(key) is None}
    return plain | dict(found.values)
