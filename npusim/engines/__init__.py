"""Engines: a graph and a SoC in, an `Estimate` out."""

from npusim.engines.analytical import estimate
from npusim.engines.estimate import Estimate, OperatorCost, UnitUse

__all__ = ["Estimate", "OperatorCost", "UnitUse", "estimate"]
