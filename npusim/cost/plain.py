"""Decides when a kernel runs as plain Python: while that takes less than to compile or load it.

Equations stand once, as functions that numba compiles and that Python can run as they are. To compile all of
an estimate takes `COMPILING_MS`, to run it as Python a fraction of that, so a first estimate compiles
nothing. What was run as Python is added up, over all processes of a user, and when it comes to what compiling
would have taken, kernels are compiled: at no time was more than twice the least time spent, whatever follows.
Where compiled code lies on disk the same holds for loading it, and for starting the compiler, which loads it.
What a call will take as Python is told beforehand by its arguments, not by a clock, so that the same calls
are run in the same way.

Both ways give the same numbers to the last bit (`tests/test_plain_kernels.py`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from glob import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

VARIABLE = "NPUSIM_KERNELS"
"""Environment variable: `compiled` compiles at the first call, `plain` never compiles."""
COMPILING_MS, _STARTING_MS, _LOADING_MS = 38_000.0, 250.0, 40.0
"""What it takes to compile all of an estimate, to start the compiler and load it, and to load one more."""
_EQUATION_MS, _RECORDS = 0.1, 8
_STEP_MS = 10.0
"""What a byte of the file of past calls stands for."""

Duration = Callable[..., float]
"""Tells from a call's arguments how many ms it takes as plain Python, roughly."""


class _State(threading.local):
    is_plain = False


_state = _State()


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Run all kernels that this thread calls as plain Python, where a debugger can follow them.

    A division by 0 is infinite, as in compiled code.
    """
    before, _state.is_plain = _state.is_plain, True
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _state.is_plain = before


def is_plain() -> bool:
    """Whether kernels that this thread calls run as plain Python."""
    return _state.is_plain


def is_compiling_allowed() -> bool:
    """Whether the user lets anything be compiled."""
    return (os.environ.get(VARIABLE) or "auto") != "plain"


def run_in_lists(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a kernel with lists for arrays and objects for records; copy back what it writes into them."""
    copies: list[tuple[Any, list[Any]]] = []
    result = function(*(_in_lists(value, copies) for value in arguments))
    for array, values in copies:
        if array.dtype.names is not None:
            values = [tuple(vars(row).values()) for row in values]
        if array.size:
            array[...] = values
    return result


def _in_lists(value: Any, copies: list[tuple[Any, list[Any]]]) -> Any:
    """Return an array, or a named tuple of arrays, as lists, and note the copies."""
    if isinstance(value, tuple):
        return type(value)(*(_in_lists(one, copies) for one in value))
    if not isinstance(value, np.ndarray):
        return value
    values, names = value.tolist(), value.dtype.names
    if names is not None:
        values = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in values]
    copies.append((value, values))
    return values


class Ledger:
    """What was run as plain Python so far where nothing is compiled, by all processes together.

    Parameters
    ----------
    path : Path, optional
        File whose length keeps the sum; None: it is forgotten with the process.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ms = 0.0
        """Of this process."""

    def affords(self, ms: float) -> bool:
        """Whether a call would leave the sum below what compiling takes; it is added to it then."""
        spent = self._ms
        if self._path is not None:
            with suppress(OSError):
                spent = max(spent, self._path.stat().st_size * _STEP_MS)
        if spent + ms > COMPILING_MS:
            return False
        steps = int((self._ms + ms) // _STEP_MS - self._ms // _STEP_MS)
        self._ms += ms
        if self._path is not None and steps:
            with suppress(OSError), self._path.open("ab") as file:
                file.write(b"." * steps)
        return True


class Choice:
    """How the calls of one kernel are run.

    Parameters
    ----------
    duration_ms : callable, optional
        See `Duration`; None: of numbers and a few records it is an equation, of arrays it is unknown.
    folder : str, optional
        Where compiled code is kept, in files of this kernel whose names begin with `name`.
    """

    _small_ms = 0.0
    """What kernels have run as plain Python in this process that could have been loaded."""

    def __init__(self, duration_ms: Duration | None, ledger: Ledger, folder: str | None, name: str) -> None:
        self._duration_ms, self._ledger, self._folder, self._name = duration_ms, ledger, folder, name
        self._spent_ms = 0.0

    @cached_property
    def _is_on_disk(self) -> bool:
        folder = None if self._folder is None else Path(self._folder)
        return folder is not None and any(folder.glob(f"*/{escape(self._name)}*.nbi"))

    def is_plain(self, arguments: tuple[Any, ...]) -> bool:
        """Whether a call is to be run as plain Python."""
        wanted = os.environ.get(VARIABLE) or "auto"
        if wanted != "auto":
            return wanted == "plain"
        if self._duration_ms is not None:
            ms = self._duration_ms(*arguments)
        elif any(map(_holds_array, arguments)):
            return False
        else:
            ms = _EQUATION_MS
        if not self._is_on_disk:
            return self._ledger.affords(ms)
        self._spent_ms += ms
        if "numba" in sys.modules:
            return self._spent_ms <= _LOADING_MS
        Choice._small_ms += ms
        return Choice._small_ms <= _STARTING_MS


def _holds_array(value: Any) -> bool:
    """Whether a value is more than numbers and some records."""
    if isinstance(value, tuple):
        return any(map(_holds_array, value))
    return isinstance(value, np.ndarray) and (value.dtype.names is None or value.size > _RECORDS)
