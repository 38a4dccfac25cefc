"""Studies: questions that take many estimates, such as comparisons, intervals, placements and streams."""

from npusim.studies.comparison import Variant, WhatIf
from npusim.studies.whatif import whatif

__all__ = ["Variant", "WhatIf", "whatif"]
