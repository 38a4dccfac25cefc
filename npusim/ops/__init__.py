"""Operators: types, tensors, number formats, amount of work. No cost, no machine."""

from npusim.lazy import lazy_names
from npusim.ops import catalogue as catalogue  # registers npusim's own types

__getattr__, __dir__, __all__ = lazy_names(__name__)
