"""Typed, frozen data sheets of SoCs, read from YAML, without any cost model."""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
