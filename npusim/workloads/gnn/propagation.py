"""Networks by Eq. 1 of GCNP: branches of powers of the normalised adjacency, side by side, then ReLU.

GraphSAGE with concatenation (own features and the neighbours' mean), MixHop, jumping knowledge, SIGN and SGC.
A dense layer gives the classes, except in SGC. In a batch, each layer works on the nodes that the next layer
needs, and hidden features of visited nodes are read from a store.
"""

from dataclasses import dataclass, field, replace

from npusim.graph import Graph, GraphStructure
from npusim.ops import DType, Role
from npusim.workloads.gnn.models import Aggregate, Builder, EdgeList, mean_along, normalised_sum
from npusim.workloads.gnn.spec import Batch, GnnSpec, Layer, Support, overflow_share, support_of


def build_propagation(spec: GnnSpec, structure: GraphStructure) -> Graph:
    """Build a network by Eq. 1.

    Form `edges`: Gather and Scatter; `dense`: a matrix [N, N] of the edges; `csr`: compressed rows.
    `aggregate_first` aggregates the input width of a layer, `transform_first` the output width. Regions are
    layerI/aggregate, layerI/combine (the dense classifier: `classify`) and readout.
    """
    layers = spec.equation_layers(structure.features, structure.classes)
    editor, support, nodes = Builder(spec, structure), None, structure.nodes
    if spec.batch is not None:
        support, aggregates = _batch_support(editor, spec.batch, sum(layer.propagates for layer in layers))
        rows = list(support.nodes[1:])
    else:
        editor.all_features()
        aggregates = [_aggregation(editor, structure.edges, nodes, nodes)] * len(layers)
        rows = [nodes] * len(layers)
    x, results = "x", list[str]()
    for i, layer in enumerate(layers):
        if not layer.propagates:
            editor.region = "classify"
            if spec.model == "jk" and len(results) > 1:
                x = editor.concat(results, 1, "concat")
            if spec.normalise:
                x = editor.unary("NormalizeL2", x, "normalise", axes=(1,))
            x = editor.linear(x, layer.outputs, "classify")
        else:
            if support is not None and support.stored and i + 1 == len(support.edges):
                # Rows of visited nodes come from the store of all nodes, behind the computed rows.
                editor.region = "store"
                table = editor.input("/stored", (nodes, editor.tensors[x].shape[1]), spec.dtype)
                index = editor.input("/stored_index", (support.stored,), DType.INT32)
                x = editor.concat((x, editor.gather(table, index, "gather")), 0, "join")
            fetched = support.edges[0] if support and i == 0 and spec.batch and spec.batch.fetched else 0
            x = _LayerBuilder(editor, f"layer{i}", aggregates[i], rows[i], fetched).add(layer, x)
        if i + 1 < len(layers) and not (spec.branch_norm and layer.propagates):
            x = editor.activation("Relu", x, f"layer{i}/activation")
        results.append(x)
    editor.finish_layer(x, len(layers) - 1, len(layers), "Relu")
    return editor.finish()


@dataclass
class _LayerBuilder:
    """Adds a layer: the branches' results side by side, or averaged."""

    editor: Builder
    name: str
    aggregate: Aggregate
    nodes: int
    """Rows of the result."""
    fetched: int = 0
    """Edges whose rows of attributes are gathered first; 0: the layer reads computed features."""
    powers: dict[tuple[int, int], str] = field(default_factory=dict)
    """Powers of the adjacency times features, by order and columns: branches share them."""

    def add(self, layer: Layer, x: str) -> str:
        """Return the result of a layer that reads `x`."""
        editor = self.editor
        parts = [self._branch(x, branch.order, branch.inputs, branch.outputs) for branch in layer.branches]
        editor.region = f"{self.name}/combine"
        if len(parts) == 1:
            return parts[0]
        if not layer.average:
            return editor.concat(parts, 1, "concat")
        total = parts[0]
        for number, part in enumerate(parts[1:]):
            total = editor.eltwise("Add", total, part, f"sum{number}")
        share = editor.constant("share", (1,), editor.tensors[total].dtype)
        return editor.eltwise("Multiply", total, share, "mean")

    def _branch(self, x: str, order: int, inputs: int, outputs: int) -> str:
        """Return A^order x W; the result of one branch."""
        editor, region = self.editor, f"{self.name}/combine"
        spec, transform_first = editor.spec, editor.spec.order == "transform_first"
        if self.fetched:
            h = self._fetched(order, inputs)
        elif spec.preprocessed:
            h = self._ready(x, order) if order else x
        elif not order:
            h = self._first_rows(x, region)
        else:
            h = self._columns(x, inputs, region) if transform_first else self._power(x, order, inputs)
        h = editor.linear(h, outputs, region, f"order{order}", bias=False)
        if transform_first and not (spec.preprocessed or self.fetched):
            for step in range(order):
                h = self.aggregate(h, f"{self.name}/aggregate{order}_{step}")
        return self._normalised(h, f"{region}/norm{order}") if spec.branch_norm else h

    def _fetched(self, order: int, inputs: int) -> str:
        """Return gathered attributes: one row per node, or the mean of one row per edge."""
        editor, table = self.editor, self.editor.tensors["x"]
        editor.region = f"{self.name}/{'aggregate' if order else 'combine'}"
        source = "x" if inputs == table.shape[1] else "x_kept"
        if source not in editor.tensors:
            editor.input("/x_kept", (table.shape[0], inputs), editor.dtype)
        index = editor.input("fetch/rows", (self.fetched if order else self.nodes,), DType.INT32)
        rows = editor.gather(source, index, "fetch")
        return self.aggregate(rows, f"{self.name}/aggregate{order}") if order else rows

    def _normalised(self, h: str, region: str) -> str:
        """Return a branch after bias, activation and normalisation of its rows, an operator for each pass."""
        editor = self.editor
        h = editor.activation("Relu", editor.biased(h, region), region)
        mean = editor.reduce("ReduceMean", h, (1,), "mean", keep_dims=True)
        spread = editor.reduce("ReduceL2", h, (1,), "spread", keep_dims=True)
        scaled = editor.eltwise("Divide", editor.eltwise("Subtract", h, mean, "centred"), spread, "unit")
        width, dtype = editor.tensors[h].shape[1], editor.tensors[h].dtype
        for type_, name in (("Multiply", "scale"), ("Add", "offset")):
            weight = editor.constant(f"{name}/weight", (1, width), dtype, role=Role.BIAS)
            scaled = editor.eltwise(type_, scaled, weight, name)
        return scaled

    def _power(self, x: str, order: int, inputs: int) -> str:
        """Return A^order x of the columns that a branch reads."""
        h = self._columns(x, inputs, f"{self.name}/aggregate")
        for k in range(1, order + 1):
            if (k, inputs) not in self.powers:
                self.powers[k, inputs] = self.aggregate(h, f"{self.name}/aggregate{k}")
            h = self.powers[k, inputs]
        return h

    def _columns(self, x: str, width: int, region: str) -> str:
        """Return the kept columns of `x`; `x` itself if all are kept."""
        if self.editor.tensors[x].shape[1] == width:
            return x
        if f"{region}/keep" in self.editor.operators:
            return f"{region}/keep"
        self.editor.region = region
        kept = self.editor.constant("keep/channels", (width,), DType.INT32)
        return self.editor.gather(x, kept, "keep", axis=1)

    def _first_rows(self, x: str, region: str) -> str:
        """Return the first rows of `x`, which belong to the nodes themselves."""
        editor, tensor = self.editor, self.editor.tensors[x]
        if tensor.shape[0] == self.nodes:
            return x
        editor.region, shape = region, (self.nodes, tensor.shape[1])
        ends = [editor.constant(f"own/{end}", (1,), DType.INT64) for end in ("begin", "end", "step")]
        return editor.op("Slice", (x, *ends), shape, tensor.dtype, "own")

    def _ready(self, x: str, order: int) -> str:
        """Return the aggregated features as an input."""
        name, tensor = f"x{order}", self.editor.tensors[x]
        known = name in self.editor.tensors
        return name if known else self.editor.input(f"/{name}", tensor.shape, tensor.dtype)


def _aggregation(editor: Builder, edges: int, nodes: int, sources: int, layer: str = "") -> Aggregate:
    """Return how a layer aggregates: the mean over neighbours, or with GCN's weights and self-loops."""
    if editor.spec.preprocessed:
        return lambda x, region: x
    is_mean = editor.spec.model == "sage-concat"
    listed = EdgeList(editor, edges, nodes, sources, loops=not is_mean, layer=layer)
    return (mean_along if is_mean else normalised_sum)(listed, editor.spec.form)


def _batch_support(editor: Builder, batch: Batch, count: int) -> tuple[Support, list[Aggregate]]:
    """Return the nodes and edges of a batch, and how each layer aggregates; `x` has the supporting nodes."""
    structure = editor.data
    support = support_of(batch, structure, count)
    editor.features(structure.nodes if batch.fetched else support.nodes[0])
    aggregates = []
    for i, edges in enumerate(support.edges):
        stored = support.stored if i + 1 == count else 0
        sources = edges if batch.fetched and i == 0 else support.nodes[i] + stored
        aggregates.append(_aggregation(editor, edges, support.nodes[i + 1], sources, f"layer{i}"))
    editor.meta = replace(editor.meta, notes=(*editor.meta.notes, *_notes(batch, support, structure, count)))
    return support, aggregates


def _notes(batch: Batch, support: Support, structure: GraphStructure, layers: int) -> list[str]:
    """Return the notes of an estimate about a batch."""
    notes = [
        f"batch: {batch.roots} roots, {support.nodes[1]} rows of layer 1, {support.nodes[0]} supporting "
        f"nodes, {support.stored} hidden features from the store"
    ]
    if batch.capacity is not None:
        share = overflow_share(batch, structure, layers)
        unknown = "how often is not known without a degree histogram"
        notes.append(
            f"batch: {support.padded} of {batch.capacity} supporting nodes are padding; beyond the capacity "
            f"and refused: {unknown if share is None else f'{share:.2%} of batches'}"
        )
    if structure.test_share is not None:
        batches = -(-round(structure.test_share * structure.nodes) // batch.roots)
        notes.append(f"batch: {batches} batches answer for all test nodes")
    return notes
