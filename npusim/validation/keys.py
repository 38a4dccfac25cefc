"""Keys of near-twins: rows so alike that one of them gives the other away.

Like siblings in a school class: to see what the others have learnt, either both sit the test or neither.
"""

from __future__ import annotations

from collections.abc import Callable

from npusim.validation.figures import Figures

__all__ = ["same"]


def same(*columns: str) -> Callable[[Figures], list[str]]:
    """Return the function that keys rows by their values in some columns: equal values, equal key."""

    def keys(figures: Figures) -> list[str]:
        values = zip(*(figures[name] for name in columns), strict=True)
        return ["/".join(map(str, row)) for row in values]

    return keys
