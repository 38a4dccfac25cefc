"""npusim: what would this network cost on that NPU, and what if?

The public interface. Each name is imported from its package on first use, so that `import npusim` is fast.
Type checkers read `__init__.pyi`.
"""

from npusim.lazy import lazy_names

__version__ = "0.1.0"

_NAMES = {
    # A machine
    "npusim.arch": ("Soc", "load_soc", "soc_names"),
    # A network: by name, from a file, from PyTorch, or built operator by operator
    "npusim.workloads": ("load_workload", "workload_names"),
    "npusim.frontends.pyg": ("from_pyg",),
    "npusim.graph": ("Editor", "Graph", "GraphStructure"),
    "npusim.ops": ("DType", "Operator", "Role", "Storage", "Tensor", "TensorKind"),
    # Rewriting it
    "npusim.techniques": ("apply", "technique_names"),
    # What is asked, and what it costs
    "npusim.scenario": ("Scenario",),
    "npusim.api": ("estimate", "place", "stream", "whatif"),
    "npusim.engines": ("Estimate",),
    "npusim.studies": ("Update", "WhatIf"),
    # Many machines
    "npusim.explore.spaces": ("Space", "load_space"),
    "npusim.explore.sweep": ("sweep",),
    "npusim.explore.fronts": ("pareto",),
    "npusim.explore.query": ("query",),
    "npusim.explore.search": ("search",),
    # Errors
    "npusim.errors": ("NpusimError",),
}
"""Public names by the package they live in."""

__getattr__, __dir__, _public = lazy_names("npusim", _NAMES)

__all__ = ["__version__", *_public]
