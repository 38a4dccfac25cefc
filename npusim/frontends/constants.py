"""What the values of a constant tell: how many are zero, how the non-zeros cluster, whether the matrix is
symmetric.

A miller weighs a sack before paying for it, and takes a sample where the sack is too large to weigh.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["measure"]

_COUNTED = 1 << 25
"""Elements that are counted one by one (some 20 ms); of more, evenly spaced ones are counted."""
_SPARSE = 0.25
"""Density below which a matrix's pattern is looked at; a denser one has no empty block worth knowing."""
_GRANULE = 16
"""Edge of the blocks of `Tensor.block_density`."""


def measure(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the fields of `Tensor` that follow from the values: density, block_density, symmetric.

    Parameters
    ----------
    values : ndarray
        The constant, of any shape.

    Returns
    -------
    dict
        Fields for `Tensor`; block density and symmetry of sparse matrices only.
    """
    if values.size == 0:
        return {}
    flat = values.reshape(-1)
    if flat.size > _COUNTED:
        flat = flat[:: -(-flat.size // _COUNTED)]
        return {"density": float(np.count_nonzero(flat)) / flat.size}
    density = float(np.count_nonzero(flat)) / flat.size
    fields: dict[str, Any] = {"density": density}
    if values.ndim == 2 and 0.0 < density < _SPARSE and min(values.shape) > _GRANULE:
        rows, columns = np.nonzero(values)
        across = -(-values.shape[1] // _GRANULE)
        touched = np.unique(rows // _GRANULE * across + columns // _GRANULE)
        fields["block_density"] = len(touched) / (-(-values.shape[0] // _GRANULE) * across)
        if values.shape[0] == values.shape[1]:
            fields["symmetric"] = bool(np.array_equal(values[rows, columns], values[columns, rows]))
    return fields
