"""Named workloads of every kind, and the builders that turn their files into operator graphs."""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
