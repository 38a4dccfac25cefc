"""A row of a table as an object with plain numbers, for the slow twins."""

from types import SimpleNamespace
from typing import Any

import numpy as np


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
