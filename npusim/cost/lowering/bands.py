"""Bands of rows: how a segment of layers on images runs depth-first.

A *segment* is a chain of operators of the MAC grid on images; each alone reads the image of the one before.
It runs band by band: each operator makes some rows, its reader uses them at once, and the image between them
never exists as a whole. The rows that the windows of two bands share stay in SRAM (a line buffer), so nothing
is computed or fetched twice: mode *fully cached* of DeFiNES (Mei et al., HPCA 2023). The bands of an operator
therefore end some rows later than those of its reader.

Tiles divide each band by columns (*split over width*; OpenVINO's NPU compiler has it as SplitOverWidth). So
they divide the line buffers too, and hold only the columns at their borders twice. Weights of a segment stay
in every tile until it ends. An operator in bands is costed as a batch of images that lie on their side, each
a band: partial register tiles, starts of blocks and idle tiles follow from the equations of any operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from npusim.cost.lowering.tables import DpuOperation
from npusim.graph import Graph
from npusim.ops import Operator

_SIDES = ("out", "in", "kernel", "stride")


class BandBytes(NamedTuple):
    """SRAM that a tensor takes while its rows pass from operator to operator."""

    spread: float
    """Divided among the tiles."""
    copied: float
    """In each tile."""


def rows_of_band(rows: float, bands: float) -> float:
    """Return the rows of the largest band; the last one may be smaller."""
    return float(np.ceil(rows / bands))


def shared_lines(graph: Graph, reader: Operator) -> tuple[float, float]:
    """Return the input rows, and columns, that two neighbouring windows of an operator share."""
    work, dilations = graph.work(reader), reader.attrs.get("dilations", (1, 1))
    windows = ((work.kernel_h, work.stride_h), (work.kernel_w, work.stride_w))
    rows, columns = (
        max(0.0, (kernel - 1) * dilation + 1.0 - stride)
        for (kernel, stride), dilation in zip(windows, dilations, strict=True)
    )
    return rows, columns


def band_bytes(graph: Graph, name: str, bands: float) -> BandBytes:
    """Return the SRAM of the largest band of an image, with the rows that its reader's windows share."""
    tensor, (reader, *_) = graph.tensors[name], graph.readers(name)
    _, _, rows, columns = tensor.shape
    made_rows = rows_of_band(rows, bands)
    read_rows = rows_of_band(graph.tensors[reader.outputs[0]].shape[2], bands) * graph.work(reader).stride_h
    shared_rows, shared_columns = shared_lines(graph, reader)
    size = tensor.bytes * min(rows, max(made_rows, read_rows) + shared_rows) / rows
    return BandBytes(spread=size, copied=size * min(columns, shared_columns) / columns)


def in_bands(table: Any, bands: Mapping[int, int]) -> Any:
    """Return an operator table in which some operators run in bands.

    Parameters
    ----------
    table : array of OP_DTYPE, shape (groups,)
        Without residency.
    bands : mapping of int to int
        Number of bands of an operator, by its place in the table.

    Returns
    -------
    array of OP_DTYPE, shape (groups,)
        A copy.
    """
    table = table.copy()
    for i, count in bands.items():
        row = table[i]
        is_eltwise = row["dpu_operation"] == DpuOperation.ELTWISE
        height = "out_w" if is_eltwise else "out_h"  # elementwise: image rows of all channels
        band_height = rows_of_band(row[height], count)
        row["bands"] = row[height] / band_height
        row["batch"], row[height] = np.ceil(row["bands"]), band_height
        if is_eltwise:
            continue
        row["in_h"] = min(row["in_h"], (band_height - 1.0) * row["stride_h"] + row["kernel_h"])
        for side in _SIDES:  # a band lies on its side: tiles divide its columns
            row[f"{side}_w"], row[f"{side}_h"] = row[f"{side}_h"], row[f"{side}_w"]
    return table
