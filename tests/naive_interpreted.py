"""A compiled equation as the plain Python it was written in, so that it can be followed with a debugger."""

import types
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher


@cache
def interpreted(function: Any) -> Any:
    """Return a compiled function, and every compiled function it calls, as plain Python."""
    if not isinstance(function, Dispatcher):
        return function
    python = function.py_func
    names = dict(python.__globals__)
    plain = types.FunctionType(python.__code__, names, python.__name__, python.__defaults__)
    for name in python.__code__.co_names:
        if isinstance(names.get(name), Dispatcher):
            names[name] = interpreted(names[name])
    return plain


def record(row: Any) -> Any:
    """Return a row of a numpy table as an object with plain numbers as attributes."""
    fields = {}
    for name in row.dtype.names:
        value = row[name]
        if value.dtype.names:
            fields[name] = record(value)
        else:
            fields[name] = value.tolist() if isinstance(value, np.ndarray) else value.item()
    return SimpleNamespace(**fields)
