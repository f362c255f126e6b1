"""BLIS (inference-sim f90a1e3a) with its linear latency model, metric for metric. `kernel.py` first."""
