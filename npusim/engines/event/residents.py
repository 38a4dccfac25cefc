"""Tensors that stay in SRAM between operators: name, size, first use and all users."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.cost import Unit, packing, roots, row_block_sizes
from npusim.mapping import Mapped
from npusim.ops import Family, Storage


@dataclass(frozen=True, slots=True)
class ResidentTensor:
    """A tensor that lives across operators."""

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
    users: dict[str, list[int]] = {}
    copied: set[str] = set()
    for i, group in enumerate(mapped.decisions.groups):
        if not group.unit.is_array:
            continue  # these bring nothing into SRAM
        op = graph.operators[group.main]
        if group.unit is Unit.DPU and op.family is Family.MATMUL:
            copied.update(root[op.inputs[0 if group.swapped else 1]])
        tensors = (t for name in (group.main, *group.fused) for t in _tensors(mapped, name))
        for name in {stored for t in tensors for stored in root[t]}:
            users.setdefault(name, []).append(i)
    sizes = {name: graph.tensors[name].bytes for name in residency.whole}
    blocks = row_block_sizes(graph, mapped.decisions, root, mapped.soc)
    copied.update(blocks)
    sizes |= blocks
    for name, share in residency.cached.items():
        tensor = graph.tensors[name]
        triangle = tensor.storage is Storage.TRIANGLE
        whole = (
            tensor.stored_bytes if triangle else tensor.bytes * packing(tensor, name in copied, mapped.soc)
        )
        sizes[name] = whole * share
    tiles = float(mapped.npu["tiles"]) if mapped.arch.arrays else 0.0
    found = [
        ResidentTensor(name, size * (tiles if name in copied else 1.0), users[name][0], tuple(users[name]))
        for name, size in sizes.items()
        if size > 0.0 and name in users
    ]
    return sorted(found, key=lambda resident: (resident.first, resident.name))


def _tensors(mapped: Mapped, operator: str) -> tuple[str, ...]:
    op = mapped.graph.operators[operator]
    return (*op.inputs, *op.outputs)
