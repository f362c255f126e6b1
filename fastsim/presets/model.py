"""What serving needs to know of a model, from its Hugging Face `config.json`: weights and KV bytes.

Parameters are counted from the shapes of the layers: dense or mixture of experts, grouped-query attention or
multi-head latent attention (MLA).
"""

import json
import re
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastsim.errors import InputError, check_regular, suggestion

DTYPE_BYTES = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.52,
    "mxfp4": 0.53125,
    "nvfp4": 0.5625,
}
"""Bytes of a value. mxfp4 has an 8-bit scale for each 32, nvfp4 for each 16; other 4-bit weights have a 16-bit scale
and a 4-bit zero for each group of 128, and take 4.16 bits."""

QUANTIZED = {
    "fp8": "fp8",
    "compressed-tensors": "fp8",
    "fbgemm_fp8": "fp8",
    "awq": "int4",
    "gptq": "int4",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "modelopt": "fp8",
    "modelopt_fp4": "nvfp4",
}
"""`quantization_config.quant_method` -> the dtype of the layers' weights."""

VARIANT = re.compile(r"(-instruct|-chat|-base|-it|-hf|-thinking|-\d{4})+$")
"""Ends of names that change neither shapes nor dtypes."""

FORMAT = re.compile(r"-(fp8|nvfp4|fp4|int4|awq|gptq|w4a16|int8|w8a8)(-[a-z0-9]+)?$")
FORMATS = {"fp4": "nvfp4", "awq": "int4", "gptq": "int4", "w4a16": "int4", "w8a8": "int8"}
"""Ends of names of quantized checkpoints -> the dtype of their layers' weights."""

SAME_SHAPES = {
    "llama-3.3-70b": "llama-3.1-70b",
    "deepseek-r1": "deepseek-v3",
    "mistral-small-3.1-24b": "mistral-small-24b",
    "mistral-small-3.2-24b": "mistral-small-24b",
    "mistral-nemo": "mistral-nemo-12b",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
}

QKV_BIAS = ("Qwen2ForCausalLM",)
QK_NORM = ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM")


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention: ranks and head sizes; `q_rank` 0: queries are not compressed."""

    kv_rank: int
    q_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int


@dataclass(frozen=True)
class ModelShapes:
    """Shapes of a decoder-only model."""

    name: str
    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_model_len: int
    tied: bool
    experts: int
    experts_per_token: int
    expert_intermediate: int
    shared_experts: int
    dense_layers: int
    """Leading layers without experts; all of them in a dense model."""
    mla: Mla | None
    dtype: str
    weight_dtype: str
    window: int = 0
    """Sliding window of `window_layers`, tokens."""
    window_layers: int = 0
    assumptions: tuple[str, ...] = field(default=())

    @property
    def embedding_parameters(self) -> int:
        """Token embeddings; the output layer is one more unless tied."""
        return self.vocab * self.hidden

    @property
    def head_parameters(self) -> int:
        """The output layer as it is read in every step."""
        return self.vocab * self.hidden

    @property
    def attention_parameters(self) -> int:
        """Attention of one layer, its norms included."""
        hidden = self.hidden
        if self.mla is not None:
            m = self.mla
            q_out = self.heads * (m.nope_dim + m.rope_dim)
            query = hidden * m.q_rank + m.q_rank + m.q_rank * q_out if m.q_rank else hidden * q_out
            key_value = hidden * (m.kv_rank + m.rope_dim) + m.kv_rank
            key_value += m.kv_rank * self.heads * (m.nope_dim + m.v_dim)
            return query + key_value + self.heads * m.v_dim * hidden + 2 * hidden
        q_out, kv_out = self.heads * self.head_dim, self.kv_heads * self.head_dim
        count = hidden * q_out + 2 * hidden * kv_out + q_out * hidden + 2 * hidden
        count += q_out + 2 * kv_out if self.architecture in QKV_BIAS else 0
        return count + (2 * self.head_dim if self.architecture in QK_NORM else 0)

    @property
    def expert_parameters(self) -> int:
        """One expert of one layer."""
        return 3 * self.hidden * self.expert_intermediate

    @property
    def always_parameters(self) -> int:
        """What every token of every step passes: all but embeddings and routed experts."""
        expert_layers = self.layers - self.dense_layers
        router = self.hidden * self.experts + (self.experts if self.architecture == "DeepseekV3ForCausalLM" else 0)
        dense = self.dense_layers * 3 * self.hidden * self.intermediate
        experts = expert_layers * (router + self.shared_experts * self.expert_parameters)
        return self.layers * self.attention_parameters + dense + experts + self.hidden

    @property
    def routed_parameters(self) -> int:
        """All routed experts of all layers."""
        return (self.layers - self.dense_layers) * self.experts * self.expert_parameters

    @property
    def parameters(self) -> int:
        """All of them."""
        embeddings = self.embedding_parameters * (1 if self.tied else 2)
        return embeddings + self.always_parameters + self.routed_parameters

    @property
    def active_parameters(self) -> int:
        """Those that one token multiplies with, the output layer included, embeddings not."""
        routed = self.routed_parameters * self.experts_per_token // max(self.experts, 1)
        return self.always_parameters + routed + self.head_parameters

    @property
    def always_dtype(self) -> str:
        """Dtype of what every token passes: mxfp4 checkpoints quantize the experts alone."""
        return self.dtype if self.weight_dtype == "mxfp4" else self.weight_dtype

    @property
    def weight_bytes(self) -> float:
        """Weights in memory; embeddings and the output layer keep the model's dtype when layers are quantized."""
        embeddings = self.embedding_parameters * (1 if self.tied else 2)
        layers = self.always_parameters * DTYPE_BYTES[self.always_dtype]
        layers += self.routed_parameters * DTYPE_BYTES[self.weight_dtype]
        return embeddings * DTYPE_BYTES[self.dtype] + layers

    def kv_bytes_per_token(self, tensor_parallel: int = 1, kv_dtype: str | None = None) -> float:
        """KV cache of one token on one GPU, all layers.

        KV heads are divided among GPUs, and replicated when there are fewer heads than GPUs. MLA keeps one latent
        vector a layer (`kv_lora_rank` + `qk_rope_head_dim`), the same on every GPU.
        """
        size = DTYPE_BYTES[kv_dtype or self.dtype]
        if self.mla is not None:
            return self.layers * (self.mla.kv_rank + self.mla.rope_dim) * size
        return self.layers * 2 * max(self.kv_heads / tensor_parallel, 1) * self.head_dim * size


def model_names() -> list[str]:
    """Names of the models that come with fastsim."""
    folder = files("fastsim.presets").joinpath("models")
    return sorted(item.name.removesuffix(".json") for item in folder.iterdir() if item.name.endswith(".json"))


def _short(name: str, known: list[str]) -> tuple[str, str | None]:
    """The preset that a name stands for, and the dtype of the layers' weights that its end says."""
    short = name.lower().rpartition("/")[2].removeprefix("meta-")
    quantized = FORMAT.search(short) if short not in known else None
    short = VARIANT.sub("", FORMAT.sub("", short) if quantized else short)
    dtype = FORMATS.get(quantized[1], quantized[1]) if quantized else None
    return SAME_SHAPES.get(short, short), dtype


def is_preset(name: str) -> bool:
    """Whether a name stands for a model that comes with fastsim."""
    known = model_names()
    return _short(name, known)[0] in known


def load_model(name: str | Path) -> ModelShapes:
    """A shipped model by name, or any by its `config.json` (or the folder that holds it).

    Raises
    ------
    InputError
        When there is none of that name, or the file is not a configuration of a decoder-only model.
    """
    text = str(name)
    path = Path(text)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.exists():
        check_regular(path, "a model's config.json")
        try:
            content = path.read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read ({error}), but a model's config.json was expected") from None
        return _parse(str(path), path.parent.name or path.stem, content)
    known = model_names()
    short, weight_dtype = _short(text, known)
    if short not in known:
        raise InputError(f"--model {text}: no such file and no such preset{suggestion(short, known)}")
    resource = files("fastsim.presets").joinpath("models", f"{short}.json")
    model = _parse(f"preset {short}", short, resource.read_text(encoding="utf-8"))
    return model if weight_dtype is None else replace(model, weight_dtype=weight_dtype)


def _parse(source: str, name: str, content: str) -> ModelShapes:
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not valid JSON ({error}), but a model's config.json was expected") from None
    if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
        config = {**config, **config["text_config"]}
    if not isinstance(config, dict) or "hidden_size" not in config:
        raise InputError(f"{source}: hidden_size is missing, but a Hugging Face config.json of a model was expected")
    return _Reader(source, config).model(name)


class _Reader:
    """Takes numbers out of a configuration, and writes down what it had to assume."""

    def __init__(self, source: str, config: dict[str, Any]) -> None:
        self.source = source
        self.config = config
        self.assumptions: list[str] = []

    def number(self, *names: str, default: int | None = None) -> int:
        for name in names:
            value = self.config.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise InputError(f"{self.source}: {name} = {value!r}, but an integer of at least 0 was expected")
                return value
        if default is None:
            raise InputError(f"{self.source}: {names[0]} is missing, but an integer was expected")
        return default

    def model(self, name: str) -> ModelShapes:
        config = self.config
        layers, hidden = self.number("num_hidden_layers"), self.number("hidden_size")
        heads = self.number("num_attention_heads")
        if min(layers, hidden, heads) < 1:
            raise InputError(f"{self.source}: a model without layers, heads or width, but at least 1 was expected")
        experts = self.number("num_local_experts", "num_experts", "n_routed_experts", default=0)
        intermediate = self.number("intermediate_size")
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "")
        if dtype not in DTYPE_BYTES:
            self.assumptions.append(f"weights are bfloat16 (torch_dtype is {dtype or 'missing'})")
            dtype = "bfloat16"
        architecture = (config.get("architectures") or [""])[0]
        window, window_layers = self._windows(layers)
        if window_layers:
            self.assumptions.append(
                f"{window_layers} of {layers} layers read a window of {window:,} tokens; in the pool every layer keeps "
                "the KV of all tokens"
            )
        scattered = self.number("interleave_moe_layer_step", default=0)  # Llama 4: experts in each so-manieth layer
        dense_layers = self.number("first_k_dense_replace", default=layers - layers // scattered if scattered else 0)
        expert_width = self.number("moe_intermediate_size", default=intermediate)
        if config.get("intermediate_size_mlp") is not None:
            intermediate = self.number("intermediate_size_mlp")
        return ModelShapes(
            name=name,
            architecture=architecture,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=max(self.number("num_key_value_heads", default=heads), 1),
            head_dim=self.number("head_dim", default=hidden // heads),
            intermediate=intermediate,
            vocab=self.number("vocab_size"),
            max_model_len=self.number("max_position_embeddings", default=8192),
            tied=bool(config.get("tie_word_embeddings", False)),
            experts=experts,
            experts_per_token=self.number("num_experts_per_tok", default=0) if experts else 0,
            expert_intermediate=expert_width if experts else 0,
            shared_experts=self.number("n_shared_experts", default=1 if scattered else 0) if experts else 0,
            dense_layers=min(dense_layers, layers) if experts else layers,
            mla=self._mla(),
            dtype=dtype,
            weight_dtype=self._weight_dtype(dtype),
            window=window,
            window_layers=window_layers,
            assumptions=tuple(self.assumptions),
        )

    def _windows(self, layers: int) -> tuple[int, int]:
        """Size of the window and how many layers have one: sliding, or chunked, which is taken for sliding."""
        config = self.config
        chunk = self.number("attention_chunk_size", default=0)
        window = chunk or self.number("sliding_window", default=0)
        if not window or not config.get("use_sliding_window", True):
            return 0, 0
        kinds = config.get("layer_types")
        if isinstance(kinds, list) and len(kinds) == layers:
            return window, sum(kind != "full_attention" for kind in kinds)
        every = 4 if chunk else self.number("sliding_window_pattern", "_sliding_window_pattern", default=0)
        return window, layers - layers // every if every else layers

    def _mla(self) -> Mla | None:
        if self.config.get("kv_lora_rank") is None:
            return None
        return Mla(
            kv_rank=self.number("kv_lora_rank"),
            q_rank=self.number("q_lora_rank", default=0),
            nope_dim=self.number("qk_nope_head_dim"),
            rope_dim=self.number("qk_rope_head_dim"),
            v_dim=self.number("v_head_dim"),
        )

    def _weight_dtype(self, dtype: str) -> str:
        quantization = self.config.get("quantization_config")
        if not isinstance(quantization, dict):
            return dtype
        method = str(quantization.get("quant_method", "")).lower()
        if method not in QUANTIZED:
            raise InputError(
                f"{self.source}: quantization_config.quant_method = {method!r}, but one of "
                f"{', '.join(QUANTIZED)} was expected"
            )
        bits = quantization.get("bits")
        found = "int8" if bits == 8 and QUANTIZED[method] == "int4" else QUANTIZED[method]
        groups = quantization.get("config_groups")
        first: Any = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
        weights = first.get("weights") if isinstance(first, dict) else None
        if isinstance(weights, dict) and weights.get("num_bits") == 4:
            found = "nvfp4" if weights.get("type") == "float" else "int4"
        if str(quantization.get("quant_algo", "")).upper() == "NVFP4":
            found = "nvfp4"
        kind = "experts" if found == "mxfp4" else "layers"
        self.assumptions.append(f"weights of all {kind} are {found} ({method}); the rest is {dtype}")
        return found
