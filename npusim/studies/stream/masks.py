"""What it costs the CPU to correct a mask, entry by entry.

Which entries change follows from the model: a GCN's norm holds the degrees of both ends, so a new edge
changes the rows and columns of its ends; an attention mask changes in the two entries of the edge alone.
"""

from __future__ import annotations

from typing import Any

from npusim.arch import Soc
from npusim.cost import Unit, cost_host, empty_ops
from npusim.graph import Graph
from npusim.mapping import Run
from npusim.ops import Role
from npusim.studies.stream.updates import Size, Update
from npusim.techniques.preprocessing import nodes_of


def entries_changed(model: str, update: Update, size: Size, neighbours: int) -> float:
    """Return how many entries of the mask an update changes, at the mean degree.

    Parameters
    ----------
    model : str
        A model of the kind `gnn`; of those by Eq. 1 all but sage-concat have GCN's norm.
    """
    degree = size.degree
    sampled = min(degree, float(neighbours))
    # Entries that change where one node's degree does: its row, and for a symmetric norm its column.
    of_sage = {"sage-mean": sampled, "sage-max": float(neighbours), "sage-concat": degree}
    per_node = (of_sage | {"gat": 0.0}).get(model, 2.0 * degree + 1.0)
    edges = update.counts.get("add_edge", 0) + update.counts.get("remove_edge", 0)
    added, removed = update.counts.get("add_node", 0), update.counts.get("remove_node", 0)
    # An edge stands in two entries; a node in one (its loop); one that leaves takes its edges along.
    return edges * (2.0 * per_node + 2.0) + added + removed * ((1.0 + degree) * per_node + 2.0 * degree + 1.0)


class MaskKeeper:
    """The CPU that writes the changed entries."""

    def __init__(self, graph: Graph, soc: Soc, run: Run, batches: int = 1) -> None:
        """Take the masks of a network; with batches, of as many graphs."""
        self._cpu: Any = run.row(soc)[str(soc.named("cpu"))]
        masks = [t for role in (Role.NORM, Role.MASK, Role.ADJACENCY) for t in graph.with_role(role)]
        self._copies = max(1, sum(t.structural for t in masks))
        """Masks that hold the same entries (EffOp's pair)."""
        self._reach = batches * sum(float(t.bytes) for t in masks)
        """Bytes among which the entries lie."""
        self._item = max((t.dtype.bytes for t in masks), default=2.0)
        nodes = nodes_of(graph)
        self._by_nodes = [(float(t.bytes), nodes, t.shape.count(nodes)) for t in masks] if nodes else []

    def update_s(self, entries: float) -> float:
        """Return the time to write `entries` of the masks (s): scattered read-modify-writes on the CPU."""
        return self._written_s(entries, self._reach, entries * self._copies * self._item)

    def layout_s(self, capacity: int, size: Size) -> float:
        """Return the time to rewrite the masks for another capacity (s): zeros, then all entries."""
        whole = sum(stored * (capacity / nodes) ** sides for stored, nodes, sides in self._by_nodes)
        return self._written_s(2.0 * size.edges + size.nodes, whole, whole)

    def _written_s(self, entries: float, reach: float, written: float) -> float:
        """Return the time of scattered writes (s): `written` bytes in all, spread over `reach` bytes."""
        if entries <= 0.0:
            return 0.0
        row = empty_ops(1)[0]
        row["unit"] = Unit.HOST
        row["host_scatters"] = entries * self._copies
        row["host_reach_bytes"] = reach
        row["host_written_bytes"] = written
        return float(cost_host(self._cpu, row).time_s)
