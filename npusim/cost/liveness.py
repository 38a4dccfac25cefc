"""Which bytes are live in the NPU's SRAM at each operator, and which operators run at the same time.

A tensor that stays occupies its bytes from the operator that makes (or first reads) it to its last reader. A
tensor that serves as the right operand of a product is held whole by every tile; any other is spread over
them. Operators of a row-wise fusion, which pass blocks of rows on to each other, work at the same time:
blocks and weights of all of them lie in SRAM side by side, as many blocks at most as there are kinds of units
to work on one.
"""

from __future__ import annotations

from collections.abc import Mapping

from npusim.arch import Soc
from npusim.cost.decisions import Decisions, Group
from npusim.cost.tables import Unit
from npusim.graph import Graph
from npusim.ops import Family, Storage, Tensor

__all__ = ["Liveness", "fused_chains", "packing", "roots", "row_block_sizes"]


def packing(tensor: Tensor, is_weight: bool, soc: Soc) -> float:
    """Return bytes of an operand as it is moved and kept over its dense bytes.

    A tensor stored with a bitmap stays packed in SRAM where the SoC accepts that for its role
    (`npu.sparsity.decompress_weights`, `decompress_activations`); otherwise it is moved dense.
    """
    if not soc.has("npu"):
        return 1.0
    switches = soc.npu.sparsity
    accepted = switches.decompress_weights if is_weight else switches.decompress_activations
    if tensor.storage is not Storage.ZVC or not accepted or not tensor.bytes:
        return 1.0
    return min(1.0, tensor.stored_bytes / tensor.bytes)


def roots(graph: Graph) -> dict[str, str]:
    """Map every tensor to the one whose bytes it is: views share theirs with what they view."""
    root: dict[str, str] = {name: name for name in graph.tensors}
    for op in graph:
        if op.family is Family.VIEW and op.inputs:
            for output in op.outputs:
                root[output] = root[op.inputs[0]]
    return root


_UNITS = 3


def fused_chains(graph: Graph, decisions: Decisions, root: Mapping[str, str]) -> list[tuple[int, ...]]:
    """Return the groups of each row-wise fusion, in order.

    Parameters
    ----------
    graph : Graph
    decisions : Decisions
    root : mapping
        The tensor whose bytes each tensor is, from `npusim.cost.liveness.roots`.
    """
    row_fused = decisions.residency.row_fused
    found: list[tuple[set[str], set[int]]] = []
    for i, group in enumerate(decisions.groups):
        if group.unit is Unit.VIEW:
            continue
        ops = [graph.operators[name] for name in (group.main, *group.fused)]
        tensors = {root[t] for op in ops for t in (*op.inputs, *op.outputs)} & row_fused
        if tensors:
            met = [fusion for fusion in found if fusion[0] & tensors]
            found = [fusion for fusion in found if not fusion[0] & tensors]
            found.append((tensors.union(*(c[0] for c in met)), {i}.union(*(c[1] for c in met))))
    return [tuple(sorted(members)) for _, members in found]


def row_block_bytes(tensor: Tensor, soc: Soc) -> float:
    """Return what a row-fused tensor takes in a tile: one block of rows is made while one is read.

    A block has as many rows as the grid has pixels.
    """
    rows = 2.0 * float(soc.npu.dpu.grid.vpe) ** 2
    return float(min(tensor.bytes, rows * tensor.shape[-1] * tensor.dtype.bytes))


def row_block_sizes(
    graph: Graph, decisions: Decisions, root: Mapping[str, str], soc: Soc
) -> dict[str, float]:
    """Return the bytes that the row blocks of each row-fused tensor take in each tile.

    Notes
    -----
    Grid, DSPs and DMA work on one block each at a time, so a row-wise fusion has as many blocks at a time, of
    the size of the largest at most.
    """
    found: dict[str, float] = {}
    for members in fused_chains(graph, decisions, root):
        ops = [
            graph.operators[name]
            for i in members
            for name in (decisions.groups[i].main, *decisions.groups[i].fused)
        ]
        tensors = {root[t] for op in ops for t in op.outputs} & decisions.residency.row_fused
        sizes = {name: row_block_bytes(graph.tensors[name], soc) for name in sorted(tensors)}
        total = min(sum(sizes.values()), _UNITS * max(sizes.values()))
        found.update((name, size * total / sum(sizes.values())) for name, size in sizes.items())
    return found


class Liveness:
    """Live bytes at each group of an execution order.

    Parameters
    ----------
    graph : Graph
    decisions : Decisions
    soc : Soc
        For what it accepts packed.
    """

    def __init__(self, graph: Graph, decisions: Decisions, soc: Soc) -> None:
        self.root = root = roots(graph)
        found = fused_chains(graph, decisions, root)
        # The last operator of a row-wise fusion has everything it needs by its turn: all of them work then.
        self._when = {i: members[-1] for members in found for i in members}
        self._first: dict[str, int] = {}
        begin: dict[str, int] = {}
        end: dict[str, int] = {}
        copied: set[str] = set()
        for i, group in enumerate(decisions.groups):
            if group.unit.device != "npu":
                continue  # these bring nothing into SRAM
            time = self._when.get(i, i)
            for name in (group.main, *group.fused):
                op = graph.operators[name]
                for tensor in (*op.inputs, *op.outputs):
                    stored = root[tensor]
                    self._first.setdefault(stored, i)
                    begin[stored] = min(begin.get(stored, time), time)
                    end[stored] = max(end.get(stored, time), time)
            op = graph.operators[group.main]
            if group.unit is Unit.DPU and op.family is Family.MATMUL:
                copied.add(root[op.inputs[0 if group.swapped else 1]])
        self._spread = [0.0] * len(decisions.groups)
        self._copied = [0.0] * len(decisions.groups)
        kept = {name: graph.tensors[name].bytes for name in decisions.residency.whole}
        for name, share in decisions.residency.cached.items():
            marked = graph.tensors[name]
            triangle = marked.storage is Storage.TRIANGLE
            whole = marked.stored_bytes if triangle else marked.bytes * packing(marked, name in copied, soc)
            kept[name] = whole * share
        row_blocks = row_block_sizes(graph, decisions, root, soc)
        for name, size in (kept | row_blocks).items():
            column = self._copied if name in copied or name in row_blocks else self._spread
            for i in range(begin[name], end[name] + 1):
                column[i] += size
        self._weights = {i: self._weight_bytes(graph, decisions.groups[i], kept, soc) for i in self._when}
        """Of each row-fused operator; they wait in every tile for the next block of rows."""

    def _weight_bytes(self, graph: Graph, group: Group, kept: Mapping[str, float], soc: Soc) -> float:
        """Bytes of a product's weights, where they are not kept anyhow."""
        op = graph.operators[group.main]
        if group.unit is not Unit.DPU or op.family not in (Family.MATMUL, Family.CONVOLUTION):
            return 0.0
        weights = graph.tensors[op.inputs[0 if group.swapped else 1]]
        return 0.0 if self.root[weights.name] in kept else weights.bytes * packing(weights, True, soc)

    def first_use(self, root: str) -> int:
        """Index of the group on the NPU that makes a tensor or reads it first."""
        return self._first[root]

    def bytes_at(self, index: int) -> tuple[float, float]:
        """Return the live bytes at a group: (spread over the tiles, held whole by each tile).

        Of a row-fused operator the weights of all others of its fusion are among the latter.
        """
        time = self._when.get(index, index)
        others = sum(size for i, size in self._weights.items() if i != index and self._when[i] == time)
        is_row_fused = index in self._when
        return self._spread[time], self._copied[time] + (others if is_row_fused else 0.0)
