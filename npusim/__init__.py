"""npusim: what would this network cost on that NPU, and what if?

The public interface. Each name is imported from its package on first use, so that `import npusim` is fast.
`__init__.pyi` lists them.
"""

from npusim.lazy import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, _public = lazy_names(__name__)

__all__ = ["__version__", *_public]
