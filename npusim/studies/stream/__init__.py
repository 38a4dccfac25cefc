"""A graph that changes: a stream of updates, and ways to keep up with it."""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
