"""Keys of near-duplicate rows: rows so alike that one of them gives the other away."""

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
