"""Parts of GNNs: linear layers, activations, aggregation along edges or by matrices.

Each part adds the operators that OpenVINO's conversion of the equal PyTorch code gives, down to the shape of
a bias: tests compare exported and built graphs operator for operator. Along edges a message is fetched by a
Gather and delivered by a Scatter, both slow on an NPU; PyTorch Geometric models have that form. A matrix in
compressed rows is what a library for sparse matrices multiplies on a CPU or GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npusim.graph import Editor, GraphMeta, GraphStructure
from npusim.ops import DType, Role, Storage
from npusim.workloads.gnn.spec import GnnSpec, forms_of


def start(spec: GnnSpec, structure: GraphStructure, sampled_edges: int | None = None) -> tuple[Editor, str]:
    """Return an editor for a workload, and the name of its features [N, F]."""
    meta = GraphMeta(
        model=spec.model,
        form=spec.form,
        dataset=structure.name,
        precision=spec.dtype,
        neighbours=spec.neighbours,
        npu_forms=tuple(form for form in forms_of(spec.model) if form != "csr") if spec.form == "csr" else (),
        sampled_edges=sampled_edges,
    )
    editor = Editor(f"{spec.model}-{structure.name}", structure, meta=meta)
    features = editor.input(
        "x",
        (structure.nodes, structure.features),
        spec.dtype,
        role=Role.FEATURES,
        density=structure.feature_density,
        block_density=structure.feature_block_density.get(16),
    )
    return editor, features


def weight(editor: Editor, name: str, shape: Sequence[int], dtype: DType) -> str:
    """Add a weight."""
    return editor.constant(name, shape, dtype, role=Role.WEIGHT)


def linear(editor: Editor, x: str, width: int, region: str, name: str = "matmul", bias: bool = True) -> str:
    """Add `x W^T (+ b)`, the weight [width, inputs] as PyTorch stores it.

    Parameters
    ----------
    x : str
        Tensor [N, inputs].
    region : str
        Region of the operators; their names start with it.

    Returns
    -------
    str
        Tensor [N, width].
    """
    editor.region = region
    tensor = editor.tensors[x]
    matrix = weight(editor, f"{region}/{name}/weight", (width, tensor.shape[-1]), tensor.dtype)
    product = editor.matmul(x, matrix, f"{region}/{name}", transpose_b=True)
    return add_bias(editor, product, region) if bias else product


def add_bias(editor: Editor, x: str, region: str) -> str:
    """Add a bias [1, F] to `x` [N, F]."""
    editor.region = region
    tensor = editor.tensors[x]
    bias = editor.constant(f"{region}/add/bias", (1, tensor.shape[-1]), tensor.dtype, role=Role.BIAS)
    return editor.eltwise("Add", x, bias, f"{region}/add")


def activation(editor: Editor, type_: str, x: str, region: str, **attrs: Any) -> str:
    """Add an activation."""
    editor.region = region
    return editor.unary(type_, x, f"{region}/{type_.lower()}", **attrs)


def finish_layer(editor: Editor, x: str, layer: int, layers: int, type_: str, **attrs: Any) -> str:
    """Add what follows a layer: an activation, or after the last the LogSoftmax and the output."""
    if layer + 1 < layers:
        return activation(editor, type_, x, f"layer{layer}/activation", **attrs)
    result = activation(editor, "LogSoftmax", x, "readout", axes=(1,))
    editor.outputs = [result]
    return result


PREPROCESS = "preprocess"


@dataclass(slots=True)
class EdgeList:
    """Edges as two vectors of node numbers, and tensors that were computed from them."""

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
    """Region of the operators that prepare the edges."""

    @property
    def sources(self) -> int:
        """Nodes that messages come from."""
        return self.nodes if self.source_nodes is None else self.source_nodes

    def gather(self, x: str, name: str, at: str | None = None) -> str:
        """Gather the rows of `x` [N, ...] at the sources of the edges, or at other node numbers."""
        return self.editor.gather(x, at or self.source, name)

    def target_spread(self, region: str, shape: tuple[int, ...]) -> str:
        """Return the targets repeated over a message's elements, int32 of `shape` [E, ...].

        This is preprocessing; a layer whose messages have a new width repeats it.
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
        pairs = editor.concat((pairs, own), 1, f"{place}/add_loops")
    ends = []
    for row, end in enumerate(("source", "target")):
        number = editor.constant(f"{place}/{end}/row", (), DType.INT64, density=float(row > 0))
        ends.append(editor.op("Gather", (pairs, number), (edges,), DType.INT64, f"{place}/{end}", axes=(0,)))
    return EdgeList(editor, nodes, edges, ends[0], ends[1], dtype, place=place)


def compressed_rows(edges: EdgeList, values: str | None = None, mean: bool = False) -> str:
    """Sort the edges by target into a matrix [targets, sources] in compressed rows and return its name.

    Parameters
    ----------
    values : str, optional
        Weight of each edge, [E] or [E, 1]; None: ones.
    mean : bool
        Whether each row is divided by its length.
    """
    editor = edges.editor
    editor.region = edges.place
    columns = edges.sources
    inputs = (edges.source, edges.target, *((values,) if values is not None else ()))
    density = min(1.0, edges.count / (edges.nodes * columns))
    role = Role.NORM if mean or values is not None else Role.ADJACENCY
    name = edges.free(f"{edges.place}/csr")
    fields = {"role": role, "density": density, "storage": Storage.CSR}
    return editor.op(
        "EdgesToCsr",
        inputs,
        (edges.nodes, columns),
        edges.dtype,
        name,
        tensor=fields,
        normalise="mean" if mean else "none",
    )


def sparse_product(editor: Editor, matrix: str, x: str, region: str, values: str | None = None) -> str:
    """Multiply a matrix in compressed rows [N, M] by `x` [M, F].

    Parameters
    ----------
    values : str, optional
        Weights [E, heads] that replace the matrix's values, in the order of its rows; a head has F / heads
        columns of `x`.
    """
    editor.region = region
    inputs = (matrix, x, *((values,) if values is not None else ()))
    return editor.add("SparseMatMul", inputs, f"{region}/spmm", editor.tensors[x].dtype)
