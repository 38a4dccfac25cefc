"""Figures of single units, measured or of Intel's cost model: transfers, DPU workloads, DSP kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from npusim.cost import CMX2CMX, CMX2DDR, DDR2CMX, DDR2DDR, DpuOperation
from npusim.validation.figures import Figures, Floats, TablePredictor
from npusim.validation.unit_models import Machine, call_seconds, dpu_cycles, dpu_rows, transfer_seconds

_DIRECTIONS = {"ddr2cmx": DDR2CMX, "cmx2ddr": CMX2DDR, "cmx2cmx": CMX2CMX, "ddr2ddr": DDR2DDR}
_MODES = {"16x16": 0, "8x16": 1, "4x16": 2}  # number of each MPE mode, as in `npu.dpu.modes`
# Operation of the MAC grid for each operator of the figures.
_OPERATIONS = {
    "convolution": DpuOperation.CONVOLUTION,
    "dw_convolution": DpuOperation.DEPTHWISE,
    "avepool": DpuOperation.AVGPOOL,
    "maxpool": DpuOperation.MAXPOOL,
    "eltwise": DpuOperation.ELTWISE,
    "eltwise_mul": DpuOperation.ELTWISE,
}
_WORDS = {"dw_convolution": "depthwise", "avepool": "average pooling", "eltwise": "elementwise"}
_ITEM_BYTES = {"uint8": 1.0, "int8": 1.0, "fp16": 2.0, "float16": 2.0, "bfloat16": 2.0}
_SIDES = {"act": "activations", "weight": "weights", "dual": "both"}


def _mapped(figures: Figures, column: str, values: Mapping[str, str]) -> NDArray[np.object_]:
    return np.array([values.get(word, word) for word in figures[column]], object)


def _transfer_s(figures: Figures, machine: Machine) -> Floats:
    """Return the seconds of transfers; each engine moves so many bytes."""
    one = np.ones(len(figures))
    engines = figures.columns.get("engines", one)
    row_bytes = figures.columns.get("row_bytes", 0.0 * one)
    payload = row_bytes * figures["rows"] if "rows" in figures.columns else figures["bytes"] * engines
    direction = np.array([_DIRECTIONS[name] for name in figures["direction"]], np.int64)
    seconds: Floats = transfer_seconds(machine.arch[0], direction, payload, row_bytes, engines)
    return seconds


TRANSFERS = TablePredictor(_transfer_s)
"""Transfers: of `bytes` by one engine or several, or of many rows. The stride is not part of the equation."""


def _on_grid(figures: Figures, table: NDArray[np.void]) -> Figures:
    """Return figures with their rows of DPU_ROW, which `_cycles` predicts."""
    return figures.with_columns(work=table)


def _cycles(figures: Figures, machine: Machine) -> Floats:
    """Return the cycles by the DPU's equations."""
    cycles: Floats = dpu_cycles(machine.arch[0], figures["work"])
    return cycles


def workload_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `silicon_dpu` as DPU_ROW."""
    kernel, pads = figures.sizes("kernel"), figures.sizes("pad_tblr")
    return dpu_rows(
        len(figures),
        dpu_operation=[int(_OPERATIONS[op]) for op in figures["op"]],
        out_w=figures["out_w"],
        out_h=figures["out_h"],
        out_c=figures["out_c"],
        in_c=figures["in_c"],
        kernel_w=kernel[:, 0],
        kernel_h=kernel[:, 1],
        stride=figures.sizes("stride")[:, 0],
        pad_top=pads[:, 0],
        pad_bottom=pads[:, 1],
        item_bytes=[_ITEM_BYTES[name] for name in figures["in_dtype"]],
        mode=[_MODES[name] for name in figures["mpe_mode"]],
        write_tiles=_write_tiles(figures),
        act_density=1.0 - figures["act_sparsity"],
        weight_density=_weight_density(figures),
    )


def _write_tiles(figures: Figures) -> Floats:
    """Return the number of tiles that receive the output.

    On npu3720, rows of a clustered layer that differ only in `output_write_tiles` have identical cycles: no
    broadcast ran there, whatever the column says.
    """
    clustered = (figures["npu"] == "npu3720") & (figures["isi"] == "clustering")
    return np.where(clustered, 1.0, figures["output_write_tiles"])


def _weight_density(figures: Figures) -> Floats:
    """Return the share of non-zero weights that the grid exploits.

    `weight_sparsity` shows a saving only in npu3720 rows of mode 8x16 with one write tile; elsewhere rows
    with and without it have the same cycles.
    """
    skips = (figures["npu"] == "npu3720") & (figures["mpe_mode"] == "8x16")
    skips &= figures["output_write_tiles"] == 1
    return np.where(skips, 1.0 - figures["weight_sparsity"], 1.0)


def _prepare_workloads(figures: Figures) -> Figures:
    return _on_grid(figures, workload_table(figures)).with_columns(operator=_mapped(figures, "op", _WORDS))


WORKLOADS = TablePredictor(_cycles, prepare=_prepare_workloads)
"""Measured workloads on one tile."""

_SPARSE_SHAPE = re.compile(r"CONV(\d+)x(\d+)s(\d+) UINT8 in\d+x\d+x(\d+) out(\d+)x(\d+)x(\d+) \((\w+)\)")


def _prepare_sparse(figures: Figures) -> Figures:
    """Resolve `same` to the workload above it, and name the sparse side."""
    workloads: list[str] = []
    for row, text in enumerate(figures["workload"]):
        workloads.append(workloads[-1] if text == "same" and workloads else text)
        if not _SPARSE_SHAPE.fullmatch(workloads[-1]):
            allowed = "CONV3x3s2 UINT8 in28x9x256 out14x4x256 (8x16), or `same` below such a row"
            raise figures.refusal(row, "workload", allowed)
    act, weight = figures["act_sparsity"] > 0, figures["weight_sparsity"] > 0
    side = np.select([act & weight, act, weight], ["both", "activations", "weights"], "dense")
    figures = figures.with_columns(workload=np.array(workloads, object), side=side.astype(object))
    return _on_grid(figures, sparse_table(figures))


def sparse_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `silicon_sparsity` as DPU_ROW."""
    shapes = [match.groups() for text in figures["workload"] if (match := _SPARSE_SHAPE.fullmatch(text))]
    sizes = np.array([[float(number) for number in shape[:7]] for shape in shapes]).reshape(-1, 7)
    names = ("kernel_w", "kernel_h", "stride", "in_c", "out_w", "out_h", "out_c")
    return dpu_rows(
        len(figures),
        dpu_operation=int(DpuOperation.CONVOLUTION),
        **dict(zip(names, sizes.T, strict=True)),
        pad_bottom=(sizes[:, 1] > 1).astype(float),
        mode=[_MODES[shape[7]] for shape in shapes],
        write_tiles=[2.0 if "owt2" in split else 1.0 for split in figures["split"]],
        act_density=1.0 - figures["act_sparsity"],
        weight_density=1.0 - figures["weight_sparsity"],
    )


SPARSE = TablePredictor(_cycles, prepare=_prepare_sparse)
"""Measured sparse convolutions on one tile."""


def product_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `costmodel_gemm` or `costmodel_sparse_gemm` as DPU_ROW."""
    return dpu_rows(
        len(figures),
        dpu_operation=int(DpuOperation.MATMUL),
        out_w=figures["m"],
        in_c=figures["k"],
        out_c=figures["n"],
        item_bytes=[_ITEM_BYTES[name] for name in figures["dtype"]],
        act_density=1.0 - figures.columns.get("act_sparsity", 0.0),
        weight_density=1.0 - figures.columns.get("weight_sparsity", 0.0),
    )


def channelwise_table(figures: Figures) -> NDArray[np.void]:
    """Return the rows of `costmodel_eltwise_pool` as DPU_ROW; 3x3 kernels are padded by one pixel."""
    kernel = figures.sizes("kernel")
    padding = (kernel[:, 1] == 3).astype(float)
    return dpu_rows(
        len(figures),
        dpu_operation=[int(_OPERATIONS[op]) for op in figures["op"]],
        out_w=np.ceil(figures["w"] / figures["stride"]),
        out_h=np.ceil(figures["h"] / figures["stride"]),
        out_c=figures["c"],
        in_c=figures["c"],
        kernel_w=kernel[:, 0],
        kernel_h=kernel[:, 1],
        stride=figures["stride"],
        pad_top=padding,
        pad_bottom=padding,
        item_bytes=[_ITEM_BYTES[name] for name in figures["dtype"]],
    )


def _speedup(figures: Figures, machine: Machine) -> Floats:
    """Return the speed-up by zeros: cycles of the dense product over cycles of the sparse one."""
    dense = figures["work"].copy()
    dense["act_density"] = dense["weight_density"] = 1.0
    ratio: Floats = dpu_cycles(machine.arch[0], dense) / _cycles(figures, machine)
    return ratio


def _prepare_sparse_products(figures: Figures) -> Figures:
    speedup = figures["dense_dpu_cycles"] / figures["dpu_cycles"]
    columns = figures.with_columns(side=_mapped(figures, "kind", _SIDES), speedup=speedup)
    return _on_grid(columns, product_table(figures))


PRODUCTS = TablePredictor(_cycles, prepare=lambda figures: _on_grid(figures, product_table(figures)))
"""Dense products on one tile."""
SPARSE_PRODUCTS = TablePredictor(_speedup, prepare=_prepare_sparse_products)
"""Speed-up of products by zeros."""
CHANNELWISE = TablePredictor(_cycles, prepare=lambda figures: _on_grid(figures, channelwise_table(figures)))
"""Pooling, depthwise convolution and elementwise operators on one tile."""

# Kernels by their number of rows, where they work along an axis that their parameters do not name. Found by
# trying: the table does not say.
_KERNELS_ALONG = {
    "h*c": "gather gptq mvn6_oneax mvn6_onlyoneax mvn6_threeax",
    "w*h": "interpolatewh_1 mvn_fused normalizel2onlyc softmax_x",
    "c": "mvn mvn6 mvn6_fourax mvn6_twoax mvn_2ax",
}
_ROWS_OF = {kernel: rows for rows, kernels in _KERNELS_ALONG.items() for kernel in kernels.split()}


def row_counts(figures: Figures) -> Floats:
    """Return the rows of each call of a kernel along an axis; 1 for the others."""
    w, h, c = figures["w"], figures["h"], figures["c"]
    counts = {"w*h": w * h, "h*c": h * c, "c": c, "": np.ones(len(figures))}
    rows = np.ones(len(figures))
    for i, (op, params) in enumerate(zip(figures["op"], figures["params"], strict=True)):
        axis = "h*c" if "axis=W" in params else "w*h" if "axis=C" in params else _ROWS_OF.get(op, "")
        rows[i] = counts[axis][i]
    return rows


def _calls(figures: Figures) -> list[tuple[str, str]]:
    return list(zip(figures["kernel_source"], figures["op"], strict=True))


def _kernel_s(figures: Figures, machine: Machine) -> Floats:
    calls = _calls(figures)
    number = {call: i for i, call in enumerate(sorted(set(calls)))}
    # As in an estimate: a kernel that neither the generation nor its fallbacks have is costed as unknown.
    unknown = machine.dsp_kernel(machine.soc.npu.dsp.kernel_generation, "unknown")
    kernels = [machine.dsp_kernel(*call) or unknown for call in number]
    which = np.array([number[call] for call in calls], np.int64)
    return call_seconds(machine, kernels, which, figures["out_elements"], figures["rows"])


def _prepare_kernels(figures: Figures) -> Figures:
    """Add the rows of each call, and a text of its size."""
    rows = row_counts(figures)
    sizes = [f"{elements:g}/{count:g}" for elements, count in zip(figures["out_elements"], rows, strict=True)]
    return figures.with_columns(rows=rows, call=np.array(sizes, object))


KERNELS = TablePredictor(
    _kernel_s,
    prepare=_prepare_kernels,
    # Calls without a kernel of their own source.
    unmodelled=lambda figures, machine: [
        op not in machine.generation(source).kernels for source, op in _calls(figures)
    ],
)
"""Bare kernel calls. An estimate may pad a call up to the next loop's threshold where that is faster."""
