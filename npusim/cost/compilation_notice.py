"""Tells a listener that kernels have to be compiled before a first answer."""

from __future__ import annotations

from collections.abc import Callable

COMPILING_S = "40 s for an estimate, 60 s for a sweep,"
"""What compiling takes, measured as processor time on a core of 2.6 GHz; a busy machine takes longer."""

_listeners: list[Callable[[], None]] = []


def tell_once(listener: Callable[[], None]) -> None:
    """Let a function be called when a kernel has to be compiled: before the first one, and only then."""
    _listeners[:] = [listener]


def announce() -> None:
    """Tell the listener, if there is one that does not know yet."""
    while _listeners:
        _listeners.pop()()
