"""Figures of Intel's cost model of one tile: products, sparse products, pooling and elementwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npusim.config.tables import Choice, Number, Pair
from npusim.cost import DpuOperation
from npusim.validation.dpu_figures import FORMS, cycles_by
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures, Floats, key_of
from npusim.validation.unit_models import Machine, dpu_cycles, dpu_rows

_BYTES = {"int8": 1.0, "fp16": 2.0}
_DTYPE, _KERNEL = Choice("dtype", tuple(_BYTES)), Pair("kernel", 2, "x")
_SIDES = {"act": "activations", "weight": "weights", "dual": "both"}


def product_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `costmodel_gemm` or `costmodel_sparse_gemm` as DPU_ROW."""
    zeros = figures.columns.get("act_sparsity"), figures.columns.get("weight_sparsity")
    return dpu_rows(
        len(figures),
        dpu_operation=int(DpuOperation.MATMUL),
        out_w=figures["m"],
        in_c=figures["k"],
        out_c=figures["n"],
        item_bytes=[_BYTES[name] for name in figures["dtype"]],
        act_density=1.0 if zeros[0] is None else 1.0 - zeros[0],
        weight_density=1.0 if zeros[1] is None else 1.0 - zeros[1],
    )


def channelwise_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `costmodel_eltwise_pool` as DPU_ROW: 3x3 kernels are padded by one pixel."""
    kernel = np.array([_KERNEL.numbers(text) for text in figures["kernel"]]).reshape(-1, 2)
    padding = (kernel[:, 1] == 3).astype(float)
    return dpu_rows(
        len(figures),
        dpu_operation=[int(FORMS[op.removesuffix("_mul")]) for op in figures["op"]],
        out_w=np.ceil(figures["w"] / figures["stride"]),
        out_h=np.ceil(figures["h"] / figures["stride"]),
        out_c=figures["c"],
        in_c=figures["c"],
        kernel_w=kernel[:, 0],
        kernel_h=kernel[:, 1],
        stride=figures["stride"],
        pad_top=padding,
        pad_bottom=padding,
        item_bytes=[_BYTES[name] for name in figures["dtype"]],
    )


def _speedup(figures: Figures, machine: Machine) -> Floats:
    """Cycles of the dense product over those with zeros."""
    table = product_table(figures)
    sparse = dpu_cycles(machine.arch[0], table)
    table["act_density"] = table["weight_density"] = 1.0
    ratio: Floats = dpu_cycles(machine.arch[0], table) / sparse
    return ratio


_SIZES = tuple(Number(name, whole=True) for name in ("m", "k", "n"))

PRODUCTS = TablePredictor(
    columns=(_DTYPE, *_SIZES, Number("dpu_cycles")),
    measured=lambda figures: figures["dpu_cycles"],
    predict=cycles_by(product_table),
    unit="cycles",
    dimensions=("m", "k", "n", "dtype"),
    duplicates=key_of("npu", "dtype", "m", "k", "n"),
)
"""Dense products on one tile."""

SPARSE_PRODUCTS = TablePredictor(
    columns=(
        _DTYPE,
        *_SIZES,
        Choice("kind", tuple(_SIDES)),
        Number("act_sparsity", above=False, most=1.0),
        Number("weight_sparsity", above=False, most=1.0),
        Number("dpu_cycles"),
        Number("dense_dpu_cycles"),
    ),
    measured=lambda figures: figures["dense_dpu_cycles"] / figures["dpu_cycles"],
    predict=_speedup,
    unit="",
    dimensions=("m", "k", "n", "dtype", "kind", "act_sparsity", "weight_sparsity"),
    duplicates=key_of("npu", "dtype", "m", "k", "n"),
    prepare=lambda figures: figures.with_columns(
        side=np.array([_SIDES[kind] for kind in figures["kind"]], object)
    ),
)
"""Speed-up of products by zeros."""

CHANNELWISE = TablePredictor(
    columns=(
        Choice("op", (*FORMS, "eltwise_mul")),
        _DTYPE,
        *(Number(name, whole=True) for name in ("w", "h", "c")),
        _KERNEL,
        Number("stride", whole=True),
        Number("dpu_cycles"),
    ),
    measured=lambda figures: figures["dpu_cycles"],
    predict=cycles_by(channelwise_table),
    unit="cycles",
    dimensions=("op", "w", "h", "c", "dtype", "kernel", "stride"),
    duplicates=key_of("npu", "op", "dtype", "w", "h", "c", "kernel"),
)
"""Pooling, depthwise convolution and elementwise operators on one tile."""
