"""The shortlists of a whole network: for every operator under every residency plan, the ways that can be
the fastest.

They depend on what fits where and on cycles, not on clocks and bandwidths: a sweep makes them once for all
the design points that share the former, as a printer sets the type once for many copies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npusim.cost.candidates import CANDIDATE_DTYPE, sort_candidates
from npusim.cost.jit import kernel
from npusim.cost.products import search_product
from npusim.cost.streams import search_stream
from npusim.cost.tables import Form, Unit
from npusim.cost.triangle import search_triangle

__all__ = ["search_rows"]

_VIEW, _DPU, _DSP, _CPU, _GPU = (int(u) for u in (Unit.VIEW, Unit.DPU, Unit.DSP, Unit.CPU, Unit.GPU))
_MATMUL, _CONVOLUTION = int(Form.MATMUL), int(Form.CONVOLUTION)
_FIRST_PLACES = 512


@kernel
def _search_operator(arch: Any, op: Any, extremes: Any, found: Any, start: int) -> int:
    if op.unit == _DPU and (op.form == _MATMUL or op.form == _CONVOLUTION):
        if op.triangle:
            return search_triangle(arch, op, extremes, found, start)
        return search_product(arch, op, extremes, found, start)
    if start + 1 >= found.shape[0]:
        return -1
    return search_stream(arch, op, found, start, op.unit == _DPU, op.unit == _DSP)


@kernel
def search_rows(arch: Any, rows: Any, extremes: Any, bounds: Any) -> Any:
    """Make the shortlist of every row of an operator table.

    Parameters
    ----------
    arch : record of ARCH_DTYPE
    rows : array of OP_DTYPE, shape (rows,)
        The operators under all plans, those that are alike under several once.
    extremes : array of float64, shape (RATES, 2)
        See `npusim.cost.products.search_product`.
    bounds : array of int64, shape (rows + 1,)
        Written: the shortlist of row `r` is `found[bounds[r] : bounds[r + 1]]`. Views and operators on a host
        have none.

    Returns
    -------
    found : array of CANDIDATE_DTYPE
    """
    found = np.empty(_FIRST_PLACES, CANDIDATE_DTYPE)
    # Of a type of its own: a literal would have everything compiled for it as well.
    place: Any = np.int64(0)
    for r in range(rows.shape[0]):
        op = rows[r]
        bounds[r] = place
        if op.unit == _VIEW or op.unit == _CPU or op.unit == _GPU:
            continue
        stop = _search_operator(arch, op, extremes, found, place)
        while stop < 0:  # the table was too short
            longer = np.empty(2 * found.shape[0], CANDIDATE_DTYPE)
            for i in range(place):
                longer[i] = found[i]
            found = longer
            stop = _search_operator(arch, op, extremes, found, place)
        sort_candidates(found, place, stop)
        place = stop
    bounds[rows.shape[0]] = place
    return found
