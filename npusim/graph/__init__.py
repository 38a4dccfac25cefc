"""The operator graph (an immutable DAG of operators and tensors) and its editor."""

from npusim.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
