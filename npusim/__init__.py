"""npusim: what would this network cost on that NPU, and what if?

The public interface. Each name is imported from its package on first use, so that `import npusim` is fast.
`__init__.pyi` lists the names of the core; packages announce further calls as `npusim.calls`.
"""

from npusim.lazy import lazy_names

__version__ = "0.1.0"

_get, _names, _public = lazy_names(__name__)

__all__ = ["__version__", *_public]


def __getattr__(name: str) -> object:
    if name in _public or name.startswith("__"):
        return _get(name)
    from npusim.plugins import announced, load

    calls = announced("npusim.calls")
    return load(calls[name], "call") if name in calls else _get(name)


def __dir__() -> list[str]:
    from npusim.plugins import announced

    return sorted({*_names(), *announced("npusim.calls")})
