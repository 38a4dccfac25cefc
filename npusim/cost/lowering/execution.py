"""How machines run each operator: DSP kernel, operation of the MAC grid, kind of host work.

The one mapping from operator types (`npusim.ops`) to machines. A type has its `Execution` here, or in its
declaration in another package; a type without one is an error. DSP kernels come from the generation of the
SoC, then from its fallbacks; sources spell some differently. An operator without a kernel is costed as the
`unknown` kernel, with a warning.

A data sheet may name equations of other packages for types of operators (`npu.equations`). An equation is a
function of an operator, its graph and the data sheet of the NPU. It returns the cycles that one unit needs
for the whole operator: the MAC grid of one tile, or one DSP. Tiles and DSPs divide them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npusim.arch.device import ElementKind, RowKind
from npusim.arch.dsp import DspGeneration, DspKernel
from npusim.arch.npu import Npu
from npusim.cost.lowering.tables import DpuOperation
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.graph import Graph
from npusim.ops import OPERATORS, Family, Operator, OpType, Tensor, TensorKind, Work, WorkClass
from npusim.plugins import announced, named

Tensors = tuple[Tensor, ...]
ElementRule = Callable[[Operator, Tensors, Tensors], ElementKind]
"""(operator, its inputs, its outputs) -> kind of work on an element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How the units of an NPU and CPU and GPU run an operator type."""

    dsp_kernel: str
    """Name of the DSP kernel; '': DSPs hardly ever run it."""
    dpu: DpuOperation | None
    """Operation of the MAC grid; None: the grid cannot. `dpu.eltwise_ops` lists elementwise types."""
    dma: bool | Callable[[Operator], bool]
    """Whether a DMA engine runs it without a DSP: a move of whole rows, a repetition of elements."""
    element: ElementKind | ElementRule
    """Work of a CPU or GPU on each of its elements (`Work.elements`)."""
    row: RowKind | None
    """Rows that a CPU or GPU starts one by one; None: rows do not matter."""
    computes: bool
    """Whether it computes values; moves keep their format on a host without fp16 arithmetic."""
    host_only: str = ""
    """Reason why no unit of an NPU runs it; '': one does."""
    listed_as: str = ""
    """Its name in a SoC's `fused_ops` and `eltwise_ops`; '': its type in lower case."""

    def element_kind(self, op: Operator, inputs: Tensors, outputs: Tensors) -> ElementKind:
        """Return the kind of host work that an operator does on each element."""
        return self.element(op, inputs, outputs) if callable(self.element) else self.element

    def on_dma(self, op: Operator) -> bool:
        """Return whether a DMA engine runs an operator without a DSP."""
        return self.dma(op) if callable(self.dma) else self.dma

    def row_counts(self, op: Operator, inputs: Tensors, work: Work) -> dict[RowKind, float]:
        """Return the rows that are processed one by one, by kind; gathered single elements are none."""
        if self.row is None or (self.row == "gather" and work.row_length <= 1):
            return {}
        if self.row == "reduction" and _reduction(op, inputs, ()) == "reduction":
            axes, shape = op.attrs["axes"], inputs[0].shape
            vector = math.prod(shape[1 + max(axis % len(shape) for axis in axes) :])
            return {"reduction_across": work.rows, "vector": work.elements / max(1, vector)}
        return {self.row: work.rows}


def execution_of(op_type: OpType) -> Execution:
    """Return how an operator type runs: its DSP kernel, grid operation and kind of host work.

    Raises
    ------
    NpusimError
        Where the declaration of the type has no `Execution`.
    """
    if not op_type.known:
        return _UNKNOWN
    own = op_type.execution
    execution = own if own is not None else _EXECUTIONS.get(op_type.name)
    if not isinstance(execution, Execution):
        raise NpusimError(
            f"operator type {op_type.name}: its declaration brings no Execution, found {execution!r}"
        )
    return execution


def listed_as(op: Operator) -> str:
    """Return the name under which a SoC's `fused_ops` and `eltwise_ops` list an operator."""
    return execution_of(op.traits).listed_as or op.type.lower()


_WHOLE_ROW = 16
"""Elements of a row that fills a cache line in fp32."""


def _reduction(op: Operator, inputs: Tensors, outputs: Tensors) -> ElementKind:
    """Return `arithmetic` for a reduction along rows, `reduction` for one across rows."""
    rank = len(inputs[0].shape)
    return "arithmetic" if rank - 1 in op.attrs.get("axes", (rank - 1,)) else "reduction"


def _transposition(op: Operator, inputs: Tensors, outputs: Tensors) -> ElementKind:
    """Return `arithmetic` if elements keep their order, `row_relayout` if long rows do, else `relayout`."""
    shape = inputs[0].shape
    order = op.attrs.get("order") or tuple(reversed(range(len(shape))))
    long = [axis for axis in order if shape[axis] > 1]
    if long == sorted(long):
        return "arithmetic"
    return "row_relayout" if order[-1] == len(shape) - 1 and shape[-1] >= _WHOLE_ROW else "relayout"


def _scattering(op: Operator, inputs: Tensors, outputs: Tensors) -> ElementKind:
    """Return `scatter` for a copy or sum, else `scatter_reduce`: others must know a result's first value."""
    return "scatter" if op.attrs.get("reduction", "none") in ("none", "sum") else "scatter_reduce"


def _repetition(op: Operator, inputs: Tensors, outputs: Tensors) -> ElementKind:
    """Return `spread` for a broadcast within rows, which changes the order of elements."""
    shape, wider = inputs[0].shape, outputs[0].shape
    within = bool(shape) and bool(wider) and shape[-1] == 1 and wider[-1] > 1 and inputs[0].elements > 1
    return "spread" if within else "arithmetic"


def _gathering(op: Operator, inputs: Tensors, outputs: Tensors) -> ElementKind:
    """Return `gather` for single elements; short rows are gathered by elements, long ones are copied."""
    shape = outputs[0].shape
    if len(shape) < 2 or shape[-1] == 1:
        return "gather"
    return "narrow_gather" if shape[-1] <= _WHOLE_ROW else "wide_gather"


def _normalisation(op: Operator, inputs: Tensors, outputs: Tensors) -> ElementKind:
    """Return `softmax` along the last axis, which vector units work along, else `softmax_across`."""
    rank = len(inputs[0].shape)
    return "softmax" if rank - 1 in op.attrs.get("axes", (rank - 1,)) else "softmax_across"


def _repeats(op: Operator) -> bool:
    """Return whether an interpolation only repeats elements, which a DMA engine can do."""
    return op.attrs.get("mode") == "nearest"


def _runs(names: str, dsp: bool = True, **traits: Any) -> dict[str, Execution]:
    """Return executions with common traits by type name; `names` holds `Type` or `Type=kernel`."""
    traits = {"dpu": None, "dma": False, "element": "arithmetic", "row": None, "computes": True} | traits
    executions = {}
    for name, _, kernel in (part.partition("=") for part in names.split()):
        executions[name] = Execution(dsp_kernel=(kernel or name.lower()) if dsp else "", **traits)
    return executions


_ON_GRID: dict[str, Any] = {"dpu": DpuOperation.ELTWISE}
_NO_SPARSE = "no unit of an NPU walks compressed rows of a matrix"
_NO_SORT = "no unit of an NPU sorts edges"
_NO_PAGES = "an NPU's memory is laid out beforehand"
_POINTWISE = """Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd=and LogicalOr=or LogicalNot=not
LogicalXor=xor IsInf=equal IsNaN=equal Select Relu PRelu Abs Negative=neg Sign Floor Ceiling HSwish
HSigmoid=hardsigmoid Clamp Round HardSigmoid BitwiseAnd=and BitwiseOr=or BitwiseXor=xor BitwiseNot=not
BitwiseLeftShift=and BitwiseRightShift=and IsFinite=equal"""
_SIGMOIDS = "Elu Selu Sigmoid Tanh Gelu Erf Swish Mish SoftPlus RegionYolo=sigmoid"
_TRIGONOMETRIC = "Sin Cos Tan Asin Acos Atan Asinh Acosh Atanh"
_REDUCTIONS = """ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd=reducesum ReduceL1=reducesum ReduceL2
ReduceLogicalOr=reducemax ReduceLogicalAnd=reducemin CumSum MVN NormalizeL2=normalizel2onlyc TopK
GroupNormalization=mvn AdaptiveAvgPool=reducemean AdaptiveMaxPool=reducemax"""
_GATHERS = "Gather GatherElements=gather GatherND=gather EmbeddingBagOffsets=gather"
_SCATTERS = "ScatterElementsUpdate=scatterupdate ScatterUpdate ScatterNDUpdate=scatterupdate"
_RELAYOUTS = "DepthToSpace SpaceToDepth=spacetodepthop ShuffleChannels ReverseSequence=roll"
_MOVES = """Concat StridedSlice=slice Slice Split=slice VariadicSplit=slice Pad Roll Reverse=roll"""
_WHOLE = """Range NonZero ShapeOf Eye=range OneHot LSTMSequence GRUSequence RNNSequence
ScaledDotProductAttention=sdpa ROIAlign ROIPooling PSROIPooling"""
_BOXES = """NonMaxSuppression MatrixNms=nonmaxsuppression MulticlassNms=nonmaxsuppression
NMSRotated=nonmaxsuppression DetectionOutput=nonmaxsuppression Proposal=nonmaxsuppression"""
_CONVOLUTIONS = "Convolution ConvolutionBackpropData GroupConvolutionBackpropData"
_EXECUTIONS: dict[str, Execution] = {
    **_runs("MatMul", dsp=False, dpu=DpuOperation.MATMUL),
    **_runs("SparseMatMul", dsp=False, host_only=_NO_SPARSE, row="aggregate"),
    **_runs("EdgesToCsr", dsp=False, host_only=_NO_SORT, element="sort", computes=False),
    **_runs("TakePages", dsp=False, host_only=_NO_PAGES, element="page", computes=False),
    **_runs(_CONVOLUTIONS, dsp=False, dpu=DpuOperation.CONVOLUTION),
    **_runs("GroupConvolution", dsp=False, dpu=DpuOperation.DEPTHWISE),
    **_runs("MaxPool", dsp=False, dpu=DpuOperation.MAXPOOL, element="pooling"),
    **_runs("AvgPool", dsp=False, dpu=DpuOperation.AVGPOOL, element="pooling"),
    **_runs(
        "Add Subtract=sub Multiply=mul Maximum=max Minimum=min SquaredDifference=squareddiff", **_ON_GRID
    ),
    **_runs("Divide=div FloorMod Mod=floormod", element="division", **_ON_GRID),
    **_runs("Power", element="power", **_ON_GRID),
    **_runs(_POINTWISE),
    **_runs(_SIGMOIDS, element="sigmoid"),
    **_runs("Exp Sinh Cosh", element="exponential"),
    **_runs("Log", element="logarithm"),
    **_runs("Sqrt SoftSign=div", element="division"),
    **_runs(_TRIGONOMETRIC, element="power"),
    **_runs("Convert ConvertLike=convert", computes=False),
    **_runs("FakeQuantize=quantize FakeConvert=quantize", computes=False, **_ON_GRID),
    **_runs("Softmax LogSoftmax", element=_normalisation, row="softmax"),
    **_runs(_REDUCTIONS, element=_reduction, row="reduction"),
    **_runs(_GATHERS, element=_gathering, row="gather", computes=False),
    **_runs(_SCATTERS, element=_scattering, computes=False),
    **_runs("Transpose=mempermute", element=_transposition, computes=False),
    **_runs(_RELAYOUTS, element="relayout", computes=False),
    **_runs("Broadcast Tile=broadcast", element=_repetition, computes=False),
    **_runs(_MOVES, dma=True, computes=False),
    **_runs("Reshape Squeeze Unsqueeze Result Identity View", dsp=False, computes=False),
    **_runs("Assign=convert ReadValue=convert", computes=False),
    **_runs(_WHOLE),
    **_runs("LSTMGates GRUGates", element="sigmoid"),
    **_runs("Interpolate", dma=_repeats),
    **_runs("LRN", element="power"),
    **_runs("GridSample", element="gather"),
    **_runs(_BOXES),
}
_UNKNOWN = Execution(dsp_kernel="unknown", dpu=None, dma=False, element="arithmetic", row=None, computes=True)


def _check_complete() -> None:
    """Raise where a type has no execution, or an execution names no type."""
    declared = {name for name in OPERATORS.own_names() if OPERATORS[name].execution is None}
    if declared != set(_EXECUTIONS):
        raise NpusimError(f"operator types and executions differ: {sorted(declared ^ set(_EXECUTIONS))}")


_check_complete()


def _pairs(text: str) -> dict[str, str]:
    """Return the pairs of a text `name=other name=other`."""
    return dict(part.split("=") for part in text.split())


SPELLINGS = _pairs(
    """add=eltwise_add and=logicaland div=divide greaterequal=greatereq hardsigmoid=hsigmoid
    interpolate=interpolatewh_1 hswish=hardswish lessequal=lesseq max=maximum mempermute=transpose min=minimum
    mul=multiply neg=negative not=logicalnot or=logicalor quantize=fakequantize squareddiff=squaredifference
    sub=subtract xor=logicalxor"""
)
"""Other name of a kernel in the tables of npu-nn-cost-model."""
_SUBSTITUTES = _pairs(
    """avgpool=reducemean eye=broadcast gridsample=gather grugates=sigmoid interpolatewh_1=gather lrn=gelu
    lstmgates=sigmoid maxpool=reducemax nonzero=cumsum normalizel2onlyc=mvn onehot=select pad=concat
    psroipooling=reducemean range=broadcast reducel2=reducesum roialign=gather roipooling=reducemax
    shapeof=broadcast slice=concat topk=reducemax matmul=mul convolution=mul groupconvolution=mul
    convolutionbackpropdata=mul groupconvolutionbackpropdata=mul lstmsequence=mul grusequence=mul
    rnnsequence=mul sdpa=mul"""
)
"""Substitute of a kernel that no source has figures of: the one of the most similar work."""


def kernel_of(npu: Npu, op: Operator) -> tuple[str, tuple[str, DspGeneration, DspKernel]] | None:
    """Return an operator's kernel name and (generation, its data, kernel); None where there is none."""
    name = execution_of(op.traits).dsp_kernel or op.type.lower()
    names = [name, *([SPELLINGS[name]] if name in SPELLINGS else [])]
    for spelling in [*names, *(_SUBSTITUTES[other] for other in names if other in _SUBSTITUTES)]:
        kernel = npu.dsp.kernel(spelling)
        if kernel is not None:
            return spelling, kernel
    return None


def fill_numbers(record: Any, generation: DspGeneration, kernel: DspKernel) -> None:
    """Fill a record of DSP_KERNEL_DTYPE with the numbers of one kernel."""
    for name in DspKernel.model_fields.keys() - {"source", "vector_share"}:
        record[name] = getattr(kernel, name)
    for name in ("fixed", "small_fixed", "few_rows_fixed", "one_row_fixed"):
        record[name] += generation.call
    share = kernel.vector_share
    record["vector_share"] = generation.vector_share if share is None else share
    record["reference_lanes"] = generation.reference_lanes


def fill_dsp(record: Any, graph: Graph, op: Operator, npu: Npu, warnings: list[str]) -> None:
    """Fill a record of DSP_KERNEL_DTYPE with the kernel of an operator and the copies before it.

    A missing kernel adds to `warnings`. Copies have the rate of Broadcast. A computed operand that is smaller
    than the result is broadcast first (GraNNite, Fig. 17: broadcasts and a transpose around the sum of
    scores); a mask or a bias is known beforehand and laid out for the kernel. A scatter starts from a copy of
    the tensor that it updates, and runs on one DSP, because indices may repeat.
    """
    found, unknown = kernel_of(npu, op), npu.dsp.kernel("unknown")
    if found is not None:
        fill_numbers(record, *found[1][1:])
    elif unknown is not None:
        fill_numbers(record, *unknown[1:])
    if found is None and op.traits.known:
        where = f"{npu.dsp.kernel_generation!r} or its fallbacks"
        warnings.append(f"{op.name}: no DSP kernel for {op.type} in {where}; costed as unknown")
    copy = npu.dsp.kernel("broadcast")
    copy_cycles = float(copy[2].per_element) if copy is not None else 0.0
    result = graph.outputs_of(op)[0]
    if op.traits.work_class is WorkClass.POINTWISE:
        known = graph.structural
        computed = [t for t in graph.inputs_of(op) if t.kind is TensorKind.ACTIVATION and t.name not in known]
        small = sum(1 < t.elements < result.elements for t in computed)
        record["per_element"] += copy_cycles * small
    elif op.family is Family.SCATTER:
        work = graph.work(op)
        alone = work.elements * record["per_element"] + work.rows * record["per_row"]
        record["fixed"] += alone + copy_cycles * result.elements
        record["serial"] = 1.0
        record["per_element"] = record["per_row"] = 0.0


_EQUATIONS = "npusim.equations"


def own_cycles(graph: Graph, op: Operator, npu: Npu) -> float | None:
    """Return the cycles of one unit by the equation that the sheet names; None where it names none.

    Raises
    ------
    UnknownNameError
        Where no installed package has an equation of that name.
    PluginError
        Where the equation fails, or returns no positive number of cycles.
    """
    name = npu.equations.get(op.type.lower())
    if name is None:
        return None
    entries = announced(_EQUATIONS)
    if name not in entries:
        raise UnknownNameError("cost equation", name, tuple(entries))
    with named(entries[name], "cost equation"):
        cycles = float(entries[name].load()(op, graph, npu))
        if not 0.0 < cycles < math.inf:
            raise ConfigError(f"`{cycles:g}` cycles of {op.name}", allowed="a positive, finite number")
    return cycles
