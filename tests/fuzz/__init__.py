"""Hostile input, ten thousand times a reader: `python -m tests.fuzz --help`.

tests/test_fuzz.py is the short form.
"""
