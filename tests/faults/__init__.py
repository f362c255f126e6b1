"""Faults inflicted on real sweeps, hundreds of times: `python -m tests.faults --help`.

tests/test_faults.py is the short form.
"""
