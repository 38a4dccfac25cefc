"""Placement: which unit runs each operator, and how devices treat states and packed weights.

A technique may write a wish on an operator (GraphSplit: preprocessing to the CPU); it is obeyed unless the
user sends everything to one device. Weights of 8 or 4 bits with scales are multiplied by activations in
floating point: the data sheet says where they are unpacked (`packed_weights`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from npusim.arch import Accelerator, Npu, Soc
from npusim.cost import STATE_TYPES, DpuOperation, Unit, execution_of, listed_as
from npusim.errors import InfeasibleError
from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Operator, TensorKind
from npusim.ops.formats import FORMATS

DeviceChoice = str
"""Where a network runs: the name of a device, or a kind for the first of it; `auto` is the SoC's main device,
an NPU where it has one, with the wishes that techniques wrote on operators."""
_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION, DpuOperation.DEPTHWISE)
_BITS = {8: "int8", 4: "int4"}


class Place(NamedTuple):
    """The unit that runs an operator."""

    device: str
    """Name of the device; empty for a view."""
    unit: Unit


_NOWHERE = Place("", Unit.VIEW)


def place_of(op: Operator, graph: Graph, soc: Soc, device: DeviceChoice, whole: bool = False) -> Place:
    """Return the device and unit that run an operator.

    Parameters
    ----------
    device : str
        "auto" obeys the operator's wish; any other, a name or a kind of device, sends every operator there.
    whole : bool
        Whether to assume that the device runs everything, whatever its data sheet lists.

    Raises
    ------
    InfeasibleError
        Where the SoC lacks the device, or neither the device nor its fallbacks can run the operator.
    """
    if op.family is Family.VIEW and op.type not in STATE_TYPES:
        return _NOWHERE
    stays = device == "auto" or (op.pinned and op.device is not None and soc.named(op.device) is not None)
    wanted = (op.device or soc.main_device) if stays else device
    target = soc.named(wanted)
    if target is None:
        raise InfeasibleError(
            f"operator {op.name!r} should run on the {wanted.upper()}, which {soc.name} lacks",
            levers=[f"it has: {', '.join(soc.devices)}"],
        )
    if not whole:
        target = _runner(op, graph, soc, target)
    work = state_work(op, graph, soc, target)
    if op.family is Family.VIEW and work is StateWork.NONE:
        return _NOWHERE
    npu = soc.array_devices.get(target)
    if npu is None:
        return Place(target, Unit.HOST)
    if graph.meta.dynamic_shapes:
        raise InfeasibleError(
            f"{graph.name} has dynamic shapes, and an NPU runs what was compiled for fixed shapes",
            levers=["allowed: workload.shapes=static, or --device cpu or gpu"],
        )
    if work is StateWork.COPY:
        return Place(target, Unit.DMA)
    execution = execution_of(op.traits)
    if execution.on_dma(op):
        return Place(target, Unit.DMA)
    on_grid = execution.dpu is not None and _grid_can(op, execution.dpu, graph, npu)
    return Place(target, Unit.DPU if on_grid else Unit.DSP)


def can_run(op: Operator, graph: Graph, soc: Soc, device: str) -> bool:
    """Return whether a device runs an operator: its data sheet lists it, and it has a unit for it.

    An array without vector units multiplies in its own formats alone.
    """
    ops = soc.devices[device].ops
    if ops is not None and op.type.lower() not in ops and listed_as(op) not in ops:
        return op.family is Family.VIEW
    execution, array = execution_of(op.traits), soc.devices[device]
    if isinstance(array, Accelerator) and not array.has_vector_units and execution.dpu in _PRODUCTS:
        return _grid_can(op, execution.dpu, graph, array)
    return device in soc.hosts or not execution.host_only


def _runner(op: Operator, graph: Graph, soc: Soc, wanted: str) -> str:
    """Return the device that runs an operator: the wanted one, or its first fallback that can run it."""
    device, tried = wanted, [wanted]
    while not can_run(op, graph, soc, device):
        following = soc.devices[device].fallback
        if following is None:
            why = execution_of(op.traits).host_only
            if why and len(tried) == 1 and soc.devices[device].ops is None:
                raise _only_on_hosts(op, graph, why)
            raise InfeasibleError(
                f"no device runs operator {op.name!r} ({op.type}): not {', nor '.join(tried)} of {soc.name}",
                levers=[
                    f"list it under devices.{device}.ops, or say under devices.{device}.fallback who runs it"
                ],
            )
        device = following
        tried.append(device)
    return device


def _only_on_hosts(op: Operator, graph: Graph, why: str) -> InfeasibleError:
    """Return the error about an operator that no NPU can run, with forms of the network that avoid it."""
    forms = f"it can run the forms {', '.join(graph.meta.npu_forms)} (--set workload.form=...)"
    instead = f"{forms}, " if graph.meta.npu_forms else ""
    lever = f"{instead}a CPU or GPU this one too (--device cpu)"
    return InfeasibleError(f"operator {op.name!r} ({op.type}): {why}", levers=[lever])


def _grid_can(op: Operator, operation: DpuOperation, graph: Graph, npu: Npu) -> bool:
    """Return whether the MAC grid runs an operator: elementwise only listed types, on equal shapes.

    The limits of a quantisation are loaded with the workload.
    """
    inputs = graph.inputs_of(op)
    dtype = inputs[0].dtype
    rates = npu.dpu.macs_per_mpe
    if not any(name in rates for name in (dtype, *FORMATS[dtype].computed_in)):
        return False
    if operation in _PRODUCTS:
        return True
    if operation is not DpuOperation.ELTWISE:
        return not isinstance(npu, Accelerator)  # a grid pools; an array multiplies
    tensors, name = inputs[:1] if op.family is Family.CONVERT else inputs, listed_as(op)
    if name in npu.dpu.channelwise_ops and len(tensors) == 2 and _by_channel(op, graph):
        return True
    return name in npu.dpu.eltwise_ops and len({t.shape for t in tensors}) == 1


def _by_channel(op: Operator, graph: Graph) -> bool:
    """Return whether a smaller operand has a number by channel, or one constant for all.

    Sums need a constant (npu_compiler, pass ConvertToScaleShift). Channels are axis 1 of images,
    else the last one.
    """
    small, whole = sorted(graph.inputs_of(op), key=lambda t: t.elements)
    is_constant = small.kind is TensorKind.CONSTANT
    shape = graph.outputs_of(op)[0].shape
    if whole.shape != shape or not (is_constant or listed_as(op) == "multiply") or not whole.dtype.is_float:
        return False
    axis = 1 if len(shape) == 4 else len(shape) - 1
    by_channel = tuple(length if place == axis else 1 for place, length in enumerate(shape))
    padded = (1,) * (len(shape) - len(small.shape)) + tuple(small.shape)
    return padded == by_channel or (is_constant and small.elements == 1)


def wished(graph: Graph) -> tuple[str, ...]:
    """Return the operators that GraphSplit prefers on the CPU: preprocessing, which is placed by cost.

    Other preferred devices, such as QuantGr's for rounding an input, are obeyed.
    """
    structural = graph.structural
    return tuple(op.name for op in graph if op.device == "cpu" and structural.issuperset(op.outputs))


class StateWork(Enum):
    """Work of reading or writing a state."""

    NONE = auto()
    """The operator uses the state's own memory."""
    COPY = auto()
    CONVERSION = auto()
    """The state is stored in another format than the device computes in."""


def state_work(op: Operator, graph: Graph, soc: Soc, device: str) -> StateWork:
    """Return the work of a ReadValue or Assign on a device; `NONE` for other operators."""
    if op.type not in STATE_TYPES:
        return StateWork.NONE
    source, result = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    if op.type == "ReadValue" and source.kind is not TensorKind.STATE:
        return StateWork.NONE
    handling = soc.devices[device].states
    if handling.converted and source.dtype is not result.dtype:
        return StateWork.CONVERSION
    copied = handling.copied_on_read if op.type == "ReadValue" else handling.copied_on_write
    return StateWork.COPY if copied else StateWork.NONE


def unpacked(graph: Graph, soc: Soc, device: str) -> Graph:
    """Return a graph whose packed weights are in the form that the devices multiply; `device` as in `Run`."""
    editor, changed = Editor.of(graph), False
    for op in graph:
        how = _handling(op, graph, soc, device)
        if how == "product":
            continue
        changed = True
        weight, dtype = graph.tensors[op.inputs[1]], graph.tensors[op.inputs[0]].dtype
        editor.part_name, editor.region = op.part, op.region
        if how in ("ahead", "int8"):
            name = f"{weight.name}/unpacked/{op.part}"
            stored = {"scales_bytes": weight.scales_bytes} if how == "int8" else {}
            if name not in editor.tensors:
                wide = DType.INT8 if stored else dtype
                editor.constant(name, weight.shape, wide, role=weight.role, **stored)
        else:
            name = _add_operators(editor, op, weight.name, dtype)
        editor.rewire(weight.name, name, only=[op.name])
    return editor.finish() if changed else graph


def _add_operators(editor: Editor, op: Operator, weight: str, dtype: DType) -> str:
    """Add the Convert and Multiply that unpack a weight at each inference; return the result's name."""
    shape, name = editor.tensors[weight].shape, f"{op.name}/unpack"
    wide = editor.op("Convert", (weight,), shape, dtype, f"{name}/convert", device=op.device)
    scale = editor.constant(f"{name}/scale", (shape[0], *(1 for _ in shape[1:])), dtype)
    return editor.op("Multiply", (wide, scale), shape, dtype, f"{name}/scaled", device=op.device)


def _handling(op: Operator, graph: Graph, soc: Soc, device: str) -> str:
    """Return how a packed weight is unpacked: in the product, ahead, to 8 bits, or by operators."""
    if op.family is not Family.MATMUL or len(op.inputs) < 2:
        return "product"
    left, weight = graph.inputs_of(op)[:2]
    packed = weight.kind is TensorKind.CONSTANT and weight.scales_bytes > 0.0 and not weight.dtype.is_float
    bits = _BITS.get(weight.dtype.bits)
    if not packed or bits is None or not left.dtype.is_float:
        return "product"
    stays = device == "auto" or op.pinned
    target = soc.named((op.device or soc.main_device) if stays else device)
    return "product" if target is None else soc.devices[target].packed_weights.get(bits, "product")
