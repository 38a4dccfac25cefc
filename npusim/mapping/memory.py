"""DRAM that a network occupies: constants, inputs, outputs and the results that live at once.

DRAM holds inputs, outputs and constants for the whole run, and a result from the operator that writes it to
its last reader, unless it stays in the NPU's SRAM. Each request in flight has its own inputs, outputs and
results; constants are shared.
"""

from __future__ import annotations

from npusim.arch import Soc
from npusim.cost import Decisions, Group, Roots, roots
from npusim.documents import Part
from npusim.graph import Graph
from npusim.ops import DType, Storage, Tensor, TensorKind

_FP32_BYTES = 4.0


class MemoryUse(Part):
    """Bytes of DRAM that a network occupies while it runs."""

    dram_peak_bytes: float
    """All DRAM at its peak, in bytes."""
    constants_bytes: float
    """Weights, biases and masks, as stored."""
    inputs_bytes: float
    """Inputs of all requests in flight."""
    outputs_bytes: float
    """Outputs of all requests in flight."""
    results_peak_bytes: float
    """Most bytes of intermediate results that live in DRAM at one time, of all requests in flight."""
    peak_operator: str
    """Operator at that peak."""
    states_bytes: float = 0.0
    """States of all requests in flight, with the separate buffers of new values."""


def memory_use(graph: Graph, decisions: Decisions, soc: Soc, requests: int = 1) -> MemoryUse:
    """Return the DRAM that a mapped graph needs; hosts without fp16 arithmetic keep fp32 copies."""
    root = roots(graph, decisions.groups)
    wide = _kept_wide(graph, decisions.groups, root, soc)
    in_sram = decisions.residency.whole | decisions.residency.row_fused
    outputs = {stored for name in graph.outputs for stored in root[name]}
    written = {stored for name in graph.state_results for stored in root[name]}
    constants = inputs = results = states = 0.0
    for name in {stored for tensors in root.values() for stored in tensors}:
        tensor = graph.tensors[name]
        size = _size(tensor, name in wide)
        if tensor.kind is TensorKind.CONSTANT:
            constants += size
        elif tensor.kind is TensorKind.INPUT:
            inputs += size
        elif tensor.kind is TensorKind.STATE:
            read = [graph.tensors[op.outputs[0]] for op in graph.readers(name) if name in root[op.outputs[0]]]
            states += max((_size(result, name in wide) for result in read), default=size)
        elif name in written:
            states += 0.0 if name in graph.state_results else size  # a copy lies in the state itself
        elif name in outputs:
            results += size
    peak, where = _live_peak(graph, decisions.groups, root, in_sram | outputs, wide)
    inputs, results, peak, states = (bytes_ * requests for bytes_ in (inputs, results, peak, states))
    total = constants + inputs + results + peak + states
    return MemoryUse(
        dram_peak_bytes=total,
        constants_bytes=constants,
        inputs_bytes=inputs,
        outputs_bytes=results,
        results_peak_bytes=peak,
        peak_operator=where,
        states_bytes=states,
    )


def _size(tensor: Tensor, is_wide: bool) -> float:
    if is_wide and tensor.dtype.is_float and tensor.dtype.bytes < _FP32_BYTES:
        if tensor.storage is Storage.DENSE:
            return tensor.elements * _FP32_BYTES
        if tensor.storage is Storage.CSR:
            return tensor.with_(dtype=DType.FP32).stored_bytes
    return tensor.stored_bytes


def _kept_wide(graph: Graph, groups: tuple[Group, ...], root: Roots, soc: Soc) -> set[str]:
    """Return the fp16 tensors that hosts without fp16 arithmetic keep in fp32."""
    wide: set[str] = set()
    for group in groups:
        rates = soc.hosts[group.device].macs_per_cycle if group.unit.is_host else {}
        if group.unit.is_host and rates.get("fp16", 0.0) <= rates.get("fp32", 0.0):
            for op in (graph.operators[name] for name in group.members):
                wide.update(stored for t in (*op.inputs, *op.outputs) for stored in root[t])
    return wide


def _live_peak(
    graph: Graph, groups: tuple[Group, ...], root: Roots, elsewhere: set[str] | frozenset[str], wide: set[str]
) -> tuple[float, str]:
    """Return the peak bytes of results in DRAM, and the operator that runs at the peak."""
    begin: dict[str, int] = {}
    end: dict[str, int] = {}
    for i, group in enumerate(groups):
        members = [graph.operators[name] for name in group.members]
        inner = {t for op in members[1:] for t in op.inputs}
        for op in members:
            for stored in (s for tensor in op.outputs if tensor not in inner for s in root[tensor]):
                begin.setdefault(stored, i)
            for tensor in (*op.inputs, *op.outputs):
                end.update(dict.fromkeys(root[tensor], i))
    change = [0.0] * (len(groups) + 1)
    for name, first in begin.items():
        if graph.tensors[name].kind is TensorKind.ACTIVATION and name not in elsewhere:
            size = _size(graph.tensors[name], name in wide)
            change[first] += size
            change[end[name] + 1] -= size
    live = peak = 0.0
    where = groups[0].main if groups else ""
    for group, step in zip(groups, change, strict=False):
        live += step
        if live > peak:
            peak, where = live, group.main
    return peak, where
