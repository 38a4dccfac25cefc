"""Cost model: lowering to tables, equations of each unit, tiling search, compiled evaluation."""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
