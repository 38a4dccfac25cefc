"""What passes between two uses of a tensor outside SRAM: the reuse that memory levels live on.

Tensors are taken in the order of execution, each as a whole, with the bytes that DMA moves of it. Everything
that a device touches between two uses counts, whether a residency plan keeps it in SRAM or not: so the counts
belong to the network, not to a plan or a machine, and err on the side of fewer hits. What another device
touches in between is found in DRAM, by everybody. Devices that share a level are one device to that level.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npusim.cost.between import Between
from npusim.cost.decisions import Group
from npusim.graph import Graph
from npusim.ops import TensorKind


@dataclass(frozen=True, slots=True)
class Use:
    """What a group reads and makes on a device."""

    device: str
    a: Mapping[str, float] | None = None
    b: Mapping[str, float] | None = None
    extra: tuple[Mapping[str, float], ...] = ()
    """Operands: bytes by the tensor that they are part of."""
    made: Mapping[str, float] | None = None
    """Results by their bytes."""


def fill_reuse(
    table: Any, graph: Graph, groups: Sequence[Group], operands: Mapping[int, Any], roots: Mapping[str, Any],
    leaving: Collection[str], shared: Mapping[str, str],
) -> None:  # fmt: skip
    """Fill in the columns of the operator table that memory levels live on.

    Parameters
    ----------
    operands : mapping
        Of each group on an array device what it reads and makes (`npusim.cost.lowering`).
    leaving : collection of str
        Tensors that the network returns.
    shared : mapping of str to str
        Of each device that shares a level, which.
    """
    kept = {t.name for t in graph.tensors.values() if t.cached and t.kind is not TensorKind.ACTIVATION}
    uses: list[Use | None] = []
    for i, group in enumerate(groups):
        found = operands.get(i)
        if not group.device:
            uses.append(None)
        elif found is None:
            uses.append(_on_host(graph, group, roots))
        else:
            a = found.a
            if a and found.triangle_bytes:
                a = dict.fromkeys(a, found.triangle_bytes / len(a))
            made = {result.name: result.bytes for result in found.results}
            uses.append(Use(group.device, a, found.b, found.extra, made))
    _fill(table, uses, leaving, kept, ("between", "pinned_bytes"))
    if shared:
        places = {device: f"level {level}" for device, level in shared.items()}
        as_one = [
            None if use is None else replace(use, device=places.get(use.device, use.device)) for use in uses
        ]
        _fill(table, as_one, leaving, kept, ("between_shared", "pinned_shared_bytes"))


def _fill(
    table: Any, uses: Sequence[Use | None], leaving: Collection[str], kept: Collection[str],
    columns: tuple[str, str],
) -> None:  # fmt: skip
    """Fill in what passes and what is marked to stay, each into its column."""
    moved: dict[str, dict[str, float]] = {}
    for mover in (one for one in uses if one is not None):
        for operand in (mover.a, mover.b):
            marked = {name: size for name, size in (operand or {}).items() if name in kept}
            moved.setdefault(mover.device, {}).update(marked)
    pinned = {name for found in moved.values() for name in found}
    for row, use, between in zip(table, uses, bytes_between(uses, leaving, pinned), strict=True):
        if use is None:
            continue
        row[columns[0]] = between
        row["a_pinned"], row["b_pinned"] = (
            bool(one) and pinned.issuperset(one or ()) for one in (use.a, use.b)
        )
        row[columns[1]] = sum(moved.get(use.device, {}).values())


def _on_host(graph: Graph, group: Group, roots: Mapping[str, Any]) -> Use:
    ops = [graph.operators[name] for name in (group.main, *group.fused)]
    read = {
        stored: float(graph.tensors[stored].bytes) for op in ops for t in op.inputs for stored in roots[t]
    }
    made = {t: float(graph.tensors[t].bytes) for op in ops for t in op.outputs}
    return Use(group.device, extra=(read,), made=made)


def bytes_between(
    uses: Sequence[Use | None], leaving: Collection[str], pinned: Collection[str]
) -> list[Between]:
    """Return what passes between uses, for each group.

    Parameters
    ----------
    uses : sequence of Use or None
        In the order of execution; None for a view.
    leaving : collection of str
        Tensors that the network returns.
    pinned : collection of str
        Tensors that have room of their own in a level and take none from others.
    """
    found = [Between() for _ in uses]
    recent: dict[str, tuple[int, str, float]] = {}
    """Of each tensor its last use, by whom, and its bytes; the last used at the end."""
    made: dict[str, int] = {}
    last_needed: dict[int, float] = {}
    lost: set[int] = set()
    for i, use in enumerate(uses):
        if use is None:
            continue

        def passed(names: Collection[str], device: str = use.device) -> float:
            """Bytes since the earliest of the last uses of some tensors, these apart."""
            ages = [recent[name][0] for name in names if name in recent and recent[name][1] == device]
            return _since(recent, min(ages), names, pinned) if len(ages) == len(names) and ages else -1.0

        operands = (use.a, use.b, *use.extra)
        between = [passed(one) if one else -1.0 for one in (use.a, use.b)]
        more = [passed(one) for one in use.extra]
        a, b = (max(0.0, one + 1.0) for one in between)
        found[i] = Between(a, b, max(more) + 1.0 if more and min(more) >= 0.0 else 0.0)
        read = {name for one in operands for name in one or ()}
        for name in read & made.keys():
            maker = made[name]
            if uses[maker].device != use.device:  # type: ignore[union-attr]  # a maker is no view
                lost.add(maker)
            else:
                size = _since(recent, maker, [name], pinned)
                last_needed[maker] = max(last_needed.get(maker, 0.0), size)
        for name in (*sorted(read), *(use.made or ())):
            size = max((one[name] for one in (*operands, use.made) if one and name in one), default=0.0)
            recent.pop(name, None)
            recent[name] = (i, use.device, size)
        made.update(dict.fromkeys(use.made or (), i))
    for maker, size in last_needed.items():
        results = uses[maker].made or {}  # type: ignore[union-attr]
        if maker not in lost and not leaving & results.keys():
            found[maker] = found[maker]._replace(c=size + 1.0)
    return found


def _since(
    recent: dict[str, tuple[int, str, float]], index: int, apart: Collection[str], pinned: Collection[str]
) -> float:
    """Return the distinct bytes touched by a group and after it."""
    total = 0.0
    for name in reversed(recent):
        at, _, size = recent[name]
        if at < index:
            break
        if name not in apart and name not in pinned:
            total += size
    return total
