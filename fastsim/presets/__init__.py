"""Models and GPUs from public data sheets: KV pool and first latency coefficients without a measurement.

>>> from fastsim.presets import estimate, load_gpu, load_model
>>> estimate(load_model("llama-3.1-8b"), load_gpu("h100")).settings()
"""

from fastsim.presets.deployed import coefficients, deployed_on, estimate_of, gpus_of
from fastsim.presets.estimate import Deployment, Estimate, estimate
from fastsim.presets.gpu import Gpu, gpu_names, load_gpu
from fastsim.presets.kv_groups import kv_groups
from fastsim.presets.model import load_model, model_names
from fastsim.presets.shapes import ModelShapes

__all__ = [
    "Deployment",
    "Estimate",
    "Gpu",
    "ModelShapes",
    "coefficients",
    "deployed_on",
    "estimate",
    "estimate_of",
    "gpu_names",
    "gpus_of",
    "kv_groups",
    "load_gpu",
    "load_model",
    "model_names",
]
