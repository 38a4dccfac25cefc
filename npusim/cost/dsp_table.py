"""Table of DSP kernels: which one an operator uses.

The SoC's generation is asked first, then the generations it falls back on. Sources spell some kernels
differently; an operator nobody has a kernel for is costed as the generation's `unknown` kernel, with a
warning.
"""

from __future__ import annotations

from typing import Any

from npusim.arch import Soc
from npusim.arch.dsp import DspGeneration, DspKernel
from npusim.arch.npu import Npu
from npusim.cost.execution import execution_of
from npusim.graph import Graph
from npusim.ops import Family, Operator, TensorKind, WorkClass

_SPELLINGS = {
    "add": ("eltwise_add",),
    "and": ("logicaland",),
    "div": ("divide",),
    "greaterequal": ("greatereq",),
    "hardsigmoid": ("hsigmoid",),
    "interpolate": ("interpolatewh_1",),
    "hswish": ("hardswish",),
    "lessequal": ("lesseq",),
    "max": ("maximum",),
    "mempermute": ("transpose",),
    "min": ("minimum",),
    "mul": ("multiply",),
    "neg": ("negative",),
    "not": ("logicalnot",),
    "or": ("logicalor",),
    "quantize": ("fakequantize",),
    "squareddiff": ("squaredifference",),
    "sub": ("subtract",),
    "xor": ("logicalxor",),
}
"""Other names of a kernel in the tables of npu-nn-cost-model."""
_KIN = {
    "avgpool": "reducemean",
    "eye": "broadcast",
    "gridsample": "gather",
    "grugates": "sigmoid",
    "interpolatewh_1": "gather",
    "lrn": "gelu",
    "lstmgates": "sigmoid",
    "maxpool": "reducemax",
    "nonzero": "cumsum",
    "normalizel2onlyc": "mvn",
    "onehot": "select",
    "pad": "concat",
    "psroipooling": "reducemean",
    "range": "broadcast",
    "reducel2": "reducesum",
    "roialign": "gather",
    "roipooling": "reducemax",
    "shapeof": "broadcast",
    "slice": "concat",
    "topk": "reducemax",
} | dict.fromkeys(
    (
        "matmul", "convolution", "groupconvolution", "convolutionbackpropdata",
        "groupconvolutionbackpropdata", "lstmsequence", "grusequence", "rnnsequence", "sdpa",
    ),
    "mul",
)  # fmt: skip
"""Kernels that no source has figures of, and the one of the most alike work, which stands in for each."""


def _fill_kernel(record: Any, npu: Npu, op: Operator, warnings: list[str]) -> None:
    """Fill a record of DSP_KERNEL_DTYPE with the kernel of an operator; a missing one adds to `warnings`."""
    found = kernel_of(npu, op)
    if found is not None:
        fill_numbers(record, found[1][1], found[1][2])
        return
    if op.traits.known:
        where = f"{npu.dsp.kernel_generation!r} or its fallbacks"
        warnings.append(f"{op.name}: no DSP kernel for {op.type} in {where}; costed as unknown")
    unknown = npu.dsp.kernel("unknown")
    if unknown is not None:
        fill_numbers(record, unknown[1], unknown[2])


def kernel_of(npu: Npu, op: Operator) -> tuple[str, tuple[str, DspGeneration, DspKernel]] | None:
    """Return an operator's kernel name and (generation, its data, kernel); None where there is none."""
    name = execution_of(op.traits).dsp_kernel or op.type.lower()
    names = [name, *_SPELLINGS.get(name, ())]
    for spelling in [*names, *(_KIN[other] for other in names if other in _KIN)]:
        found = npu.dsp.kernel(spelling)
        if found is not None:
            return spelling, found
    return None


def fill_numbers(record: Any, generation: DspGeneration, kernel: DspKernel) -> None:
    """Fill a record of DSP_KERNEL_DTYPE with the numbers of one kernel."""
    record["fixed_cycles"] = kernel.fixed + generation.call
    record["cycles_per_element"] = kernel.per_element
    record["cycles_per_row"] = kernel.per_row
    record["small_elements"] = kernel.small_below
    record["small_fixed_cycles"] = kernel.small_fixed + generation.call
    record["small_cycles_per_element"] = kernel.small_per_element
    record["small_counted_elements"] = kernel.small_counted
    record["row_scalar_cycles"] = kernel.row_head_per_element
    record["row_scalar_elements"] = kernel.row_head_elements
    record["stream_elements"] = kernel.stream_from_elements
    record["stream_rows"] = kernel.stream_from_rows
    record["stream_cycles_per_element"] = kernel.stream_per_element
    record["stream_cycles_per_row"] = kernel.stream_per_row
    record["few_rows"] = kernel.few_rows_below
    record["few_rows_fixed_cycles"] = kernel.few_rows_fixed + generation.call
    record["few_rows_cycles_per_position"] = kernel.few_rows_per_position
    record["one_row_fixed_cycles"] = kernel.one_row_fixed + generation.call
    record["vector_share"] = (
        kernel.vector_share if kernel.vector_share is not None else generation.vector_share
    )
    record["reference_lanes"] = generation.reference_lanes


def fill_dsp(record: Any, graph: Graph, op: Operator, soc: Soc, warnings: list[str]) -> None:
    """Fill a record of DSP_KERNEL_DTYPE with an operator's kernel and the copies that it needs beforehand.

    Copies are charged at the rate of Broadcast. An operand that was computed and is smaller than the result
    is spread out first (GraNNite, Fig. 17: broadcasts and a transpose around the sum of scores); a mask or a
    bias is known beforehand and laid out as the kernel likes it. A scatter starts from a copy of the tensor
    that it updates, and one DSP does all of it: indices may meet.
    """
    _fill_kernel(record, soc.npu, op, warnings)
    copy = soc.npu.dsp.kernel("broadcast")
    copy_cycles = float(copy[2].per_element) if copy is not None else 0.0
    result = graph.outputs_of(op)[0]
    if op.traits.work_class is WorkClass.POINTWISE:
        known = graph.structural
        computed = [t for t in graph.inputs_of(op) if t.kind is TensorKind.ACTIVATION and t.name not in known]
        small = sum(1 < t.elements < result.elements for t in computed)
        record["cycles_per_element"] += copy_cycles * small
    elif op.family is Family.SCATTER:
        work = graph.work(op)
        alone = work.elements * record["cycles_per_element"] + work.rows * record["cycles_per_row"]
        record["fixed_cycles"] += alone + copy_cycles * result.elements
        record["serial"] = 1.0
        record["cycles_per_element"] = record["cycles_per_row"] = 0.0
