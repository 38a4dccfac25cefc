"""Engines: a graph and a SoC in, an `Estimate` out."""

from npusim.engines.analytical import estimate
from npusim.engines.estimate import Estimate, LanguageFigures, OperatorCost, UnitUse

__all__ = ["Estimate", "LanguageFigures", "OperatorCost", "UnitUse", "estimate"]
