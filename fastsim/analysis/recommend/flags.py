"""Settings as flags of the engine's server."""

from collections.abc import Mapping
from typing import Any

from fastsim.engines import server_of


def serve_command(engine: str) -> str:
    """What starts the server of an engine, up to its flags."""
    return server_of(engine).command


def serve_flags(settings: Mapping[str, Any], engine: str) -> tuple[list[str], list[str]]:
    """Flags of the engine's server for these settings, and the settings that have none (remedies that it lacks)."""
    server = server_of(engine)
    flags, others = [], []
    for key, value in settings.items():
        if key in server.flags and value is not None:
            flags += [server.flags[key], str(value)]
        elif key in server.switches:
            on, off = server.switches[key]
            flags += filter(None, [on if value else off])
        else:
            others.append(f"{key} = {'none' if value is None else value}")
    return flags, others


def deployment_flags(deployment: Mapping[str, Any], engine: str) -> list[str]:
    """Flags of the engine's server for what of a deployment is not its default."""
    names = server_of(engine).deployment
    flags = []
    gpus = deployment.get("tensor_parallel", 1)
    if gpus > 1:
        flags += [names["tensor_parallel"], str(gpus)]
    if "gpu_memory_utilization" in deployment:
        flags += [names["gpu_memory_utilization"], f"{deployment['gpu_memory_utilization']:g}"]
    if deployment.get("kv_dtype") == "fp8":
        flags += names["fp8"].split()
    if not deployment.get("async_scheduling", True):
        flags += names["sync"].split()
    if deployment.get("disable_hybrid_kv_cache_manager"):
        flags += names["one_group"].split()
    return flags
