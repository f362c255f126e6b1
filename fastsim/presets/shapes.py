"""A model's shapes: parameters and KV bytes are counted from them.

Dense or mixture of experts, grouped-query attention or multi-head latent attention (MLA).
"""

from dataclasses import dataclass, field

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
    """Sliding window of `window_layers`, tokens; or the chunk that they attend within."""
    window_layers: int = 0
    chunked: bool = False
    """Whether these layers attend within chunks instead of a window that slides."""
    window_first: bool = True
    """Whether the first layer is one of them: groups of KV cache come in the order of layers."""
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
