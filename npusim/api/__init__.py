"""The calls of `import npusim`."""

from npusim.api.advising import advise
from npusim.api.estimating import compare, estimate, place, stream, whatif
from npusim.api.measuring import accuracy, calibrate, measure

__all__ = ["accuracy", "advise", "calibrate", "compare", "estimate", "measure", "place", "stream", "whatif"]
