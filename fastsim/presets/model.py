"""Models by name, or by their Hugging Face `config.json`."""

import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from fastsim.errors import InputError, check_regular, suggestion
from fastsim.presets.config_json import parse_config
from fastsim.presets.shapes import ModelShapes

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
        return parse_config(str(path), path.parent.name or path.stem, content)
    known = model_names()
    short, weight_dtype = _short(text, known)
    if short not in known:
        raise InputError(f"--model {text}: no such file and no such preset{suggestion(short, known)}")
    resource = files("fastsim.presets").joinpath("models", f"{short}.json")
    model = parse_config(f"preset {short}", short, resource.read_text(encoding="utf-8"))
    return model if weight_dtype is None else replace(model, weight_dtype=weight_dtype)
