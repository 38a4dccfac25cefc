"""Studies: questions that take many estimates, such as comparisons, intervals, placements and streams."""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
