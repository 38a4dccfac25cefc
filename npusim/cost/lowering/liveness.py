"""Live bytes in SRAM of an NPU at each operator, and reuse distances of tensors outside SRAM.

A resident tensor occupies its bytes from the operator that makes (or first reads) it to its last reader. Each
tile holds the right operand of a product whole; other tensors are divided among the tiles. Operators of a
row-wise fusion hand on blocks of rows and work at the same time. Their blocks and weights share SRAM: at most
as many blocks as there are kinds of units. A segment (`npusim.cost.lowering.bands`) holds its bands and all
weights.

Memory levels depend on reuse distances: the bytes of all tensors that a device touches between two uses of a
tensor, each as a whole, in the order of execution, resident or not. So distances belong to the network, not
to a plan or a machine, and hits are not overestimated. A tensor that another device touched in between is in
DRAM. Devices that share a level are one device to that level.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from npusim.arch import Npu, Soc
from npusim.cost.lowering.bands import BandBytes, band_bytes
from npusim.cost.lowering.formats import sparse_operand
from npusim.cost.lowering.plans import Decisions, Group
from npusim.cost.lowering.tables import Between, Unit
from npusim.graph import Graph
from npusim.ops import Family, Storage, Tensor, TensorKind


@dataclass(slots=True)
class Use:
    """Bytes of a group's operands and results in one pass, by the tensor that they are part of."""

    device: str
    a: Mapping[str, float] | None = None
    b: Mapping[str, float] | None = None
    extra: tuple[Mapping[str, float], ...] = ()
    made: Mapping[str, float] = field(default_factory=dict)
    triangle_bytes: float = 0.0
    """Bytes of `a` where it is a stored triangle; else 0."""

    def names(self) -> set[str]:
        """Return the tensors that are read or written."""
        return {*self.made, *(name for operand in (self.a, self.b, *self.extra) for name in operand or ())}


@dataclass(frozen=True, slots=True)
class ResidentTensor:
    """A tensor that stays in the SRAM of a device, in bytes over all tiles that an inference uses.

    `users` are the groups that use it, in order; the first produces it, or reads it first.
    """

    device: str
    name: str
    bytes: float
    users: tuple[int, ...]


def fill_reuse(
    table: Any,
    graph: Graph,
    groups: Sequence[Group],
    on_arrays: Mapping[int, Use],
    roots: Mapping[str, Any],
    leaving: Collection[str],
    shared: Mapping[str, str],
) -> None:
    """Fill in the reuse distances and pinned bytes of the operator table, which memory levels read.

    Distances are computed twice: for levels of each device's own, and for shared levels (columns with suffix
    `_shared`), to which all devices behind a level are one.

    Parameters
    ----------
    on_arrays : mapping of int to Use
        Operands and results of each group on an array device.
    leaving : collection of str
        Tensors that the network returns.
    shared : mapping of str to str
        The shared level of each device that has one.
    """
    marked = {t.name for t in graph.tensors.values() if t.cached and t.kind is not TensorKind.ACTIVATION}
    uses: list[Use | None] = []  # None for a view
    for i, group in enumerate(groups):
        use = on_arrays.get(i) or (_on_host(graph, group, roots) if group.device else None)
        uses.append(None if use is None else _with_triangle(use))
    _fill(table, uses, leaving, marked, suffix="")
    if shared:
        of_levels = [None if use is None else _behind_shared_level(use, shared) for use in uses]
        _fill(table, of_levels, leaving, marked, suffix="_shared")


def _with_triangle(use: Use) -> Use:
    """Return a use with the bytes of `a` that move: of a symmetric matrix the stored triangle alone."""
    if not use.a or not use.triangle_bytes:
        return use
    return replace(use, a=dict.fromkeys(use.a, use.triangle_bytes / len(use.a)))


def _behind_shared_level(use: Use, shared: Mapping[str, str]) -> Use:
    """Return a use with the shared level in place of its device, which is then one for all behind it."""
    return replace(use, device=f"level {shared[use.device]}") if use.device in shared else use


def _fill(
    table: Any, uses: Sequence[Use | None], leaving: Collection[str], marked: Collection[str], suffix: str
) -> None:
    """Fill in reuse distances and pinned bytes in the columns with `suffix` (own or shared levels)."""
    pinned_bytes: dict[str, dict[str, float]] = {}
    for user in filter(None, uses):
        operands = {**(user.a or {}), **(user.b or {})}
        marked_bytes = {name: size for name, size in operands.items() if name in marked}
        pinned_bytes.setdefault(user.device, {}).update(marked_bytes)
    pinned = {name for sizes in pinned_bytes.values() for name in sizes}
    for row, use, between in zip(table, uses, bytes_between(uses, leaving, pinned), strict=True):
        if use is not None:
            row["between" + suffix] = between
            row["a_pinned"] = bool(use.a) and pinned.issuperset(use.a or ())
            row["b_pinned"] = bool(use.b) and pinned.issuperset(use.b or ())
            row[f"pinned{suffix}_bytes"] = sum(pinned_bytes[use.device].values())


def _on_host(graph: Graph, group: Group, roots: Mapping[str, Any]) -> Use:
    """Return what a group on a host reads and writes: whole tensors, each once."""
    ops = [graph.operators[name] for name in group.members]
    read = {
        stored: float(graph.tensors[stored].bytes) for op in ops for t in op.inputs for stored in roots[t]
    }
    made = {t: float(graph.tensors[t].bytes) for op in ops for t in op.outputs}
    return Use(group.device, extra=(read,), made=made)


def bytes_between(
    uses: Sequence[Use | None], leaving: Collection[str], pinned: Collection[str]
) -> list[Between]:
    """Return the reuse distances of each group: bytes touched between two uses of an operand or result.

    Parameters
    ----------
    uses : sequence of Use or None
        In the order of execution; None for a view.
    leaving : collection of str
        Tensors that the network returns.
    pinned : collection of str
        Tensors with reserved capacity in a level.
    """
    distances = [Between() for _ in uses]
    recent: dict[str, tuple[int, str, float]] = {}
    """Last use of each tensor (group, device, bytes), in the order of last use."""
    producer_of: dict[str, int] = {}
    last_needed: dict[int, float] = {}
    lost: set[int] = set()
    for i, use in enumerate(uses):
        if use is None:
            continue

        def passed(names: Collection[str], device: str = use.device) -> float:
            """Return the bytes touched since the earliest last use of some tensors; -1: no such use."""
            ages = [recent[name][0] for name in names if name in recent and recent[name][1] == device]
            return _since(recent, min(ages), names, pinned) if len(ages) == len(names) and ages else -1.0

        operands = (use.a, use.b, *use.extra)
        a, b = (passed(operand) + 1.0 if operand else 0.0 for operand in (use.a, use.b))
        extra_distances = [passed(operand) for operand in use.extra]
        distances[i] = Between(
            a, b, max(extra_distances) + 1.0 if extra_distances and min(extra_distances) >= 0.0 else 0.0
        )
        read = {name for operand in operands for name in operand or ()}
        for name in read & producer_of.keys():
            producer = producer_of[name]
            if uses[producer].device != use.device:  # type: ignore[union-attr]  # a maker is no view
                lost.add(producer)
            else:
                size = _since(recent, producer, [name], pinned)
                last_needed[producer] = max(last_needed.get(producer, 0.0), size)
        for name in (*sorted(read), *use.made):
            size = max(sizes[name] for sizes in (*operands, use.made) if sizes and name in sizes)
            recent.pop(name, None)
            recent[name] = (i, use.device, size)
        producer_of.update(dict.fromkeys(use.made, i))
    for producer, size in last_needed.items():
        results = uses[producer].made  # type: ignore[union-attr]
        if producer not in lost and not leaving & results.keys():
            distances[producer] = distances[producer]._replace(c=size + 1.0)
    return distances


def _since(
    recent: dict[str, tuple[int, str, float]], index: int, excluded: Collection[str], pinned: Collection[str]
) -> float:
    """Return the distinct bytes touched from group `index` on, except tensors in `apart` and `pinned`."""
    total = 0.0
    for name in reversed(recent):
        last_use, _, size = recent[name]
        if last_use < index:
            break
        if name not in excluded and name not in pinned:
            total += size
    return total


def packing_ratio(tensor: Tensor, is_weight: bool, npu: Npu) -> float:
    """Return the bytes of an operand in transfers and in SRAM over its dense bytes, at most 1.

    Zero-value compression (ZVC) keeps the non-zeros and a bitmap of their places or, where the grid uses the
    pattern of the zeros (`npu.dpu.sparsity`), the shorter index of that pattern. An operand with a bitmap
    moves dense unless the NPU decompresses those of its role (`npu.sparsity`).
    """
    if tensor.storage is not Storage.ZVC or not tensor.bytes:
        return 1.0
    if sparse_operand(tensor, is_weight, npu) is None:
        sparsity = npu.sparsity
        decompresses = sparsity.decompress_weights if is_weight else sparsity.decompress_activations
        if not decompresses:
            return 1.0
        tensor = tensor.with_(pattern="")  # without a pattern its stored bytes are those with a bitmap
    return min(1.0, tensor.stored_bytes / tensor.bytes)


Roots = Mapping[str, Mapping[str, float]]
"""Stored tensors with the bytes of each tensor, and the share of its bytes in each."""


def roots(graph: Graph, groups: Iterable[Group]) -> Roots:
    """Map each tensor to the stored tensors that hold its bytes, with the share in each.

    A view has the bytes of its source, a part those of the split tensor. A tensor that was joined in place
    has the bytes of its parts. Operators outside `groups` work in place.
    """
    working = {name for g in groups if g.unit is not Unit.VIEW for name in g.members}
    root: dict[str, dict[str, float]] = {name: {name: 1.0} for name in graph.tensors}
    for op in graph:
        if op.name in working or not op.inputs:
            continue
        if op.type == "Concat":
            stored_in: dict[str, float] = {}
            joined_bytes = sum(graph.tensors[name].bytes for name in op.inputs)
            for name in op.inputs:
                for stored, share in root[name].items():
                    stored_in[stored] = (
                        stored_in.get(stored, 0.0) + share * graph.tensors[name].bytes / joined_bytes
                    )
        else:
            stored_in = root[op.inputs[0]]
        root.update(dict.fromkeys(op.outputs, stored_in))
    return root


_UNITS = 3
_WITH_WEIGHTS = (Family.MATMUL, Family.CONVOLUTION, Family.DEPTHWISE)


def fused_chains(graph: Graph, decisions: Decisions, root: Roots) -> list[tuple[int, ...]]:
    """Return the groups of each row-wise fusion in ascending order; fusions are sorted by last group."""
    row_fused, users = decisions.residency.row_fused, dict[str, list[int]]()
    if not row_fused:
        return []
    for i, group in enumerate(decisions.groups):
        if group.unit is not Unit.VIEW:
            for name in group.members:
                op = graph.operators[name]
                for tensor in (*op.inputs, *op.outputs):
                    for stored in row_fused.intersection(root[tensor]):
                        users.setdefault(stored, []).append(i)
    chain_of: dict[int, list[int]] = {}
    for first, *others in users.values():
        chain = chain_of.setdefault(first, [first])
        for i in others:
            other = chain_of.setdefault(i, [i])
            if other is not chain:
                longer, shorter = (chain, other) if len(chain) >= len(other) else (other, chain)
                longer += shorter
                chain_of.update(dict.fromkeys(shorter, longer))
                chain = longer
    chains = {id(chain): chain for chain in chain_of.values()}
    return sorted((tuple(sorted(chain)) for chain in chains.values()), key=lambda chain: chain[-1])


def row_block_bytes(tensor: Tensor, npu: Npu) -> float:
    """Return the bytes of a row-fused tensor in a tile: two blocks, each with a row per pixel of the grid."""
    rows = 2.0 * float(npu.dpu.grid.vpe) ** 2
    return float(min(tensor.bytes, rows * tensor.shape[-1] * tensor.dtype.bytes))


def row_block_sizes(graph: Graph, decisions: Decisions, root: Roots, soc: Soc) -> dict[str, BandBytes]:
    """Return the SRAM of the bands or row blocks of each row-fused tensor.

    MAC grid, DSPs and DMA each work on one block at a time. So a row-wise fusion holds at most three times
    the largest of `row_block_bytes` in each tile; this limit is shared among its tensors in proportion.
    """
    bands, block_bytes = decisions.residency.bands, dict[str, BandBytes]()
    for chain in fused_chains(graph, decisions, root):
        ops = [graph.operators[name] for i in chain for name in decisions.groups[i].members]
        tensors = decisions.residency.row_fused.intersection(t for op in ops for t in op.outputs)
        if not bands.keys().isdisjoint(tensors):
            block_bytes.update((name, band_bytes(graph, name, bands[name])) for name in sorted(tensors))
            continue
        npu = soc.array_devices[decisions.groups[chain[0]].device]
        sizes = {name: row_block_bytes(graph.tensors[name], npu) for name in sorted(tensors)}
        fusion_bytes = sum(sizes.values())
        limited_bytes = min(fusion_bytes, _UNITS * max(sizes.values()))
        for name, size in sizes.items():
            block_bytes[name] = BandBytes(0.0, size * limited_bytes / fusion_bytes)
    return block_bytes


def groups_in_bands(graph: Graph, decisions: Decisions, chains: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """Return the number of bands of each group that runs depth-first; `chains` of `fused_chains`."""
    residency, counts = decisions.residency, dict[int, int]()
    for chain in chains if residency.bands else ():
        results = {graph.operators[decisions.groups[i].members[-1]].outputs[0] for i in chain}
        for name in residency.row_fused & residency.bands.keys() & results:
            counts.update(dict.fromkeys(chain, residency.bands[name]))
    return counts


class Liveness:
    """Live bytes at each group of an execution order."""

    def __init__(self, graph: Graph, decisions: Decisions, soc: Soc) -> None:
        self.graph, self.groups, self.soc = graph, decisions.groups, soc
        self.root = roots(graph, self.groups)
        self.chains = fused_chains(graph, decisions, self.root)
        self.bands = groups_in_bands(graph, decisions, self.chains)
        """Number of bands of each group in a segment, which holds all its weights."""
        # All operators of a row-wise fusion work when the last one has all its operands.
        self._chain = {i: chain for chain in self.chains for i in chain}
        self._users: dict[tuple[str, str], list[int]] = {}
        """Groups that use each tensor on each array device, in order."""
        self._span: dict[str, dict[str, tuple[int, int]]] = {}
        """First and last use of each tensor on each array device."""
        self._copied_tensors: set[tuple[str, str]] = set()
        self._find_spans()
        # Bytes of tensors that stay whole and of blocks of rows; then of tensors that stay in part.
        self._spread, self._copied = self._columns(), self._columns()
        self._shared_spread, self._shared_copied = self._columns(), self._columns()
        self._kept: set[str] = set()
        self._shares: dict[str, float] = {}
        self._waiting = {
            chain[-1]: sum(sum(self._weights(i).values()) for i in chain) for chain in self.chains
        }
        """Bytes of the weights of each row-wise fusion in each tile, by its last group."""
        self._chains_of_weight: dict[str, dict[int, float]] = {}
        for i, chain in self._chain.items():
            for name, size in self._weights(i).items():
                waiting = self._chains_of_weight.setdefault(name, {})
                waiting[chain[-1]] = waiting.get(chain[-1], 0.0) + size
        self._blocks = row_block_sizes(graph, decisions, self.root, soc)
        for name, passed in self._blocks.items():
            for device in self._span[name]:
                self._add(self._copied, device, name, passed.copied)
                if passed.spread:
                    self._add(self._spread, device, name, passed.spread)
        self._resident: Mapping[str, float] = {}
        self._reserved_bytes = 0.0
        for name in decisions.residency.whole:
            self.keep_or_drop(name)
        self.keep_shares(decisions.residency.cached)
        self.keep_resident(decisions.residency.resident)

    def _columns(self) -> dict[str, list[float]]:
        """Return a list of zeros, one per group, for each array device in use."""
        used = dict.fromkeys(group.device for group in self.groups if group.unit.is_array)
        return {device: [0.0] * len(self.groups) for device in used}

    def _find_spans(self) -> None:
        """Find each tensor's users and span per array device, and the tensors that each tile holds whole."""
        for i, group in enumerate(self.groups):
            if not group.unit.is_array:
                continue  # these bring nothing into SRAM
            time, device = self._time(i), group.device
            for name in group.members:
                op = self.graph.operators[name]
                for tensor in (*op.inputs, *op.outputs):
                    for stored in self.root[tensor]:
                        users = self._users.setdefault((device, stored), [])
                        if not users or users[-1] != i:
                            users.append(i)
                        spans = self._span.setdefault(stored, {})
                        begin, end = spans.get(device, (time, time))
                        spans[device] = min(begin, time), max(end, time)
            op = self.graph.operators[group.main]
            if group.unit is Unit.DPU and op.family is Family.MATMUL:
                weights = self.root[op.inputs[0 if group.swapped else 1]]
                self._copied_tensors.update((device, stored) for stored in weights)

    def _time(self, index: int) -> int:
        chain = self._chain.get(index)
        return chain[-1] if chain else index

    def _add(self, columns: dict[str, list[float]], device: str, name: str, size: float) -> None:
        """Add bytes at each group of a device's column, from a tensor's first use there to its last."""
        begin, end = self._span[name][device]
        column = columns[device]
        for i in range(begin, end + 1):
            column[i] += size

    def _npu(self, device: str) -> Npu:
        return cast(Npu, self.soc.devices[device])

    def _weights(self, index: int) -> dict[str, float]:
        """Return the bytes of a product's weights by stored tensor, except tensors kept in SRAM anyway."""
        group = self.groups[index]
        op = self.graph.operators[group.main]
        if group.unit is not Unit.DPU or op.family not in _WITH_WEIGHTS:
            return {}
        if op.family is Family.DEPTHWISE and index not in self.bands:
            return {}  # a few, read once
        weights = self.graph.tensors[op.inputs[0 if group.swapped else 1]]
        size = weights.bytes * packing_ratio(weights, True, self._npu(group.device))
        return {
            name: size * share for name, share in self.root[weights.name].items() if name not in self._kept
        }

    def _set_kept(self, name: str, is_kept: bool) -> None:
        """Note whether a tensor is kept; weights that are not kept occupy SRAM for their row-wise fusion."""
        if is_kept != (name in self._kept):
            self._kept ^= {name}
            for last, size in self._chains_of_weight.get(name, {}).items():
                self._waiting[last] += -size if is_kept else size

    def keep_or_drop(self, name: str) -> None:
        """Switch whether a tensor stays in SRAM as a whole."""
        is_kept = name in self._kept
        self._set_kept(name, not is_kept)
        size = self.graph.tensors[name].bytes
        for device in self._span[name]:
            columns = self._copied if (device, name) in self._copied_tensors else self._spread
            self._add(columns, device, name, -size if is_kept else size)

    def keep_shares(self, shares: Mapping[str, float]) -> None:
        """Set the share of each tensor that stays in SRAM in part; earlier shares are dropped."""
        for name in self._shares:
            self._set_kept(name, False)
            for device, (begin, end) in self._span[name].items():
                for i in range(begin, end + 1):
                    self._shared_spread[device][i] = self._shared_copied[device][i] = 0.0
        self._shares = dict(shares)
        for name, share in shares.items():
            self._set_kept(name, True)
            for device in self._span[name]:
                is_copied = (device, name) in self._copied_tensors
                columns = self._shared_copied if is_copied else self._shared_spread
                self._add(columns, device, name, self._stored_bytes(name, device) * share)

    def _stored_bytes(self, name: str, device: str) -> float:
        """Return the bytes of an input or constant in SRAM of a device, or of each of its tiles."""
        tensor = self.graph.tensors[name]
        if tensor.storage is Storage.TRIANGLE:
            return float(tensor.stored_bytes)
        is_copied = (device, name) in self._copied_tensors
        return float(tensor.bytes * packing_ratio(tensor, is_copied, self._npu(device)))

    def sram_bytes(self, name: str) -> float:
        """Return the bytes that an input or constant takes in all tiles of the devices that read it."""
        copies = {
            device: float(self._npu(device).tiles) if (device, name) in self._copied_tensors else 1.0
            for device in self._span.get(name, ())
        }
        return sum(count * self._stored_bytes(name, device) for device, count in copies.items())

    def residents(self, tiles: Mapping[str, float]) -> list[ResidentTensor]:
        """Return the tensors that stay in SRAM, in the order of first use; `tiles` are in use, by device."""
        residents = []
        for (device, name), users in self._users.items():
            size, is_copied = 0.0, (device, name) in self._copied_tensors
            share = max(self._shares.get(name, 0.0), self._resident.get(name, 0.0))
            if share:
                size = self._stored_bytes(name, device) * share
            elif name in self._blocks:
                size, is_copied = self._blocks[name].copied + self._blocks[name].spread / tiles[device], True
            elif name in self._kept:
                size = self.graph.tensors[name].bytes
            if name in self._resident:  # from the begin to the end of each inference
                users = [i for i, group in enumerate(self.groups) if group.device == device]
            if size > 0.0:
                size *= tiles[device] if is_copied else 1.0
                residents.append(ResidentTensor(device, name, size, tuple(users)))
        return sorted(residents, key=lambda resident: (resident.users[0], resident.name))

    def keep_resident(self, shares: Mapping[str, float]) -> None:
        """Set the share of each constant that stays between inferences; earlier shares are dropped."""
        for sign, each in ((-1.0, self._resident), (1.0, shares)):
            for name, share in each.items():
                if share == 1.0:
                    self._set_kept(name, sign > 0.0)
                for device in self._span[name]:
                    is_copied = (device, name) in self._copied_tensors
                    column = (self._copied if is_copied else self._spread)[device]
                    size = sign * share * self._stored_bytes(name, device)
                    column[:] = [live + size for live in column]
        self._resident = dict(shares)

    def reserve(self, size: float) -> None:
        """Set the SRAM of all tiles that operators leave free for prefetched weights."""
        for device, column in self._spread.items():
            if self._npu(device).schedule.prefetch:
                column[:] = [live - self._reserved_bytes + size for live in column]
        self._reserved_bytes = size

    def reserved_at(self, index: int) -> float:
        """Return the SRAM that a group leaves free for prefetched weights."""
        return self._reserved_bytes if self._npu(self.groups[index].device).schedule.prefetch else 0.0

    def is_resident(self, name: str) -> bool:
        """Return whether all of a constant stays between inferences."""
        return self._resident.get(name, 0.0) == 1.0

    def affected(self, name: str) -> Iterator[int]:
        """Yield the groups, some more than once, whose live bytes depend on whether a tensor is kept."""
        for begin, end in self._span[name].values():
            for i in range(begin, end + 1):
                chain = self._chain.get(i)
                if chain is None:
                    yield i
                elif chain[-1] == i:
                    yield from chain
        for last in self._chains_of_weight.get(name, ()):
            yield from self._chain[last]

    def share_to_fetch(self, name: str, index: int) -> float:
        """Return the share of a tensor that a group reads from outside SRAM."""
        if name in self._resident:
            return 1.0 - self._resident[name]
        share = self._shares.get(name, 0.0)
        if not share or index <= self._users[self.groups[index].device, name][0]:
            return 1.0
        return 1.0 - share

    def bytes_at(self, index: int) -> tuple[float, float]:
        """Return the live bytes at a group: (spread over the tiles, held whole by each tile).

        They count the SRAM of the group's device; for a group on a host, the SRAM of all array devices. For a
        row-fused group, the weights of the other groups of its fusion count as held whole, in a segment with
        its own.
        """
        time, group = self._time(index), self.groups[index]
        devices = [group.device] if group.unit.is_array else [*self._spread]
        spread = sum(self._spread[d][time] + self._shared_spread[d][time] for d in devices)
        copied = sum(self._copied[d][time] + self._shared_copied[d][time] for d in devices)
        if index not in self._chain:
            return spread, copied
        own = 0.0 if index in self.bands else sum(self._weights(index).values())
        return spread, copied + (self._waiting[time] - own)

    def waits_elsewhere(self, index: int) -> bool:
        """Return whether the SRAM of another device holds live bytes while a group works."""
        device, time = self.groups[index].device, self._time(index)
        if self.groups[index].unit is Unit.VIEW:
            return False
        columns = (self._spread, self._shared_spread, self._copied, self._shared_copied)
        return any(column[time] > 0.0 for part in columns for d, column in part.items() if d != device)
