"""The `engine` and `latency` tables: what all engines share, vLLM's knobs, and a table for each other engine."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from fastsim.engines import engine_of, engines
from fastsim.engines.declaration import DEFAULT_ENGINE, SharedKnobs
from fastsim.engines.vllm.knobs import VllmKnobs
from fastsim.model import Coefficient, Model, Natural, Positive, a_list

ENGINE_NAMES = tuple(name for engine in engines() for name in engine.names)

if TYPE_CHECKING:
    EngineName = str

    class EngineTables(Model):
        """A field for each engine with knobs of its own."""

    class LatencyTables(Model):
        """A field for each engine with step times of its own."""

else:
    EngineName = Literal[ENGINE_NAMES]

    def _tables(name: str, models: dict[str, type[Model]]) -> type[Model]:
        fields: dict[str, Any] = {table: (model, model()) for table, model in models.items()}
        return create_model(name, __base__=Model, **fields)

    EngineTables = _tables("EngineTables", {each.table: each.knobs for each in engines() if each.table})
    LatencyTables = _tables("LatencyTables", {each.table: each.latency for each in engines() if each.latency})


class EngineConfig(EngineTables, VllmKnobs, SharedKnobs):
    """The scheduler's knobs: `engine.*`. None follows other keys (config/derived.py) or means "off"."""

    name: EngineName = DEFAULT_ENGINE
    """Which scheduler's rules hold."""

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: under vLLM all but the null block."""
        return (self.num_gpu_blocks or 1) - engine_of(self.name).reserved_blocks


def _known_preset(name: str) -> str:
    """Refuse a preset whose model or GPU is not known, or that does not fit."""
    from fastsim.presets import coefficients  # here: most runs have no preset, and need not load them

    coefficients(name)
    return name


Preset = Annotated[str, AfterValidator(_known_preset)]


class LatencyConfig(LatencyTables):
    """Step time in microseconds, summed left to right and truncated.

    b0 + b1*prefill tokens + b2*decode tokens + table(tokens) + b3*context tokens + b6*window tokens, and in a step with
    prefill b5 + b4*pairs. Without a table and b4 to b6 this is linear.
    """

    preset: Preset | None = None
    """MODEL@GPU, as in "llama-3.1-70b-fp8@4xh100": what is none below comes from it."""
    source: Literal["auto", "shipped", "analytic", "linear"] = "auto"
    """Where the preset's step times come from: a shipped table, one from data sheets, or four linear coefficients."""
    b0_us: Annotated[float, Field(ge=1, le=1e9, allow_inf_nan=False)] | None = None
    """Fixed time of a step; at least 1, so that the clock always moves. None: the preset's, else 5752.71."""
    b1_us_per_prefill_token: Coefficient | None = None
    """Per prefill token of the step. None: the preset's, else 17.25."""
    b2_us_per_decode_token: Coefficient | None = None
    """Per decode token of the step. None: the preset's, else 6."""
    b3_us_per_context_token: Coefficient | None = None
    """Per token already computed of the step's decoding requests. None: the preset's, else 0."""
    b4_us_per_prefill_pair: Coefficient | None = None
    """Per pair of a prefill token and a token before it (attention): chunk * (computed before + chunk / 2)."""
    b5_us_per_prefill_step: Coefficient | None = None
    """Per step that prefills: it leaves the CUDA graph. None: the preset's, else 0; likewise b4 and b6."""
    b6_us_per_window_token: Coefficient | None = None
    """Per context token of the step's decoding requests within `window_tokens`: layers of sliding-window attention."""
    window_tokens: Natural | None = None
    """The sliding window that b6 counts up to. None: the preset's, else 0: no such layers."""
    table_tokens: Annotated[tuple[Positive, ...], a_list, Field(min_length=1, max_length=32)] | None = None
    """Tokens of a step at which `table_us` gives its time; between them linear. None: the preset's, else no table."""
    table_us: Annotated[tuple[Coefficient, ...], a_list, Field(min_length=1, max_length=32)] | None = None
    """Time of a step by its tokens; beyond the last knot the last slope goes on. None: the preset's, else no table."""
    table_scale: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    """Factor of the table."""
    max_cudagraph_capture_size: Natural | None = None
    """Steps of so few decodes are padded to a captured size in the table. None: vLLM's, min(2 * max_num_seqs, 512)."""
    frontend_us: Coefficient | None = None
    """Fixed overhead outside the engine, added to TTFT and E2E. None: the preset's, else 0."""
    alpha: Annotated[tuple[Coefficient, ...], a_list, Field(min_length=3, max_length=3)] = (232.46, 1.75, 3357.44)
    """BLIS's three, us: before the queue a base and per prompt token; per output token, reported, not on the clock."""
