"""The plan of a sweep: a grid of configurations decoded by index, the selection to compute, and its parts."""

from fastsim.sweeps.grid.digits import Axis
from fastsim.sweeps.grid.grid import POLICIES, Grid
from fastsim.sweeps.grid.selection import Part, PartPlan, Selection

__all__ = ["POLICIES", "Axis", "Grid", "Part", "PartPlan", "Selection"]
