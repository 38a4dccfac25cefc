"""Typed YAML: a file is checked against a pydantic model, or refused with file, line and key.

Any pydantic model can be loaded; npusim's own are `Section`s.
"""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
