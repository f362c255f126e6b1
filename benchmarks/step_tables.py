"""Make fastsim/presets/tables.json anew from aiconfigurator, a public tool with a database of measured kernels.

`pip install "fastsim-llm[tables]"`, then `python -m benchmarks step_tables --readme`; without `--readme` nothing is
written, and the tables are only compared with those that are shipped.

A table is read off the tool part by part. For each number of tokens the parts of a step (GEMMs, experts, all-reduces,
small kernels) are asked for once; a part never takes longer than it takes for more tokens, because the kernel for more
tokens does fewer as well (some of the database's single points are slow: kernels that were not tuned). Attention is
asked for over a grid of contexts and chunks, and fitted by the terms that step times have beside the table.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from benchmarks.table import markdown, publish
from fastsim.errors import InputError, need
from fastsim.presets import estimate, load_gpu, load_model

TABLES = Path(str(files("fastsim.presets").joinpath("tables.json")))
TOOL, LICENCE = "aiconfigurator 0.12.0", "Apache-2.0"
SOURCE = (
    "aiconfigurator 0.12.0 (NVIDIA, Apache-2.0, https://github.com/ai-dynamo/aiconfigurator), backend vllm: queries of "
    "its database of measured kernels, brought to this form by benchmarks/step_tables.py"
)
KNOTS = tuple(2**i for i in range(14))
TENSOR_PARALLEL = (1, 2, 4, 8)
GRAPH_TOKENS = 512
"""Up to so many tokens the parts of a decode step are asked for, above them those of a prefill."""
SAMPLED = "logits_gemm"

SYSTEMS = {
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "a100-80gb": "a100_sxm",
    "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
FP8 = {"gemm_quant_mode": "fp8", "kvcache_quant_mode": "fp8"}
MODELS: dict[tuple[str, str], tuple[str, dict[str, str]]] = {
    ("llama-3.1-8b", "bfloat16"): ("meta-llama/Meta-Llama-3.1-8B", {}),
    ("llama-3.1-8b", "fp8"): ("meta-llama/Meta-Llama-3.1-8B", FP8),
    ("llama-3.1-70b", "bfloat16"): ("meta-llama/Meta-Llama-3.1-70B", {}),
    ("llama-3.1-70b", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", {}),
    ("llama-2-7b", "bfloat16"): ("", {}),
    ("mistral-7b-v0.3", "bfloat16"): ("", {}),
    ("mistral-nemo-12b", "bfloat16"): ("", {}),
    ("mistral-small-24b", "bfloat16"): ("", {}),
    ("qwen2.5-7b", "bfloat16"): ("", {}),
    ("qwen2.5-14b", "bfloat16"): ("", {}),
    ("qwen2.5-32b", "bfloat16"): ("", {}),
    ("qwen2.5-72b", "bfloat16"): ("", {}),
    ("qwen3-8b", "bfloat16"): ("Qwen/Qwen3-8B", {}),
    ("qwen3-14b", "bfloat16"): ("", {}),
    ("qwen3-32b", "bfloat16"): ("Qwen/Qwen3-32B", {}),
    ("qwen3-32b", "fp8"): ("Qwen/Qwen3-32B-FP8-Static-PerTensor", {}),
    ("qwen3-30b-a3b", "bfloat16"): ("Qwen/Qwen3-30B-A3B", {}),
    ("qwen3-235b-a22b", "fp8"): ("Qwen/Qwen3-235B-A22B-FP8", {}),
    ("gpt-oss-20b", "mxfp4"): ("openai/gpt-oss-20b", {}),
    ("gpt-oss-120b", "mxfp4"): ("openai/gpt-oss-120b", {}),
    ("deepseek-v3", "fp8"): ("deepseek-ai/DeepSeek-V3", {}),
}
"""By preset and dtype of weights: the tool's model ("": from the preset's config.json) and its arguments."""

DECODERS, CONTEXTS = (1, 4, 16, 64, 128, 256), (256, 1024, 4096, 16384)
CHUNKS, PREFIXES = (64, 256, 1024, 2048, 8192), (0, 1024, 4096, 16384)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """One deployment's row in tables.json; times in us."""

    tokens_us: list[float]
    context_us: float
    pair_us: float
    decode_us: float
    prefill_step_us: float
    prefill_token_us: float
    fit_mean_pct: float
    fit_p99_pct: float
    smoothed_pct: float

    def row(self) -> list[Any]:
        """As it stands in the file, in the order of `COLUMNS`."""
        return [getattr(self, name) for name in COLUMNS]


COLUMNS = tuple(Table.__dataclass_fields__)


class Parts:
    """The parts of a step as the tool times them; all results in us."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.attention = [i for i, name in enumerate(_context_parts(engine)) if is_attention(name)]

    def others(self, tokens: int) -> dict[str, float]:
        """All but attention of a step of so many tokens, by name."""
        if tokens <= GRAPH_TOKENS:
            parts = self.engine.decode_step_per_op(tokens, 256, 2)
        else:
            parts = self.engine.mixed_step_breakdown_per_op(tokens, 0, tokens, 2)[0]
        found: dict[str, float] = {}
        for name, ms, *_ in parts:
            if not is_attention(name):
                short = name.partition("_")[2]
                found[short] = found.get(short, 0.0) + 1000 * ms
        return found

    def decode_attention(self, decoders: int, context: int) -> float:
        """Attention of a step of decodes."""
        parts = self.engine.decode_step_per_op(decoders, context, 2)
        return 1000 * sum(part[1] for part in parts if is_attention(part[0]))

    def prefill_attention(self, chunk: int, prefix: int) -> float:
        """Attention of a step with one chunk of a prompt, behind so many computed tokens."""
        parts = self.engine.evaluate_context_ops(self.attention, batch_size=1, s=chunk, prefix=prefix)
        return 1000 * sum(part[1] for part in parts)


def is_attention(name: str) -> bool:
    """Whether a part of the tool's depends on contexts (a block of MLA is timed with its projections)."""
    return "attention" in name or "mla_block" in name


def _context_parts(engine: Any) -> list[str]:
    """Names of the tool's parts of a prefill; it does not say how many there are."""
    names: list[str] = []
    try:
        while True:
            names.append(engine.evaluate_context_ops([len(names)], batch_size=1, s=64)[0][0])
    except ValueError:
        return names


def kernels_by_tokens(parts: Parts) -> Floats:
    """Times of the parts but attention, shape (knots, parts).

    Prefills sample one token each, so the output layer stays as it is for the largest step of decodes. Parts that the
    tool names otherwise in prefills count as one.
    """
    raw = [parts.others(tokens) for tokens in KNOTS]
    everywhere = set.intersection(*map(set, raw)) - {SAMPLED}
    sampled = np.array([found.get(SAMPLED, 0.0) for found in raw])
    decodes = np.array(KNOTS) <= GRAPH_TOKENS
    sampled[~decodes] = sampled[decodes][-1]
    rest = [sum(us for name, us in found.items() if name not in everywhere | {SAMPLED}) for found in raw]
    columns = [[found[name] for found in raw] for name in sorted(everywhere)]
    return np.stack([np.array(column, np.float64) for column in (*columns, rest, sampled)], axis=1)


def deployments() -> Iterator[tuple[str, str, int, str]]:
    """Model, GPU, tensor parallelism and dtype of all tables that are worth having: those with room for KV blocks."""
    for (model, dtype), gpu, gpus in product(MODELS, SYSTEMS, TENSOR_PARALLEL):
        try:
            estimate(load_model(model), load_gpu(gpu), tensor_parallel=gpus, weight_dtype=dtype, step_times="linear")
        except InputError:
            continue
        yield model, gpu, gpus, dtype


def parts_of(model: str, gpu: str, gpus: int, dtype: str, folder: Path) -> Parts:
    """Ask the tool for a deployment; its own error when it cannot answer."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    name, arguments = MODELS[model, dtype]
    if not name:
        shapes = folder / model
        shapes.mkdir(exist_ok=True)
        config = files("fastsim.presets").joinpath("models", f"{model}.json").read_text(encoding="utf-8")
        # Mistral's layers are Llama's; the tool knows the latter by name
        config = config.replace("MistralForCausalLM", "LlamaForCausalLM")
        (shapes / "config.json").write_text(config, encoding="utf-8")
        name = str(shapes)
    experts = {"moe_tp_size": gpus, "moe_ep_size": 1} if load_model(model).experts else {}
    engine = EngineHandle.compile(name, SYSTEMS[gpu], "vllm", tp_size=gpus, **arguments, **experts)
    return Parts(engine)


def table_of(parts: Parts) -> Table:
    """The terms of step times that come closest to the tool's."""
    kernels = kernels_by_tokens(parts)
    # A kernel for more tokens does fewer as well, so no part is slower for fewer
    smooth = np.minimum.accumulate(kernels[::-1], axis=0)[::-1].sum(axis=1)
    before = kernels.sum(axis=1)

    decoders, contexts = (grid.ravel().astype(float) for grid in np.meshgrid(DECODERS, CONTEXTS))
    reading = np.array([parts.decode_attention(int(n), int(c)) for n, c in zip(decoders, contexts, strict=True)])
    rest = np.interp(decoders, KNOTS, smooth)
    fixed, decode_us, context_us = _fitted_beside(rest, reading, [np.ones_like(rest), decoders, decoders * contexts])

    chunks, prefixes = (grid.ravel().astype(float) for grid in np.meshgrid(CHUNKS, PREFIXES))
    pairs = chunks * (prefixes + chunks / 2)
    prefill = np.array([parts.prefill_attention(int(n), int(p)) for n, p in zip(chunks, prefixes, strict=True)])
    rest = np.interp(chunks, KNOTS, smooth) + fixed
    terms = [np.ones_like(rest), chunks, pairs]
    step_us, token_us, pair_us = _fitted_beside(rest, np.maximum(prefill - fixed, 0.0), terms)

    tokens_us = smooth + fixed
    made = np.concatenate(
        [
            np.interp(decoders, KNOTS, tokens_us) + decode_us * decoders + context_us * decoders * contexts,
            np.interp(chunks, KNOTS, tokens_us) + step_us + token_us * chunks + pair_us * pairs,
        ]
    )
    told = np.concatenate([np.interp(decoders, KNOTS, before) + reading, np.interp(chunks, KNOTS, before) + prefill])
    off = 100 * np.abs(made / told - 1)
    return Table(
        tokens_us=[round(float(us), 1) for us in tokens_us],
        context_us=float(f"{context_us:.6g}"),
        pair_us=float(f"{pair_us:.6g}"),
        decode_us=round(float(decode_us), 4),
        prefill_step_us=round(float(step_us), 1),
        prefill_token_us=round(float(token_us), 4),
        fit_mean_pct=round(float(off.mean()), 1),
        fit_p99_pct=round(float(np.quantile(off, 0.99)), 1),
        smoothed_pct=round(float(100 * (1 - smooth / before).max()), 1),
    )


def _fitted_beside(rest: Floats, values: Floats, columns: list[Floats]) -> Floats:
    """Coefficients of one part of steps whose other parts take `rest`: the error counts relative to the whole step."""
    matrix = np.stack(columns, axis=1)
    weight = 1 / (rest + values)
    scale = np.maximum(matrix.max(axis=0), 1e-30)
    found: Floats = nnls(matrix / scale * weight[:, None], values * weight)[0] / scale
    return found


def made_anew(every: int = 1) -> tuple[dict[str, Table], dict[str, str]]:
    """All tables (or every so-manieth), and why the tool has none for the others."""
    tables: dict[str, Table] = {}
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model, gpu, gpus, dtype in list(deployments())[::every]:
            key = f"{model}|{gpu}|{gpus}|{dtype}"
            try:
                tables[key] = table_of(parts_of(model, gpu, gpus, dtype, Path(folder)))
            except Exception as error:  # noqa: BLE001 (the tool raises what it likes where its database has nothing)
                missing[key] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    return tables, missing


def document(tables: dict[str, Table]) -> str:
    """The text of tables.json: a table a line."""
    head = {
        "source": SOURCE,
        "tool": TOOL,
        "licence": LICENCE,
        "models": {f"{model}|{dtype}": name or model for (model, dtype), (name, _) in MODELS.items()},
        "systems": SYSTEMS,
        "knots": KNOTS,
        "columns": COLUMNS,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(table.row(), separators=(',', ':'))}" for key, table in tables.items()]
    text = json.dumps(head, indent=1)[:-2]
    return text + ',\n "tables": {\n' + ",\n".join(lines) + "\n }\n}\n"


def main(tiny: bool, readme: bool) -> None:
    """Compare the tables made anew with those shipped; with `readme`, ship them."""
    need("step tables", "aiconfigurator_core")
    tables, missing = made_anew(40 if tiny else 1)
    shipped = json.loads(TABLES.read_text(encoding="utf-8"))["tables"]
    rows = []
    for key, table in tables.items():
        old = shipped.get(key)
        change = "" if old is None else f"{100 * float(np.max(np.abs(np.array(table.tokens_us) / old[0] - 1))):.1f} %"
        rows.append([key, f"{table.fit_mean_pct} / {table.fit_p99_pct} %", f"{table.smoothed_pct} %", change])
    note = f"{len(missing)} that the tool has no data for: " + "; ".join(f"{k} ({v})" for k, v in missing.items())
    publish("step tables", markdown(["table", "fit, mean / p99", "smoothed", "against shipped"], rows, note), False)
    if readme and not tiny:
        TABLES.write_text(document(tables), encoding="utf-8")
