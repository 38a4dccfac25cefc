"""Statistics of a data set: counts and the clustering of its non-zeros, no node or edge.

The shipped files are derived from the raw data by `scripts/derive_statistics.py`; a user's own graph is
described by the same kind of file.
"""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from npusim.config import Section, load_model
from npusim.errors import UnknownNameError
from npusim.graph import GraphStructure
from npusim.locate import resource, resource_names
from npusim.units import refuse

_ROUNDED = 0.05
"""Relative slack of a density: figures are rounded, and blocks at the rim are smaller."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]
MOST_NODES = 1_000_000_000
Count = Annotated[int, Field(ge=0, le=10**12)]
BlockEdge = Annotated[int, Field(ge=1, le=1_000_000, strict=False)]
"""The reader of YAML hands keys over as text."""


class ListedEdges(Section):
    """Edges as a paper lists them, and how the list is read."""

    count: Count
    """Entries of the list."""
    read_as: Literal["directed", "undirected"]
    """`undirected`: each entry stands for an edge in both directions."""
    source: str
    """Where the list stands, and why it is read so."""


class SourcedRatio(Section):
    """A positive number with its source."""

    value: Annotated[float, Field(gt=0.0, le=1e9, strict=False)]
    """The number."""
    source: str
    """Where it comes from."""


class SourcedShare(SourcedRatio):
    """A share with its source."""

    value: Share
    """The share, in [0, 1]."""


class DatasetStatistics(Section):
    """One data set, as its YAML file states it."""

    model_config = ConfigDict(strict=True)

    name: str
    """What the data set is called."""
    source: str
    """Where the numbers come from."""
    nodes: Annotated[int, Field(ge=1, le=MOST_NODES)]
    """Nodes of the graph."""
    edges: Count
    """Directed edges without self-loops and duplicates: an undirected edge counts twice."""
    listed_edges: ListedEdges | None = None
    """Edges as a paper lists them; None: as `edges`."""
    features: Annotated[int, Field(ge=1, le=1_000_000)]
    """Features of a node."""
    classes: Annotated[int, Field(ge=1, le=1_000_000)]
    """Classes a node may belong to."""
    feature_density: Share = 1.0
    """Share of non-zeros of the feature matrix."""
    feature_block_density: dict[BlockEdge, Share] = Field(default_factory=dict)
    """Share of b x b blocks of the feature matrix that hold a non-zero, by b."""
    adjacency_block_density: dict[BlockEdge, Share] = Field(default_factory=dict)
    """Share of b x b blocks of the adjacency matrix with self-loops that hold a non-zero, by b."""
    degree_histogram: list[Count] = Field(default_factory=list)
    """Nodes with 0, 1, 2, ... neighbours; without it every node is taken to have the mean number."""
    test_share: SourcedShare | None = None
    """Share of the nodes whose answers are asked for."""
    test_degree_ratio: SourcedRatio | None = None
    """Mean degree of these nodes over the mean degree; None: 1."""
    training_neighbours: SourcedShare | None = None
    """Share of a node's neighbours that are training or validation nodes, whose features can be stored."""
    unvisited_neighbours: SourcedRatio | None = None
    """Neighbours of a target node without stored features; roots, training and validation nodes have them."""

    @model_validator(mode="after")
    def _numbers_agree(self) -> DatasetStatistics:
        nodes, edges = self.nodes, self.edges
        if self.degree_histogram:
            counted = sum(self.degree_histogram)
            ends = sum(degree * count for degree, count in enumerate(self.degree_histogram))
            if (counted, ends) != (nodes, edges):
                raise ValueError(
                    f"degree_histogram counts {counted} nodes and {ends} edges, "
                    f"but the file says {nodes} nodes and {edges} edges"
                )
        if edges > nodes * (nodes - 1):
            raise ValueError(f"{edges} edges do not fit between {nodes} nodes")
        self._refuse_sparse_blocks("feature", self.feature_density)
        self._refuse_sparse_blocks("adjacency", min(1.0, (edges + nodes) / nodes**2))
        listed = self.listed_edges
        if listed is not None and listed.count * (2 if listed.read_as == "undirected" else 1) != edges:
            allowed = "the number that makes `edges`: an undirected edge counts twice"
            refuse(f"`{listed.count}`", allowed, at="listed_edges.count")
        ratio = self.test_degree_ratio.value if self.test_degree_ratio is not None else 1.0
        unvisited, degree = self.unvisited_neighbours, ratio * edges / nodes
        if unvisited is not None and unvisited.value > degree:
            allowed = f"at most {degree:.4g}, the neighbours of a target node"
            refuse(f"`{unvisited.value:g}`", allowed, at="unvisited_neighbours.value")
        return self

    def _refuse_sparse_blocks(self, matrix: str, density: float) -> None:
        """Refuse a density of blocks below that of what they hold: elements, or smaller blocks."""
        known = getattr(self, f"{matrix}_block_density")
        least, edge = density, 1
        for block in sorted(known):
            if known[block] < least * (1.0 - _ROUNDED):
                allowed = f"at least {least:.4g}: larger blocks hold what those of {edge} hold"
                refuse(f"{known[block]:g}", allowed, at=f"{matrix}_block_density.{block}")
            if block % edge == 0:
                least, edge = known[block], block

    def structure(self) -> GraphStructure:
        """Return the statistics as the graph carries them."""
        stated = {field.name: getattr(self, field.name) for field in fields(GraphStructure)}
        values: dict[str, Any] = {
            name: value.value if isinstance(value, SourcedRatio) else copy(value)
            for name, value in stated.items()
            if value is not None
        }
        return GraphStructure(**(values | {"degree_histogram": tuple(self.degree_histogram)}))


def dataset_names() -> list[str]:
    """Names of the data sets whose statistics npusim ships."""
    return resource_names("workloads/statistics", ".yaml")


def load_statistics(name: str, beside: Path | None = None) -> GraphStructure:
    """Return the statistics of a data set.

    Parameters
    ----------
    name : str
        A shipped name ("cora") or the path of a YAML file of `DatasetStatistics`.
    beside : Path, optional
        Folder that a relative path starts from: that of the file that names it. The working folder is tried
        next.

    Raises
    ------
    UnknownNameError
        When it is neither a shipped name nor a path.
    NpusimError
        When the file cannot be read or says something impossible.

    Examples
    --------
    >>> load_statistics("cora").nodes
    2708
    """
    if name in dataset_names():
        return load_model(resource("workloads", "statistics", f"{name}.yaml"), DatasetStatistics).structure()
    if not name.endswith((".yaml", ".yml")):
        raise UnknownNameError("dataset", name, dataset_names(), "or the path of a YAML file of statistics")
    path = Path(name).expanduser()
    if beside is not None and (beside / path).is_file():
        path = beside / path
    return load_model(path, DatasetStatistics).structure()


def sampled_edges(structure: GraphStructure, neighbours: int) -> int:
    """Count the edges that are left when each node keeps at most `neighbours` of its neighbours.

    A node without neighbours keeps itself, so that its aggregate is defined.

    Parameters
    ----------
    neighbours : int
        Neighbours sampled without replacement (GraNNite section V: 10).
    """
    if structure.degree_histogram:
        return sum(
            count * min(max(degree, 1), neighbours) for degree, count in enumerate(structure.degree_histogram)
        )
    mean = max(structure.edges / structure.nodes, 1.0)
    return round(structure.nodes * min(mean, neighbours))
