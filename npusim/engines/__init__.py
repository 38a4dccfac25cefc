"""Engines: a graph and a SoC in, an `Estimate` out."""

from npusim.engines.analytical import estimate, run_of
from npusim.engines.comparison import Variant, WhatIf
from npusim.engines.estimate import Estimate, OperatorCost, UnitUse
from npusim.engines.whatif import whatif

__all__ = ["Estimate", "OperatorCost", "UnitUse", "Variant", "WhatIf", "estimate", "run_of", "whatif"]
