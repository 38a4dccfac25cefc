"""npusim: what would this network cost on that NPU, and what if?

The public interface. Each name is imported from its package on first use, so that `import npusim` is fast.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME_OF = {
    # Descriptions: the machine and the network
    "load_soc": "npusim.arch",
    "load_workload": "npusim.workloads",
    "from_pyg": "npusim.frontends.pyg",
    # Rewriting the network
    "apply": "npusim.techniques",
    # What it costs
    "estimate": "npusim.api",
    "whatif": "npusim.studies",
    "Estimate": "npusim.engines",
    # Many machines
    "sweep": "npusim.explore",
}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> object:
    """Import a name of the front door on first use and keep it."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'npusim' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the front door's names, also those that nobody has asked for yet."""
    return sorted({*globals(), *_HOME_OF})
