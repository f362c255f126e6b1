"""A Hugging Face `config.json` as shapes; what had to be assumed, and what is not understood, is written down."""

import json
from typing import Any

from fastsim.errors import InputError
from fastsim.presets.shapes import DTYPE_BYTES, Mla, ModelShapes

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

FULL = "full_attention"
WINDOWED = ("sliding_attention", "chunked_attention")
"""Values of `layer_types` that are understood."""

ARCHITECTURES = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM", "GptOssForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
    *("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeForCausalLM", "Llama4ForConditionalGeneration"),
    *("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "Mistral3ForConditionalGeneration"),
)
"""Decoders whose shapes are counted as they are."""

NOT_COUNTED = {
    "vision_config": "a vision tower",
    "audio_config": "an audio tower",
    "num_nextn_predict_layers": "layers that predict further tokens",
    "index_topk": "sparse attention",
    "hybrid_override_pattern": "layers without attention",
    "layers_block_type": "layers of several kinds",
    "attn_type_list": "attention of several kinds",
    "mamba_d_state": "state-space layers",
    "linear_num_value_heads": "linear attention",
    "encoder_layers": "an encoder",
    "cross_attention_layers": "cross attention",
}
"""Keys of a config.json that change weights, KV cache or step times in a way that is not known here."""


def parse_config(source: str, name: str, content: str) -> ModelShapes:
    """The shapes that a config.json says; `source` names it in refusals.

    Raises
    ------
    InputError
        When it is not the configuration of a decoder.
    """
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: not valid JSON ({error}), but a model's config.json was expected") from None
    if isinstance(config, dict) and isinstance(config.get("text_config"), dict):
        config = {**config, **config["text_config"]}
    if not isinstance(config, dict) or not {"hidden_size", "n_embd"} & set(config):
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
        layers = self.number("num_hidden_layers", "num_layers", "n_layer")
        hidden, heads = self.number("hidden_size", "n_embd"), self.number("num_attention_heads", "n_head")
        if min(layers, hidden, heads) < 1:
            raise InputError(f"{self.source}: a model without layers, heads or width, but at least 1 was expected")
        experts = self.number("num_local_experts", "num_experts", "n_routed_experts", default=0)
        intermediate = self.number("intermediate_size", "ffn_hidden_size", "n_inner", default=0)
        if not intermediate:
            intermediate = 4 * hidden
            self.assumptions.append("intermediate_size is missing: 4 times hidden_size")
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "")
        if dtype not in DTYPE_BYTES:
            self.assumptions.append(f"weights are bfloat16 (torch_dtype is {dtype or 'missing'})")
            dtype = "bfloat16"
        architecture = (config.get("architectures") or [""])[0]
        window, window_layers, window_first = self._windows(layers)
        self._say_what_is_not_understood(architecture, layers)
        scattered = self.number("interleave_moe_layer_step", default=0)  # Llama 4: experts in each so-manieth layer
        dense_layers = self.number("first_k_dense_replace", default=layers - layers // scattered if scattered else 0)
        expert_width = self.number("moe_intermediate_size", default=intermediate)
        shared = self.number("n_shared_experts", default=1 if scattered else 0)
        if shared_width := self.number("shared_expert_intermediate_size", default=0):
            shared = -(-shared_width // max(expert_width, 1))
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
            vocab=self.number("vocab_size", "padded_vocab_size"),
            max_model_len=self._max_model_len(),
            tied=bool(config.get("tie_word_embeddings", False)),
            experts=experts,
            experts_per_token=self.number("num_experts_per_tok", default=0) if experts else 0,
            expert_intermediate=expert_width if experts else 0,
            shared_experts=shared if experts else 0,
            dense_layers=min(dense_layers, layers) if experts else layers,
            mla=self._mla(),
            dtype=dtype,
            weight_dtype=self._weight_dtype(dtype),
            window=window,
            window_layers=window_layers,
            chunked=bool(window_layers and self.number("attention_chunk_size", default=0)),
            window_first=window_first,
            assumptions=tuple(self.assumptions),
        )

    def _windows(self, layers: int) -> tuple[int, int, bool]:
        """Size of the window or chunk, how many layers have one, and whether the first layer has."""
        config = self.config
        chunk = self.number("attention_chunk_size", default=0)
        window = chunk or self.number("sliding_window", default=0)
        if not window or not config.get("use_sliding_window", True):
            return 0, 0, True
        kinds = config.get("layer_types")
        if isinstance(kinds, list) and len(kinds) == layers:
            local = [kind in WINDOWED for kind in kinds]
            return (window, sum(local), local[0]) if any(local) else (0, 0, True)
        if config.get("use_sliding_window") and config.get("max_window_layers") is not None:  # Qwen2: the upper layers
            full = min(self.number("max_window_layers"), layers)
            return window, layers - full, not full
        every = 4 if chunk else self.number("sliding_window_pattern", "_sliding_window_pattern", default=0)
        return window, layers - layers // every if every else layers, True

    def _say_what_is_not_understood(self, architecture: str, layers: int) -> None:
        """Write down what the configuration has that neither weights, nor the pool, nor step times count."""
        config = self.config
        if architecture not in ARCHITECTURES:
            what = f"{architecture} is not known" if architecture else "architectures is missing"
            self.assumptions.append(f"{what}: taken for a decoder whose MLPs have a gate, without biases")
        kinds = config.get("layer_types")
        if isinstance(kinds, list):
            others = sorted({str(kind) for kind in kinds} - {*WINDOWED, FULL})
            if others or len(kinds) != layers:
                count = sum(str(kind) in others for kind in kinds)
                text = f"{count} layers of {', '.join(others)}" if others else f"layer_types of {len(kinds)} layers"
                self.assumptions.append(f"not understood: {text}; all are counted as full attention")
        found = [f"{key} ({what})" for key, what in NOT_COUNTED.items() if config.get(key)]
        if found:
            self.assumptions.append(f"not understood, and not counted: {'; '.join(found)}")

    def _max_model_len(self) -> int:
        found = self.number("max_position_embeddings", "seq_length", "n_positions", default=0)
        if not found:
            self.assumptions.append("max_position_embeddings is missing: 8,192")
        return found or 8192

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
