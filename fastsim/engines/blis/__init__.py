"""BLIS (inference-sim f90a1e3a) with its linear latency model, metric for metric.

Its rules, and the kernel that does each, stand in RULES.md. To read them in code: `kernel.py` first.
"""
