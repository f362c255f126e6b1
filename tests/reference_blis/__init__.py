"""The oracle of the `blis` engine: BLIS (inference-sim f90a1e3a, linear latency model) in plain Python.

Objects, dictionaries, OrderedDict lists and one heap of events; every rule in the most obvious form, nothing lazy,
nothing skipped. It imports nothing of fastsim: the kernels are tested against it, and it is tested against recordings
of BLIS.
"""

from .requests import Config, Request, from_case
from .simulator import Simulator, simulate

__all__ = ["Config", "Request", "Simulator", "from_case", "simulate"]
