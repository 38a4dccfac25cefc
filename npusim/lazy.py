"""Public names of a package, imported from its modules on first use, so that starting is quick.

Type checkers read the package's `__init__.pyi`; a test holds both in step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(
    package: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Parameters
    ----------
    package : str
        Its name.
    names : mapping
        Public names by the module they live in.
    """
    home_of = {name: module for module, inside in names.items() for name in inside}

    def get(name: str) -> object:
        """Import a public name on first use and keep it."""
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        vars(sys.modules[package])[name] = value
        return value

    def listed() -> list[str]:
        """List the public names, also those that nobody has asked for yet."""
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, listed, list(home_of)
