"""DPU workloads measured on silicon: dense ones of every kind, and sparse convolutions."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from npusim.config.tables import Choice, Number, Pair, Text
from npusim.cost import DpuOperation
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures, Floats, key_of
from npusim.validation.unit_models import Machine, dpu_cycles, dpu_rows


def cycles_by(
    table: Callable[[Figures], NDArray[np.void]],
) -> Callable[[Figures, Machine], Floats]:
    """Return the prediction of figures by the DPU's equations; `table` makes their rows of DPU_ROW."""
    return lambda figures, machine: dpu_cycles(machine.arch[0], table(figures))


MODES = {"16x16": 0, "8x16": 1, "4x16": 2}
"""Number of each MPE mode, as in `npu.dpu.modes`."""
FORMS = {
    "convolution": DpuOperation.CONVOLUTION,
    "dw_convolution": DpuOperation.DEPTHWISE,
    "avepool": DpuOperation.AVGPOOL,
    "maxpool": DpuOperation.MAXPOOL,
    "eltwise": DpuOperation.ELTWISE,
}
"""What each operator of the figures is to the MAC grid."""

_WORDS = {"dw_convolution": "depthwise", "avepool": "average pooling", "eltwise": "elementwise"}
_KERNEL, _STRIDE, _PADS = Pair("kernel", 2, "x"), Pair("stride", 2, "x"), Pair("pad_tblr", 4, "-", 0)
_BYTES = {"uint8": 1.0, "int8": 1.0, "float16": 2.0, "bfloat16": 2.0}


def workload_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `silicon_dpu` as DPU_ROW."""
    kernel = np.array([_KERNEL.numbers(text) for text in figures["kernel"]]).reshape(-1, 2)
    pads = np.array([_PADS.numbers(text) for text in figures["pad_tblr"]]).reshape(-1, 4)
    return dpu_rows(
        len(figures),
        dpu_operation=[int(FORMS[op]) for op in figures["op"]],
        out_w=figures["out_w"],
        out_h=figures["out_h"],
        out_c=figures["out_c"],
        in_c=figures["in_c"],
        kernel_w=kernel[:, 0],
        kernel_h=kernel[:, 1],
        stride=[_STRIDE.numbers(text)[0] for text in figures["stride"]],
        pad_top=pads[:, 0],
        pad_bottom=pads[:, 1],
        item_bytes=[_BYTES[name] for name in figures["in_dtype"]],
        mode=[MODES[name] for name in figures["mpe_mode"]],
        write_tiles=_write_tiles(figures),
        act_density=1.0 - figures["act_sparsity"],
        weight_density=_weight_density(figures),
    )


def _write_tiles(figures: Figures) -> Floats:
    """Tiles that really receive the output.

    On npu3720, rows of a clustered layer that differ only in `output_write_tiles` have identical cycles: no
    broadcast ran there, whatever the column says.
    """
    alone = (figures["npu"] == "npu3720") & (figures["isi"] == "clustering")
    return np.where(alone, 1.0, figures["output_write_tiles"])


def _weight_density(figures: Figures) -> Floats:
    """Share of non-zero weights that the grid made use of.

    `weight_sparsity` shows a saving only in npu3720 rows of mode 8x16 with one write tile; elsewhere rows
    with and without it have the same cycles.
    """
    skips = (figures["npu"] == "npu3720") & (figures["mpe_mode"] == "8x16")
    skips &= figures["output_write_tiles"] == 1
    return np.where(skips, 1.0 - figures["weight_sparsity"], 1.0)


def _prepare(figures: Figures) -> Figures:
    words = np.array([_WORDS.get(op, op) for op in figures["op"]], object)
    return figures.with_columns(operator=words)


WORKLOADS = TablePredictor(
    columns=(
        Choice("op", tuple(FORMS)),
        *(Number(name, whole=True) for name in ("in_w", "in_h", "in_c", "out_w", "out_h", "out_c")),
        Choice("in_dtype", tuple(_BYTES)),
        Choice("out_dtype", tuple(_BYTES)),
        _KERNEL,
        _STRIDE,
        _PADS,
        Choice("mpe_mode", tuple(MODES)),
        Choice("isi", ("clustering", "splitoverk", "splitoverh")),
        Number("output_write_tiles", whole=True),
        Number("act_sparsity", above=False, most=1.0),
        Number("weight_sparsity", above=False, most=1.0),
        Number("measured_dpu_cycles"),
    ),
    measured=lambda figures: figures["measured_dpu_cycles"],
    predict=cycles_by(workload_table),
    unit="cycles",
    dimensions=(
        "operator", "out_w", "out_h", "out_c", "in_c", "kernel", "stride", "pad_tblr", "mpe_mode", "in_dtype",
        "isi", "output_write_tiles", "weight_sparsity",
    ),
    duplicates=key_of("npu", "op", "kernel", "stride", "out_w", "in_c", "out_c", "in_dtype"),
    prepare=_prepare,
)  # fmt: skip
"""Measured workloads on one tile."""

_SPARSE_SHAPE = re.compile(r"CONV(\d+)x(\d+)s(\d+) UINT8 in\d+x\d+x(\d+) out(\d+)x(\d+)x(\d+) \((\w+)\)")


def _prepare_sparse(figures: Figures) -> Figures:
    """Resolve `same` to the workload above it, and say which side is sparse."""
    workloads: list[str] = []
    for row, text in enumerate(figures["workload"]):
        workloads.append(workloads[-1] if text == "same" and workloads else text)
        if not _SPARSE_SHAPE.fullmatch(workloads[-1]):
            allowed = "CONV3x3s2 UINT8 in28x9x256 out14x4x256 (8x16), or `same` below such a row"
            raise figures.refusal(row, "workload", allowed)
    act, weight = figures["act_sparsity"] > 0, figures["weight_sparsity"] > 0
    side = np.select([act & weight, act, weight], ["both", "activations", "weights"], "dense")
    return figures.with_columns(workload=np.array(workloads, object), side=side.astype(object))


def sparse_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `silicon_sparsity` as DPU_ROW."""
    shapes = [_SPARSE_SHAPE.fullmatch(text) for text in figures["workload"]]
    parts = [shape.groups() for shape in shapes if shape is not None]
    sizes = np.array([[float(number) for number in part[:7]] for part in parts]).reshape(-1, 7)
    padded = (sizes[:, 1] > 1).astype(float)
    return dpu_rows(
        len(figures),
        dpu_operation=int(DpuOperation.CONVOLUTION),
        kernel_w=sizes[:, 0],
        kernel_h=sizes[:, 1],
        stride=sizes[:, 2],
        in_c=sizes[:, 3],
        out_w=sizes[:, 4],
        out_h=sizes[:, 5],
        out_c=sizes[:, 6],
        pad_bottom=padded,
        mode=[MODES[part[7]] for part in parts],
        write_tiles=[2.0 if "owt2" in split else 1.0 for split in figures["split"]],
        act_density=1.0 - figures["act_sparsity"],
        weight_density=1.0 - figures["weight_sparsity"],
    )


SPARSE = TablePredictor(
    columns=(
        Text("workload"),
        Text("split"),
        Number("act_sparsity", above=False, most=1.0),
        Number("weight_sparsity", above=False, most=1.0),
        Number("measured_dpu_cycles"),
    ),
    measured=lambda figures: figures["measured_dpu_cycles"],
    predict=cycles_by(sparse_table),
    unit="cycles",
    dimensions=("workload", "split", "act_sparsity", "weight_sparsity"),
    duplicates=key_of("npu", "workload"),
    prepare=_prepare_sparse,
)
"""Measured sparse convolutions on one tile."""
