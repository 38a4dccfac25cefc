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
from npusim.workloads.gnn.spec import FORMS, GnnSpec

PREPROCESS = "preprocess"
"""Region of the operators that prepare the edges."""


def start(spec: GnnSpec, structure: GraphStructure, sampled_edges: int | None = None) -> tuple[Editor, str]:
    """Return an editor for a workload, and the name of its features [N, F]."""
    on_npu = tuple(form for form in FORMS[spec.model] if form != "csr") if spec.form == "csr" else ()
    meta = GraphMeta(
        model=spec.model,
        form=spec.form,
        dataset=structure.name,
        precision=spec.dtype,
        neighbours=spec.neighbours,
        npu_forms=on_npu,
        sampled_edges=sampled_edges,
    )
    editor = Editor(f"{spec.model}-{structure.name}", structure, meta=meta)
    x = editor.input("x", (structure.nodes, structure.features), spec.dtype, role=Role.FEATURES)
    blocks = structure.feature_block_density.get(16)
    editor.change_tensor(x, density=structure.feature_density, block_density=blocks)
    return editor, x


def weight(editor: Editor, name: str, shape: Sequence[int], dtype: DType) -> str:
    """Add a weight."""
    return editor.constant(name, shape, dtype, role=Role.WEIGHT)


def linear(editor: Editor, x: str, width: int, region: str, name: str = "matmul", bias: bool = True) -> str:
    """Add `x W^T (+ b)` for `x` [N, inputs], the weight [width, inputs] as PyTorch stores it."""
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


@dataclass(slots=True)
class EdgeList:
    """Edges as two vectors of node numbers, and tensors that were computed from them."""

    editor: Editor
    nodes: int
    """Nodes that receive messages."""
    sources: int
    """Nodes that send messages."""
    count: int
    """Edges E, self-loops included."""
    source: str
    """Tensor [E] of sending nodes."""
    target: str
    """Tensor [E] of receiving nodes."""
    dtype: DType
    """Format of the messages."""
    place: str
    """Region of the operators that prepare the edges."""
    shared: dict[str, str] = field(default_factory=dict)
    """Results that layers share: OpenVINO merges equal subgraphs."""

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
        self.shared[key] = editor.add("Convert", (index,), self.free(f"{place}/convert"), DType.INT32)
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
        editor, shape = self.editor, self.editor.tensors[messages].shape
        index = self.target_spread(region, shape)
        blank = editor.constant(f"{name}/blank", (self.nodes, *shape[1:]), self.dtype, density=0.0)
        inputs = (blank, index, messages)
        return editor.add("ScatterElementsUpdate", inputs, name, axes=(0,), reduction=reduction)

    def ones(self, name: str) -> str:
        """Add a constant of one 1 per edge."""
        return self.editor.constant(name, (self.count,), self.dtype)

    def matrix(self) -> str:
        """Form the dense 0/1 matrix [targets, sources]: number each cell, scatter ones into zeros."""
        editor, nodes, size = self.editor, self.nodes, self.nodes * self.sources
        editor.region, place = self.place, f"{self.place}/adjacency"
        width = editor.constant(f"{place}/nodes", (1,), DType.INT64)
        row = editor.eltwise("Multiply", self.target, width, f"{place}/row_start")
        cell = editor.eltwise("Add", row, self.source, f"{place}/cell")
        index = editor.add("Convert", (cell,), f"{place}/convert", DType.INT32)
        blank = editor.constant(f"{place}/blank", (size,), self.dtype, density=0.0)
        inputs, density = (blank, index, self.ones(f"{place}/ones")), min(1.0, self.count / size)
        options: dict[str, Any] = {"tensor": {"density": density}, "axes": (0,), "reduction": "none"}
        flat = editor.add("ScatterElementsUpdate", inputs, f"{place}/scatter", **options)
        fields = {"role": Role.ADJACENCY, "density": density}
        if editor.structure is not None and self.count == editor.structure.nonzeros and nodes == self.sources:
            fields |= {"block_density": editor.structure.padded_block_density(16), "symmetric": True}
        return editor.reshape(flat, (nodes, self.sources), place, tensor=fields)

    def compressed_rows(self, values: str | None = None, mean: bool = False) -> str:
        """Sort the edges by target into a matrix [targets, sources] in compressed rows and return its name.

        Parameters
        ----------
        values : str, optional
            Weight of each edge, [E] or [E, 1]; None: ones.
        mean : bool
            Whether each row is divided by its length.
        """
        self.editor.region, shape = self.place, (self.nodes, self.sources)
        inputs = (self.source, self.target, *((values,) if values is not None else ()))
        role = Role.NORM if mean or values is not None else Role.ADJACENCY
        density = min(1.0, self.count / (self.nodes * self.sources))
        fields = {"role": role, "density": density, "storage": Storage.CSR}
        name, normalise = self.free(f"{self.place}/csr"), "mean" if mean else "none"
        return self.editor.op(
            "EdgesToCsr", inputs, shape, self.dtype, name, tensor=fields, normalise=normalise
        )

    def free(self, name: str) -> str:
        """Return a name, or the first of name_1, name_2 ... that no operator bears."""
        count, free = 1, name
        while free in self.editor.operators:
            free, count = f"{name}_{count}", count + 1
        return free


def edge_list(
    editor: Editor, edges: int, shape: tuple[int, int], dtype: DType, loops: bool, layer: str = ""
) -> EdgeList:
    """Add the input `edge_index` [2, E] and take its two rows apart.

    Parameters
    ----------
    shape : (int, int)
        Nodes that receive messages, and nodes that send them.
    layer : str
        Layer that alone uses this list; '': all do.
    """
    place = editor.region = f"{layer}/{PREPROCESS}" if layer else PREPROCESS
    name = f"edge_index_{layer}" if layer else "edge_index"
    pairs = editor.input(name, (2, edges), DType.INT64, role=Role.EDGES, structural=True)
    if loops:
        own = editor.constant(f"{place}/loops", (2, shape[0]), DType.INT64)
        edges += shape[0]
        pairs = editor.concat((pairs, own), 1, f"{place}/add_loops")
    ends = []
    for row, end in enumerate(("source", "target")):
        number = editor.constant(f"{place}/{end}/row", (), DType.INT64, density=float(row > 0))
        ends.append(editor.gather(pairs, number, f"{place}/{end}"))
    return EdgeList(editor, *shape, edges, ends[0], ends[1], dtype, place)


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
