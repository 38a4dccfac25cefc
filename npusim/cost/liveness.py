"""How long tensors stay in SRAM: the reservations book of a small hotel.

A tensor that stays occupies its bytes from the operator that makes (or first reads) it to its last reader,
and through all of a chain that either belongs to (`npusim.cost.chains`). A tensor that serves as the right
operand of a product is held whole by every tile; any other is spread over them. A tensor that is handed on
in stripes takes two stripes in each tile, and the weights of a chain's products wait in every tile as long
as the chain works.
"""

from __future__ import annotations

from collections.abc import Iterable

from npusim.arch import Soc
from npusim.cost.chains import chains
from npusim.cost.decisions import Decisions
from npusim.cost.tables import Unit
from npusim.graph import Graph
from npusim.ops import Family, Storage, Tensor

__all__ = ["Liveness", "packing", "roots", "stripe_bytes"]


def packing(tensor: Tensor, is_weight: bool, soc: Soc) -> float:
    """Return bytes of an operand as it is moved and kept over its dense bytes.

    A tensor stored with a bitmap stays packed in SRAM where the SoC accepts that for its role
    (`npu.sparsity.decompress_weights`, `decompress_activations`); otherwise it is moved dense.
    """
    switches = soc.npu.sparsity
    accepted = switches.decompress_weights if is_weight else switches.decompress_activations
    if tensor.storage is not Storage.ZVC or not accepted or not tensor.bytes:
        return 1.0
    return min(1.0, tensor.stored_bytes / tensor.bytes)


def stripe_bytes(tensor: Tensor, soc: Soc) -> float:
    """Return what a tensor that is handed on in stripes takes in a tile: one stripe is made while one is
    read.

    A stripe has as many rows as the grid has pixels.
    """
    rows = 2.0 * float(soc.npu.dpu.grid.vpe) ** 2
    return float(min(tensor.bytes, rows * tensor.shape[-1] * tensor.dtype.bytes))


def roots(graph: Graph) -> dict[str, str]:
    """Map every tensor to the one whose bytes it is: views share theirs with what they view."""
    root: dict[str, str] = {name: name for name in graph.tensors}
    for op in graph:
        if op.family is Family.VIEW and op.inputs:
            for output in op.outputs:
                root[output] = root[op.inputs[0]]
    return root


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
        self._first: dict[str, int] = {}
        last: dict[str, int] = {}
        copied: set[str] = set()
        for i, group in enumerate(decisions.groups):
            if group.unit in (Unit.VIEW, Unit.CPU, Unit.GPU):
                continue  # these bring nothing into SRAM
            for name in (group.main, *group.fused):
                op = graph.operators[name]
                for tensor in (*op.inputs, *op.outputs):
                    self._first.setdefault(root[tensor], i)
                    last[root[tensor]] = i
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
        for name in decisions.residency.striped:
            kept[name] = stripe_bytes(graph.tensors[name], soc)
            copied.add(name)
        begin, end = dict(self._first), last
        for members in chains(graph, decisions, root):  # all of a chain work at once
            for name in kept:
                if begin[name] <= members[-1] and end[name] >= members[0]:
                    begin[name], end[name] = min(begin[name], members[0]), max(end[name], members[-1])
            self._hold_weights(graph, decisions, soc, members, kept)
        for name, size in kept.items():
            column = self._copied if name in copied else self._spread
            for i in range(begin[name], end[name] + 1):
                column[i] += size

    def _hold_weights(
        self, graph: Graph, decisions: Decisions, soc: Soc, members: tuple[int, ...], kept: Iterable[str]
    ) -> None:
        """Count the weights of a chain's products for the other operators of the chain: they wait in every
        tile for the next stripe.
        """
        for i in members:
            group = decisions.groups[i]
            op = graph.operators[group.main]
            if group.unit is not Unit.DPU or op.family not in (Family.MATMUL, Family.CONVOLUTION):
                continue
            weights = graph.tensors[op.inputs[0 if group.swapped else 1]]
            if self.root[weights.name] not in kept:
                for other in members:
                    if other != i:
                        self._copied[other] += weights.bytes * packing(weights, True, soc)

    def first_use(self, root: str) -> int:
        """Index of the group on the NPU that makes a tensor or reads it first."""
        return self._first[root]

    def bytes_at(self, index: int) -> tuple[float, float]:
        """Return the live bytes at a group: (spread over the tiles, held whole by each tile)."""
        return self._spread[index], self._copied[index]
