"""The graph as a list of edges: where messages come from and where they go.

Fetching a message is a Gather, delivering it a Scatter, and both are slow on an NPU; that is the form a
PyTorch Geometric model has before anyone thinks of the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from npusim.graph import Editor
from npusim.ops import DType, Role

PREPROCESS = "preprocess"


@dataclass(slots=True)
class EdgeList:
    """Edges as two vectors of node numbers, and what was made of them so far."""

    editor: Editor
    nodes: int
    """Nodes that messages go to."""
    count: int
    """Edges, self-loops included."""
    source: str
    """Tensor [E]."""
    target: str
    """Tensor [E]."""
    dtype: DType
    """Format of the messages."""
    shared: dict[str, str] = field(default_factory=dict)
    """Results that layers share: OpenVINO merges equal subgraphs."""
    source_nodes: int | None = None
    """Nodes that messages come from; None: the same nodes."""
    place: str = PREPROCESS
    """Region of what is made of the edges."""

    @property
    def sources(self) -> int:
        """Nodes that messages come from."""
        return self.nodes if self.source_nodes is None else self.source_nodes

    def gather(self, x: str, name: str, at: str | None = None) -> str:
        """Gather the rows of `x` [N, ...] at the sources of the edges, or at other node numbers."""
        return self.editor.gather(x, at or self.source, name)

    def target_spread(self, region: str, shape: tuple[int, ...]) -> str:
        """Return the targets repeated over a message's elements, int32 of `shape` [E, ...].

        That is preprocessing which the layer of `region` does over again where its messages have a new width.
        """
        key = f"target{shape}"
        if key in self.shared:
            return self.shared[key]
        editor, here = self.editor, self.editor.region
        layer = region.split("/")[0]
        place = editor.region = PREPROCESS if layer == PREPROCESS else f"{layer}/{PREPROCESS}"
        index = self._target_column(place, len(shape) - 1) if len(shape) > 1 else self.target
        if shape != editor.tensors[index].shape:
            index = editor.op("Broadcast", (index,), shape, DType.INT64, self.free(f"{place}/broadcast"))
        self.shared[key] = editor.op("Convert", (index,), shape, DType.INT32, self.free(f"{place}/convert"))
        editor.region = here
        return self.shared[key]

    def _target_column(self, place: str, axes: int) -> str:
        """Return the targets with `axes` further dimensions of length 1."""
        key = f"column{axes}"
        if key not in self.shared:
            shape = (self.count, *(1,) * axes)
            self.shared[key] = self.editor.reshape(self.target, shape, self.free(f"{place}/target_column"))
        return self.shared[key]

    def scatter(self, messages: str, region: str, name: str, reduction: str = "sum") -> str:
        """Combine messages [E, ...] at their targets to [N, ...]; a node without messages gets 0."""
        editor = self.editor
        shape = editor.tensors[messages].shape
        index = self.target_spread(region, shape)
        blank = editor.constant(f"{name}/blank", (self.nodes, *shape[1:]), self.dtype, density=0.0)
        return editor.op(
            "ScatterElementsUpdate",
            (blank, index, messages),
            (self.nodes, *shape[1:]),
            self.dtype,
            name,
            axes=(0,),
            reduction=reduction,
        )

    def ones(self, name: str) -> str:
        """Add a constant of one 1 per edge."""
        return self.editor.constant(name, (self.count,), self.dtype)

    def matrix(self, name: str = "adjacency") -> str:
        """Form the dense 0/1 matrix [targets, sources]: number each cell, scatter ones into zeros."""
        editor, nodes, cells = self.editor, self.nodes, (self.count,)
        size = nodes * self.sources
        editor.region = self.place
        width = editor.constant(f"{self.place}/{name}/nodes", (1,), DType.INT64)
        row = editor.op(
            "Multiply", (self.target, width), cells, DType.INT64, f"{self.place}/{name}/row_start"
        )
        cell = editor.op("Add", (row, self.source), cells, DType.INT64, f"{self.place}/{name}/cell")
        short = editor.op("Convert", (cell,), cells, DType.INT32, f"{self.place}/{name}/convert")
        blank = editor.constant(f"{self.place}/{name}/blank", (size,), self.dtype, density=0.0)
        density = min(1.0, self.count / size)
        flat = editor.op(
            "ScatterElementsUpdate",
            (blank, short, self.ones(f"{self.place}/{name}/ones")),
            (size,),
            self.dtype,
            f"{self.place}/{name}/scatter",
            tensor={"density": density},
            axes=(0,),
            reduction="none",
        )
        fields = {"role": Role.ADJACENCY, "density": density}
        if editor.structure is not None and self.count == editor.structure.nonzeros and nodes == self.sources:
            fields |= {"block_density": editor.structure.padded_block_density(16), "symmetric": True}
        return editor.reshape(flat, (nodes, self.sources), f"{self.place}/{name}", tensor=fields)

    def free(self, name: str) -> str:
        """Return a name, or the first of name_1, name_2 ... that no operator bears."""
        count, free = 1, name
        while free in self.editor.operators:
            free, count = f"{name}_{count}", count + 1
        return free


def edge_list(editor: Editor, edges: int, nodes: int, dtype: DType, loops: bool, name: str = "") -> EdgeList:
    """Add the input `edge_index` [2, E] and take its two rows apart.

    Parameters
    ----------
    name : str
        Layer that alone uses this list; '': all do.
    """
    place = editor.region = f"{name}/{PREPROCESS}" if name else PREPROCESS
    pairs = editor.input(
        f"edge_index_{name}" if name else "edge_index",
        (2, edges),
        DType.INT64,
        role=Role.EDGES,
        structural=True,
    )
    if loops:
        own = editor.constant(f"{place}/loops", (2, nodes), DType.INT64)
        edges += nodes
        pairs = editor.op("Concat", (pairs, own), (2, edges), DType.INT64, f"{place}/add_loops", axes=(1,))
    ends = []
    for row, end in enumerate(("source", "target")):
        number = editor.constant(f"{place}/{end}/row", (), DType.INT64, density=float(row > 0))
        ends.append(editor.op("Gather", (pairs, number), (edges,), DType.INT64, f"{place}/{end}", axes=(0,)))
    return EdgeList(editor, nodes, edges, ends[0], ends[1], dtype, place=place)
