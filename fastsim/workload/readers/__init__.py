"""Trace formats, one file each. A new one is a module with a `FORMAT`, and one line here."""

from fastsim.workload.readers import azure, plain
from fastsim.workload.trace import Format

FORMATS: tuple[Format, ...] = (plain.FORMAT, azure.FORMAT)
"""Tried in this order."""
