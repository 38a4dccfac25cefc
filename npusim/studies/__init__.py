"""Studies: questions that take many estimates, such as comparisons, intervals, placements and streams."""

from npusim.studies.comparison import Variant, WhatIf
from npusim.studies.stream.updates import Update
from npusim.studies.whatif import whatif

__all__ = ["Update", "Variant", "WhatIf", "whatif"]
