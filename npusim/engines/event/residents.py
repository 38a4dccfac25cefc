"""Tensors that stay in SRAM between operators: name, size, first use and all users."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.cost import Unit, packing, roots, row_block_sizes
from npusim.mapping import Mapped
from npusim.ops import Family, Storage


@dataclass(frozen=True, slots=True)
class ResidentTensor:
    """A tensor that lives across operators."""

    device: str
    """Array device that holds it."""
    name: str
    bytes: float
    """Room in SRAM over all tiles that an inference uses."""
    first: int
    """Group that produces it, or reads it first."""
    users: tuple[int, ...]
    """Groups that use it, in order."""


def resident_tensors(mapped: Mapped) -> list[ResidentTensor]:
    """Return the tensors that the mapping keeps in SRAM, in the order of their first use.

    Notes
    -----
    The right operand of a product is held by every tile, any other tensor is spread over them: the rule of
    `npusim.cost.liveness`, which counts the same bytes without the names.
    """
    graph, residency = mapped.graph, mapped.decisions.residency
    root = roots(graph, mapped.decisions.groups)
    users: dict[tuple[str, str], list[int]] = {}
    """Of each array device and tensor."""
    copied: set[tuple[str, str]] = set()
    for i, group in enumerate(mapped.decisions.groups):
        if not group.unit.is_array:
            continue  # these bring nothing into SRAM
        op = graph.operators[group.main]
        if group.unit is Unit.DPU and op.family is Family.MATMUL:
            weights = root[op.inputs[0 if group.swapped else 1]]
            copied.update((group.device, stored) for stored in weights)
        tensors = (t for name in (group.main, *group.fused) for t in _tensors(mapped, name))
        for name in {stored for t in tensors for stored in root[t]}:
            users.setdefault((group.device, name), []).append(i)
    blocks = row_block_sizes(graph, mapped.decisions, root, mapped.soc)
    found = []
    for (device, name), used in users.items():
        tensor, is_copied = graph.tensors[name], (device, name) in copied or name in blocks
        size = 0.0
        if name in residency.cached:
            whole = tensor.stored_bytes
            if tensor.storage is not Storage.TRIANGLE:
                whole = tensor.bytes * packing(tensor, is_copied, mapped.soc.array_devices[device])
            size = whole * residency.cached[name]
        elif name in blocks:
            size = blocks[name]
        elif name in residency.whole:
            size = tensor.bytes
        if size > 0.0:
            copies = float(mapped.arch[device]["tiles"]) if is_copied else 1.0
            found.append(ResidentTensor(device, name, size * copies, used[0], tuple(used)))
    return sorted(found, key=lambda resident: (resident.first, resident.name))


def _tensors(mapped: Mapped, operator: str) -> tuple[str, ...]:
    op = mapped.graph.operators[operator]
    return (*op.inputs, *op.outputs)
