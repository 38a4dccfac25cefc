"""Which device and unit runs which operator.

A technique may have written a wish on an operator (GraphSplit: preprocessing to the CPU); it is obeyed unless
the user sends everything to one device.
"""

from __future__ import annotations

from typing import Literal

from npusim.arch import Soc
from npusim.cost import DpuOperation, Unit, execution_of, listed_as
from npusim.errors import InfeasibleError
from npusim.graph import Graph
from npusim.ops import DType, Family, Operator

DeviceChoice = Literal["auto", "npu", "cpu", "gpu"]
"""Where a network runs; `auto` is the SoC's main device, an NPU where it has one, with the wishes that
techniques wrote on operators."""


def unit_of(op: Operator, graph: Graph, soc: Soc, device: DeviceChoice) -> Unit:
    """Return the unit that runs an operator.

    Parameters
    ----------
    graph : Graph
        The graph it belongs to.
    device : {"auto", "npu", "cpu", "gpu"}
        "auto" honours the operator's wish; any other sends every operator there.

    Raises
    ------
    InfeasibleError
        Where the SoC lacks the device.
    """
    if op.family is Family.VIEW:
        return Unit.VIEW
    target = (op.device or soc.main_kind) if device == "auto" else device
    if not soc.has(target):
        have = ", ".join(soc.devices)
        raise InfeasibleError(
            f"operator {op.name!r} should run on the {target.upper()}, which {soc.name} lacks; it has: {have}"
        )
    if target != "npu":
        return Unit[target.upper()]
    execution = execution_of(op.traits)
    if execution.on_dma(op):
        return Unit.DMA
    return Unit.DPU if execution.dpu is not None and _grid_can(op, execution.dpu, graph, soc) else Unit.DSP


def _grid_can(op: Operator, operation: DpuOperation, graph: Graph, soc: Soc) -> bool:
    """Whether the MAC grid runs an operator: elementwise only listed types, on equal shapes.

    The limits of a quantisation are loaded with the workload.
    """
    inputs = graph.inputs_of(op)
    dtype = inputs[0].dtype
    rates = soc.npu.dpu.macs_per_mpe
    if dtype.is_float:
        known = "fp16" in rates or "fp32" in rates
    else:
        known = dtype is not DType.BOOL and (
            (dtype.bits <= 8 and "int8" in rates) or (dtype.bits <= 4 and "int4" in rates)
        )
    if not known:
        return False
    if operation is not DpuOperation.ELTWISE:
        return True
    tensors = inputs[:1] if op.family is Family.CONVERT else inputs
    return listed_as(op) in soc.npu.dpu.eltwise_ops and len({t.shape for t in tensors}) == 1
