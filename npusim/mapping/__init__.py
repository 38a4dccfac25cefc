"""Decisions that need costs: what runs where, what is fused, what stays in SRAM."""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
