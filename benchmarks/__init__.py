"""Benchmarks: `python -m benchmarks NAME`. Every figure in the README comes from here."""
