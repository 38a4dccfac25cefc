"""Public names of a package, imported from its modules on first use, so that starting is quick.

They are listed once, in the package's `__init__.pyi`, which type checkers read too.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

__all__ = ["lazy_names"]


def lazy_names(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, by its name."""
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi")
    text = stub.read_text(encoding="utf-8")
    imports = re.findall(r"^from (npusim\S*) import (\w+) as \2$", text, re.MULTILINE)
    home_of: dict[str, str] = {name: module for module, name in imports}

    def get(name: str) -> object:
        """Import a public name on first use and keep it."""
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        vars(sys.modules[package])[name] = value
        return value

    def listed() -> list[str]:
        """List the public names, also those that are not imported yet."""
        return sorted({*vars(sys.modules[package]).get("__all__", ()), *home_of})

    return get, listed, list(home_of)
