"""A message before the first kernel is compiled; imported without numpy."""

from __future__ import annotations

from collections.abc import Callable

COMPILING_S = "90 s for an estimate, 2 minutes for a sweep,"
"""Processor time of compiling, on a core of 2.6 GHz."""
listeners: list[Callable[[], None]] = []
"""Functions that are called before the first kernel is compiled."""


def tell_once(listener: Callable[[], None]) -> None:
    """Call a function before the first kernel is compiled in this process."""
    listeners[:] = [listener]
