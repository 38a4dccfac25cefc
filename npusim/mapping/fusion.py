"""Placement and fusion: which unit runs each operator, and which operators run as one.

A technique may have written a wish on an operator (GraphSplit: preprocessing to the CPU); it is obeyed unless
the user sends everything to one device.

The post-processing engine behind the MAC grid applies biases, activations and requantisation to an output on
its way to SRAM (`npu.dpu.fused_ops`, a switch for each operator type). An addend or factor that is constant
is one number or one per output channel: the last axis of a matrix product, axis 1 of a convolution (NCHW).
With `npu.dpu.fuse_residual` the sum with a second whole tensor rides along too.

A CPU's or GPU's runtime joins whole chains of elementwise operators to one pass over the data, whatever other
tensors they read (`cpu.fused_ops`); there each costs its arithmetic. Where devices share a network, what runs
on one of them is joined as it is there alone.

Row-wise fusion: attention makes N x N scores, and masks, scales and normalises them row by row before a
product uses them up. Compilers run such operators a block of rows at a time (vertical fusion), so that only
masks and results cross DRAM. A tensor can be passed on in blocks of rows where its maker makes it by rows,
its one reader uses it by rows, nobody else asks for it, and no host works in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from npusim.arch import Accelerator, Npu, Soc
from npusim.cost import STATE_TYPES, DpuOperation, Group, Roots, Unit, execution_of, listed_as
from npusim.errors import InfeasibleError
from npusim.graph import Graph
from npusim.mapping.in_place import in_place
from npusim.mapping.order import in_runs
from npusim.mapping.states import StateWork, state_work
from npusim.ops import DType, Family, Operator, RowUse, Tensor, TensorKind, WorkClass

DeviceChoice = str
"""Where a network runs: the name of a device, or a kind for the first of it; `auto` is the SoC's main device,
an NPU where it has one, with the wishes that techniques wrote on operators."""


class _Place(NamedTuple):
    """Who runs an operator."""

    device: str
    """Name of the device; empty for a view."""
    unit: Unit


_NOWHERE = _Place("", Unit.VIEW)
_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION, DpuOperation.DEPTHWISE)


def place_of(op: Operator, graph: Graph, soc: Soc, device: DeviceChoice, whole: bool = False) -> _Place:
    """Return the device and the unit of it that run an operator.

    Parameters
    ----------
    device : str
        "auto" honours the operator's wish; any other, a name or a kind of device, sends every operator there.
    whole : bool
        Whether the device is taken to run everything, whatever its data sheet lists.

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
        have = ", ".join(soc.devices)
        raise InfeasibleError(
            f"operator {op.name!r} should run on the {wanted.upper()}, which {soc.name} lacks; it has: {have}"
        )
    if not whole:
        target = _runner(op, graph, soc, target)
    work = state_work(op, graph, soc, target)
    if op.family is Family.VIEW and work is StateWork.NONE:
        return _NOWHERE
    npu = soc.array_devices.get(target)
    if npu is None:
        return _Place(target, Unit.HOST)
    if graph.meta.dynamic_shapes:
        raise InfeasibleError(
            f"{graph.name} has dynamic shapes, and an NPU runs what was compiled for fixed shapes; allowed: "
            "workload.shapes=static, or --device cpu or gpu"
        )
    if work is StateWork.COPY:
        return _Place(target, Unit.DMA)
    execution = execution_of(op.traits)
    if execution.on_dma(op):
        return _Place(target, Unit.DMA)
    on_grid = execution.dpu is not None and _grid_can(op, execution.dpu, graph, npu)
    return _Place(target, Unit.DPU if on_grid else Unit.DSP)


def can_run(op: Operator, graph: Graph, soc: Soc, device: str) -> bool:
    """Whether a device can run an operator: its data sheet lists it, and no unit is missing for it.

    An array without vector units multiplies in its own formats and no others.
    """
    ops = soc.devices[device].ops
    if ops is not None and op.type.lower() not in ops and listed_as(op) not in ops:
        return op.family is Family.VIEW  # the same bytes under another shape
    execution, array = execution_of(op.traits), soc.devices[device]
    if isinstance(array, Accelerator) and not array.has_vector_units and execution.dpu in _PRODUCTS:
        return _grid_can(op, execution.dpu, graph, array)
    return device in soc.hosts or not execution.host_only


def _runner(op: Operator, graph: Graph, soc: Soc, wanted: str) -> str:
    """Return the device that runs an operator: the one wanted, or the first of its fallbacks that can."""
    device, tried = wanted, [wanted]
    while not can_run(op, graph, soc, device):
        following = soc.devices[device].fallback
        if following is None:
            why = execution_of(op.traits).host_only
            if why and len(tried) == 1 and soc.devices[device].ops is None:
                raise InfeasibleError(_only_on_hosts(op, graph, why))
            raise InfeasibleError(
                f"no device runs operator {op.name!r} ({op.type}): not {', nor '.join(tried)} of {soc.name}; "
                f"list it under devices.{device}.ops, or say under devices.{device}.fallback who runs it"
            )
        device = following
        tried.append(device)
    return device


def _only_on_hosts(op: Operator, graph: Graph, why: str) -> str:
    """Say that an NPU cannot run an operator, and which forms of the network it can."""
    forms = f"it can run the forms {', '.join(graph.meta.npu_forms)} (--set workload.form=...)"
    instead = f"{forms}, " if graph.meta.npu_forms else ""
    return f"operator {op.name!r} ({op.type}): {why}; {instead}a CPU or GPU this one too (--device cpu)"


def _grid_can(op: Operator, operation: DpuOperation, graph: Graph, npu: Npu) -> bool:
    """Whether the MAC grid runs an operator: elementwise only listed types, on equal shapes.

    The limits of a quantisation are loaded with the workload.
    """
    inputs = graph.inputs_of(op)
    dtype = inputs[0].dtype
    rates = npu.dpu.macs_per_mpe
    if dtype.is_float:
        known = "fp16" in rates or "fp32" in rates
    else:
        known = dtype is not DType.BOOL and (
            (dtype.bits <= 8 and "int8" in rates) or (dtype.bits <= 4 and "int4" in rates)
        )
    if not known:
        return False
    if operation in _PRODUCTS:
        return True
    if operation is not DpuOperation.ELTWISE:
        return not isinstance(npu, Accelerator)  # a grid pools; an array multiplies
    tensors = inputs[:1] if op.family is Family.CONVERT else inputs
    return listed_as(op) in npu.dpu.eltwise_ops and len({t.shape for t in tensors}) == 1


def wished(graph: Graph) -> tuple[str, ...]:
    """Return the operators that GraphSplit wishes on the CPU: preprocessing, which is placed by cost.

    Other wishes, such as QuantGr's for who rounds an input, say how the network is used and are obeyed.
    """
    structural = graph.structural
    return tuple(op.name for op in graph if op.device == "cpu" and structural.issuperset(op.outputs))


def fuse(
    graph: Graph,
    soc: Soc,
    device: DeviceChoice,
    swap_operands: bool | Collection[str] = False,
    whole: bool = False,
) -> tuple[Group, ...]:
    """Group a graph's operators for a SoC.

    Parameters
    ----------
    swap_operands : bool or collection of str
        Products of two 2-D matrices whose right operand is laid on the pixels, so that the left one is the
        weight: all of them, none, or those named.
    whole : bool
        See `place_of`.

    Returns
    -------
    tuple of Group
        Each operator in exactly one group, in an order that enters devices seldom.
    """
    groups: list[tuple[int, Group]] = []
    taken: set[str] = set()
    place = {op.name: i for i, op in enumerate(graph)}
    places = {op.name: place_of(op, graph, soc, device, whole) for op in graph}
    for op in graph:
        if op.name in taken:
            continue
        home, unit = places[op.name]
        fused = _followers(op, places, graph, soc, taken)
        taken.update(fused)
        wanted = swap_operands if isinstance(swap_operands, bool) else op.name in swap_operands
        swapped = wanted and unit is Unit.DPU and op.family is Family.MATMUL and graph.work(op).batch == 1
        # A follower may read what is made after its group's main operator; nobody else waits for what lies
        # between the two.
        late = unit.is_host or _reads_others(fused, graph)
        last = place[fused[-1]] if fused and late else place[op.name]
        groups.append((last, Group(op.name, fused, unit, swapped, home)))
    turn = {part: i for i, part in enumerate(graph.parts)}
    groups.sort(key=lambda placed: (turn[graph.operators[placed[1].main].part], placed[0]))
    return in_runs(graph, in_place(graph, soc, tuple(group for _, group in groups)))


def _followers(
    op: Operator, places: Mapping[str, _Place], graph: Graph, soc: Soc, taken: set[str]
) -> tuple[str, ...]:
    """Operators that can be applied to the result of `op` on its way out, in order; none that is `taken`."""
    here = places[op.name]
    if not _leads(op, here, soc):
        return ()
    found: list[str] = []
    current = op
    while True:
        result = current.outputs[0]
        readers = graph.readers(result)
        if len(readers) != 1 or result in graph.outputs:
            return tuple(found)
        follower = readers[0]
        own = places[follower.name]
        if follower.name in taken or not _rides_along(follower, op, result, here, own, graph, soc):
            return tuple(found)
        found.append(follower.name)
        current = follower


def _leads(op: Operator, here: _Place, soc: Soc) -> bool:
    """Whether other operators may ride along with one: on a host with products, and with each other."""
    if here.unit.is_host:
        return op.traits.work_class is WorkClass.CONTRACTION or _is_listed(op, here.device, soc)
    return here.unit is Unit.DPU


def _rides_along(
    op: Operator, main: Operator, result: str, here: _Place, own: _Place, graph: Graph, soc: Soc
) -> bool:
    if own.device != here.device or not _is_listed(op, here.device, soc) or op.part != main.part:
        return False
    if graph.tensors[op.outputs[0]].elements != graph.tensors[result].elements:
        return False
    if here.unit.is_host:
        return True
    if graph.tensors[op.outputs[0]].dtype.bits > graph.tensors[result].dtype.bits:
        return False  # outputs are narrowed on their way out, not widened: traced networks do that on DSPs
    others = [graph.tensors[t] for t in op.inputs if t != result]
    if (
        op.type == "Add"
        and soc.array_devices[here.device].dpu.fuse_residual
        and len(others) == 1
        and main.traits.work_class is WorkClass.CONTRACTION
    ):
        return others[0].shape == graph.tensors[result].shape or _is_loaded_with(
            others[0], main, graph.tensors[result]
        )
    return all(_is_loaded_with(t, main, graph.tensors[result]) for t in others)


def _is_listed(op: Operator, device: str, soc: Soc) -> bool:
    """Whether an operator can ride along, and the device lists its type."""
    return op.traits.rides_along and listed_as(op) in fused_on(soc, device)


def _reads_others(fused: Sequence[str], graph: Graph) -> bool:
    """Whether an operator that rides along reads a computed tensor beside its group's own result."""
    computed = [
        t
        for name in fused
        for t in graph.operators[name].inputs
        if graph.tensors[t].kind is TensorKind.ACTIVATION
    ]
    return len(computed) > len(fused)


def _is_loaded_with(other: Tensor, main: Operator, result: Tensor) -> bool:
    """Whether an operand is loaded with the workload: a constant, one number or one per output channel."""
    if other.kind is not TensorKind.CONSTANT:
        return False
    if other.elements == 1:
        return True
    if main.traits.work_class is not WorkClass.CONTRACTION:
        return False
    rank = len(result.shape)
    axis = rank - 1 if main.family is Family.MATMUL else 1
    along = dict(enumerate(other.shape, start=rank - len(other.shape)))
    return (
        all(length == 1 or i == axis for i, length in along.items()) and other.elements == result.shape[axis]
    )


def fused_on(soc: Soc, device: str) -> Sequence[str]:
    """Return the operator types that a device applies to a result on its way out."""
    array = soc.array_devices.get(device)
    return array.dpu.fused_ops if array is not None else soc.hosts[device].fused_ops


def row_fusable(graph: Graph, groups: tuple[Group, ...], root: Roots) -> frozenset[str]:
    """Return the tensors that the NPU's operators can pass on in blocks of rows."""
    readers: dict[str, list[tuple[Group, str]]] = {}
    stretch: dict[str, int] = {}
    """Of each group: how often work has passed to another device before it."""
    passed, device = 0, ""
    for group in groups:
        if group.device and group.device != device:
            passed, device = passed + 1, group.device
        stretch[group.main] = passed
        if group.unit is not Unit.VIEW:
            for name in dict.fromkeys(
                t for op in (group.main, *group.fused) for t in graph.operators[op].inputs
            ):
                for stored in root[name]:
                    readers.setdefault(stored, []).append((group, name))
    leaving = {stored for name in (*graph.outputs, *graph.passed_between_parts) for stored in root[name]}
    found = set()
    for group in groups:
        op = graph.operators[group.main]
        last = graph.operators[group.fused[-1]] if group.fused else op
        if not group.unit.is_array or len(last.outputs) != 1 or not _makes_rows(op, graph):
            continue
        if op.repeats > 1:  # its result exists as a whole each time
            continue
        name = last.outputs[0]
        if (
            name not in leaving
            and len(readers.get(name, ())) == 1
            and _reads_rows(*readers[name][0], name, graph)
            and stretch[readers[name][0][0].main] == stretch[group.main]
        ):
            found.add(name)
    return frozenset(found)


def _makes_rows(op: Operator, graph: Graph) -> bool:
    """Whether an operator can make its result row after row, each from rows of its operands."""
    if op.traits.rows is RowUse.ALONG_AXES:
        return _spares_rows(op, graph.tensors[op.inputs[0]])
    return op.traits.rows is not RowUse.WHOLE


def _reads_rows(group: Group, name: str, stored: str, graph: Graph) -> bool:
    """Whether a group uses rows of a tensor in order, each for the same row of its result."""
    op, tensor = graph.operators[group.main], graph.tensors[name]
    if not group.unit.is_array or name not in op.inputs or not tensor.shape or op.repeats > 1:
        return False
    if _rows(tensor) != _rows(graph.tensors[stored]):  # seen under another shape
        return False
    rows = op.traits.rows
    if rows is RowUse.LEFT_OPERAND:
        whole = op.inputs[1] == name or op.attrs.get("transpose_a")
        return not whole and not group.swapped
    if rows is RowUse.ALONG_AXES:
        return _spares_rows(op, tensor)
    if rows is RowUse.IMAGE:  # [images, channels, ...]
        return _rows(tensor) in tensor.shape[:2]
    result = graph.tensors[op.outputs[0]]
    return rows is RowUse.SAME and result.shape[: len(tensor.shape) - 1] == tensor.shape[:-1]


def _rows(tensor: Tensor) -> int:
    """Length of the first axis that is longer than 1."""
    return next((length for length in tensor.shape if length > 1), 1)


def _spares_rows(op: Operator, tensor: Tensor) -> bool:
    """Whether an operator along axes leaves the first axis, that of the rows, alone."""
    rank = len(tensor.shape)
    axes = op.attrs.get("axes", (rank - 1,))
    return rank > 1 and all(axis % rank for axis in axes)
