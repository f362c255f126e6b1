"""Benchmarks: `python -m benchmarks NAME`. Every figure in benchmarks/README.md comes from here."""
