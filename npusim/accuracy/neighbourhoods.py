"""Neighbourhoods of target nodes, drawn hop by hop by the rules of PyTorch Geometric's NeighborLoader.

Every neighbour of a root, at most `hop2` of each neighbour that is met for the first time, each node once.
The loader itself needs pyg-lib or torch-sparse, which are not on every machine; a test compares the two where
it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Nodes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A batch's nodes and edges; nodes by their numbers in the graph."""

    roots: Nodes
    fresh: Nodes
    """Neighbours of the roots whose own neighbours are needed, each once."""
    stored: Nodes
    """Neighbours of the roots whose hidden features come from the store, each once."""
    supporting: Nodes
    """Nodes whose attributes are read: roots and fresh first, in this order."""
    first: tuple[Nodes, Nodes]
    """Row starts and columns of layer 1: rows are roots and fresh, columns places in `supporting`."""
    second: tuple[Nodes, Nodes]
    """Row starts and columns of layer 2: rows are roots, columns places in roots, fresh, stored."""


class Neighbours:
    """Neighbours of each node in compressed rows.

    Parameters
    ----------
    edge_index : array, shape (2, edges)
        Source above target; a node's neighbours are the sources of its edges.
    """

    def __init__(self, edge_index: Nodes, nodes: int) -> None:
        source, target = edge_index
        self.columns = source[np.argsort(target, kind="stable")]
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=nodes))])

    def of(self, nodes: Nodes) -> tuple[Nodes, Nodes]:
        """Return row starts and neighbours of some nodes, all of them."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        starts = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(starts[-1]) + np.repeat(self.starts[nodes] - starts[:-1], counts)
        return starts, self.columns[places]

    def drawn(self, nodes: Nodes, most: int, random: np.random.Generator) -> tuple[Nodes, Nodes]:
        """Return row starts and at most so many neighbours of each node, drawn without replacement."""
        starts, columns = self.of(nodes)
        counts = np.diff(starts)
        if not (counts > most).any():
            return starts, columns
        rows = np.repeat(np.arange(len(nodes)), counts)
        order = np.lexsort((random.random(len(columns)), rows))
        rank = np.arange(len(columns)) - np.repeat(starts[:-1], counts)
        kept = np.sort(order[rank < most])
        return np.concatenate([[0], np.cumsum(np.minimum(counts, most))]), columns[kept]

    def around(
        self, roots: Nodes, stored: npt.NDArray[np.bool_], hop2: int, random: np.random.Generator
    ) -> Neighbourhood:
        """Return the neighbourhood of a batch.

        Parameters
        ----------
        stored : array of bool, shape (nodes,)
            Nodes whose hidden features are stored; a root's own are computed all the same.
        """
        own = np.zeros(len(stored), bool)
        own[roots] = True
        starts, columns = self.of(roots)
        met = np.unique(columns)
        others = met[~own[met]]
        fresh, held = others[~stored[others]], others[stored[others]]
        deeper = self.drawn(fresh, hop2, random)
        lengths = np.concatenate([np.diff(starts), np.diff(deeper[0])])
        rows = np.concatenate([[0], np.cumsum(lengths)])
        ends = np.concatenate([columns, deeper[1]])
        computed = np.concatenate([roots, fresh])
        place = np.full(len(stored), -1)
        place[computed] = np.arange(len(computed))
        further = np.unique(ends)
        further = further[place[further] < 0]
        supporting = np.concatenate([computed, further])
        hidden = place.copy()
        hidden[held] = len(computed) + np.arange(len(held))
        place[further] = len(computed) + np.arange(len(further))
        return Neighbourhood(roots, fresh, held, supporting, (rows, place[ends]), (starts, hidden[columns]))
