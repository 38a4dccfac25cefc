"""EffOp and GrAx1 to GrAx3: arithmetic with masks and scores replaces control flow on the DSPs."""

from dataclasses import dataclass
from typing import Any, Literal

from npusim.graph import Graph
from npusim.graph.editor import Rewriter, unique_name
from npusim.ops import DType, Family, Operator, Role, Tensor, TensorKind
from npusim.techniques.aggregation import build_matrix, find_aggregations, write_products
from npusim.techniques.preprocessing import compared
from npusim.techniques.stack import EdgeData, NoParameters, Parameters, Stage, Technique


@dataclass(frozen=True, slots=True)
class Masking:
    """A replacement of the values of absent edges by a large negative number."""

    values: str  # masked tensor: attention scores [N, N], or features of neighbours [N, K, F]
    result: str  # tensor of masked values
    mask: str  # the mask, boolean or 0/1
    negative: str | None  # the additive mask of a masking by Multiply and Add
    operator: Operator  # the operator that writes `result`: Select or Add
    first: Operator  # the operator that reads `values`: Select or Multiply

    @property
    def selects(self) -> bool:
        """Whether it is written as a Select."""
        return self.operator.family is Family.SELECT


def find_maskings(graph: Graph) -> tuple[Masking, ...]:
    """Return every masking: a choice between values and constants that depends on edges alone."""
    maskings = (_selecting(graph, op) or _multiplying(graph, op) for op in graph)
    return tuple(masking for masking in maskings if masking is not None)


def _selecting(graph: Graph, op: Operator) -> Masking | None:
    if op.family is not Family.SELECT:
        return None
    condition, values, otherwise = op.inputs[:3]
    is_constant = graph.feature_independent.issuperset((condition, otherwise))
    if values in graph.feature_independent or not is_constant or not _masks_nodes(graph, condition):
        return None
    return Masking(values, op.outputs[0], condition, None, op, op)


def _multiplying(graph: Graph, op: Operator) -> Masking | None:
    if op.type != "Add":
        return None
    constant = graph.feature_independent
    for product, negative in (op.inputs, op.inputs[::-1]):
        writer = graph.made_by(product, "Multiply")
        if writer is None or len(graph.readers(product)) != 1:
            continue
        if negative not in constant or not _masks_nodes(graph, negative):
            continue
        for values, mask in (writer.inputs, writer.inputs[::-1]):
            if mask in constant and values not in constant and _masks_nodes(graph, mask):
                return Masking(values, op.outputs[0], mask, negative, op, writer)
    return None


def _masks_nodes(graph: Graph, name: str) -> bool:
    """Return whether a mask is about pairs of nodes: two dimensions are not 1."""
    return sum(d > 1 for d in graph.tensors[name].shape) >= 2


def mask_pair(
    editor: Rewriter, graph: Graph, masking: Masking, pairs: dict[str, tuple[str, str]]
) -> tuple[str, str]:
    """Return the names of the 0/1 mask and of the additive mask (0 and -1e4) that replace a condition.

    They are constants for a constant mask (StaGr), inputs for an input (GrAd), else computed in the graph.
    `pairs` holds the pair of each mask, which layers share.
    """
    mask, dtype = compared(graph, masking.mask), graph.tensors[masking.values].dtype
    if mask.name not in pairs:
        build = _computed if mask.kind is TensorKind.ACTIVATION else _prepared
        pairs[mask.name] = build(editor, graph, mask, dtype)
    return pairs[mask.name]


def _prepared(editor: Rewriter, graph: Graph, mask: Tensor, dtype: DType) -> tuple[str, str]:
    same = {"dtype": dtype, "role": Role.MASK}
    present, preparing = mask.name, Rewriter.of(graph)
    parts = [preparing.part(name) for name in _computed(preparing, graph, mask, dtype)]
    if not mask.dtype.is_float:
        present = unique_name(editor, f"{mask.name}_present")
        editor.tensors[present] = mask.with_(name=present, **same)
        editor.prepared[present] = parts[0]
    absent = unique_name(editor, f"{mask.name}_negative")
    editor.tensors[absent] = mask.with_(name=absent, density=1.0 - mask.density, block_density=None, **same)
    editor.prepared[absent] = parts[1]
    return present, absent


def _computed(editor: Rewriter, graph: Graph, mask: Tensor, dtype: DType) -> tuple[str, str]:
    """Add the additive mask as 1e4 mask - 1e4, OpenVINO's form of (mask - 1) 1e4."""
    writer = graph.writer(mask.name)
    editor.region = writer.region if writer is not None else ""
    device = writer.device if writer is not None else None
    kept = {"role": Role.MASK, "density": mask.density, "block_density": mask.block_density}
    kept |= {"symmetric": mask.symmetric}
    more: dict[str, Any] = {"device": device, "tensor": kept}
    present, scalar = mask.name, (1,) * len(mask.shape)
    if not mask.dtype.is_float:
        present = editor.op("Convert", (present,), mask.shape, dtype, "mask_present", **more)
    scale = editor.constant("lowering", scalar, dtype)
    offset = editor.constant("minus_lowering", scalar, dtype)
    scaled = editor.eltwise("Multiply", present, scale, "mask_scaled", **more)
    more["tensor"] = kept | {"density": 1.0 - mask.density, "block_density": None}
    return present, editor.eltwise("Add", scaled, offset, "mask_negative", **more)


def _effop(graph: Graph, _: NoParameters) -> Graph:
    """Replace Selects on masks by arithmetic, and sums over neighbours by products.

    A Select evaluates a condition for each of N x N scores on a DSP. Multiplying by a 0/1 mask and adding 0
    or -1e4 gives the same softmax without it; the comparison and the broadcast of -9e15 to N x N disappear.
    The masks are constants after StaGr, inputs after GrAd, else part of the preprocessing.
    """
    editor = Rewriter.of(graph)
    write_products(editor, graph, find_aggregations(graph), build_matrix)
    pairs: dict[str, tuple[str, str]] = {}
    for masking in find_maskings(graph):
        if masking.selects:
            ones, negative = mask_pair(editor, graph, masking, pairs)
            editor.region = masking.operator.region
            kept = editor.eltwise("Multiply", masking.values, ones, "multiply_mask")
            editor.rewire(masking.result, editor.eltwise("Add", kept, negative, "add_mask"))
    return editor.finish()


EFFOP = Technique(
    name="effop",
    summary=(
        "Select on a mask becomes Multiply and Add with two masks; Gather and Scatter of a sum become a "
        "product."
    ),
    numerics=(
        "The same after the softmax. In fp16 the mask must be -1e4: (1 - A) x (-9e15) overflows, and 0 x "
        "infinity is not a number."
    ),
    rewrite=_effop,
    stage=Stage.OPERATORS,
    needs="a Select on a mask or a Gather of neighbours that is summed",
    finds=lambda graph, _: find_aggregations(graph) or any(m.selects for m in find_maskings(graph)),
    edges=EdgeData.IN_GRAPH,
    source="GraNNite, section IV-B",
)


def _masked_softmaxes(graph: Graph) -> list[Masking]:
    return [m for m in find_maskings(graph) if _enters_softmax(graph, m.result)]


def _enters_softmax(graph: Graph, name: str) -> bool:
    readers = graph.readers(name)
    if any(op.family is Family.SOFTMAX for op in readers):
        return True
    return any(op.family is Family.VIEW and _enters_softmax(graph, t) for op in readers for t in op.outputs)


def _grax1(graph: Graph, _: NoParameters) -> Graph:
    """The attention's mask is one addition of 0 or -1e4, without the multiplication by the 0/1 mask.

    EffOp multiplies each score by 0 or 1 and adds the mask. The score of an absent edge is small compared
    with -1e4, so the softmax gives 0 without the multiplication, a pass over N x N elements that the grid
    does badly.
    """
    editor = Rewriter.of(graph)
    pairs: dict[str, tuple[str, str]] = {}
    for masking in _masked_softmaxes(graph):
        negative = masking.negative
        if negative is None:
            negative = mask_pair(editor, graph, masking, pairs)[1]
        editor.region = masking.operator.region
        editor.rewire(masking.result, editor.eltwise("Add", masking.values, negative, "grax1/add_mask"))
    return editor.finish()


GRAX1 = Technique(
    name="grax1",
    numerics="No change with -1e4; masks weaker than -10 let absent edges through (-29 points at -5).",
    rewrite=_grax1,
    stage=Stage.OPERATORS,
    needs="a masked softmax (Select, or Multiply and Add)",
    finds=lambda graph, _: _masked_softmaxes(graph),
    exact=False,
    source="GraNNite, section IV-C",
)


class Grax3Parameters(Parameters):
    """How the maximum is taken."""

    maximum: Literal["pool", "reduce"] = "pool"
    """`pool` (MaxPool, which the MAC grid's pooling does) or `reduce` (ReduceMax)."""


def _masked_maxima(graph: Graph) -> list[tuple[Masking, Operator]]:
    maxima = []
    for masking in find_maskings(graph):
        readers = graph.readers(masking.result)
        if len(readers) != 1 or len(graph.tensors[masking.result].shape) != 3:
            continue
        if readers[0].type == "ReduceMax" and readers[0].attrs.get("axes") == (1,):
            maxima.append((masking, readers[0]))
    return maxima


def _hint(graph: Graph) -> str:
    other = graph.meta.model == "sage-max" and graph.meta.form == "edges"
    return "the workload's form `gathered` has one" if other else ""


def _grax3(graph: Graph, parameters: Grax3Parameters) -> Graph:
    """SAGE-max multiplies gathered neighbours [N, K, F] by their 0/1 mask and max-pools over them.

    The maximum over neighbours is a loop with a condition: does this neighbour exist? Multiplying by the mask
    sets missing ones to 0, and pooling takes the largest of K, both without a condition. Features after a
    ReLU are not negative, so a 0 never wins wrongly.
    """
    editor = Rewriter.of(graph)
    pairs: dict[str, tuple[str, str]] = {}
    for masking, maximum in _masked_maxima(graph):
        ones = mask_pair(editor, graph, masking, pairs)[0] if masking.selects else masking.mask
        editor.region = maximum.region
        kept = editor.eltwise("Multiply", masking.values, ones, "grax3/multiply_mask")
        if parameters.maximum == "reduce":
            editor.rewire(masking.result, kept, only=[maximum.name])
        else:
            result = graph.tensors[maximum.outputs[0]]
            editor.rewire(result.name, _pool(editor, kept, result.shape))
    return editor.finish()


def _pool(editor: Rewriter, values: str, shape: tuple[int, ...]) -> str:
    """Pool [N, K, F] over K as an image of N channels, height K and width F, in the same order."""
    nodes, neighbours, width = editor.tensors[values].shape
    image = editor.reshape(values, (1, nodes, neighbours, width), "grax3/image")
    window: dict[str, Any] = {"kernel": (neighbours, 1), "strides": (1, 1)}
    window |= dict.fromkeys(("pads_begin", "pads_end"), (0, 0))
    pooled_shape, dtype = (1, nodes, 1, width), editor.tensors[values].dtype
    pooled = editor.op("MaxPool", (image,), pooled_shape, dtype, "grax3/maxpool", **window)
    return editor.reshape(pooled, shape, "grax3/rows")


GRAX3 = Technique(
    name="grax3",
    numerics="Exact if features are not negative (bit-exact on Cora); 90 % agreement on Gaussian features.",
    rewrite=_grax3,
    stage=Stage.OPERATORS,
    needs="a masked maximum over gathered neighbours [N, K, F]",
    finds=lambda graph, _: _masked_maxima(graph),
    hint=_hint,
    parameters=Grax3Parameters,
    exact=False,
    source="GraNNite, section IV-C",
)


class Grax2Parameters(Parameters):
    """How the scores are written."""

    form: Literal["literal", "source", "rank2"] = "literal"
    """`literal` (add, then broadcast), `source` (source term only) or `rank2` (exact, a thin product)."""


@dataclass(frozen=True, slots=True)
class ScoreSum:
    """One addition of scores [.., N, 1] and [.., 1, N]."""

    column: str  # tensor [.., N, 1]: scores of nodes as targets, the rows of the softmax
    row: str  # tensor [.., 1, N]: scores of nodes as sources, the columns of the softmax
    row_as_column: str | None  # the same scores as [.., N, 1], before the transpose; None if there is none
    operator: Operator  # the addition; its result is [.., N, N]


def find_score_sums(graph: Graph) -> tuple[ScoreSum, ...]:
    """Return additions of a column and a row of scores to a square."""
    sums = (_score_sum(graph, op) for op in graph if op.type == "Add" and len(op.inputs) == 2)
    return tuple(s for s in sums if s is not None)


def _score_sum(graph: Graph, op: Operator) -> ScoreSum | None:
    shape = graph.tensors[op.outputs[0]].shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < 2:
        return None
    margins = [_before_broadcast(graph, t, shape) for t in op.inputs]
    for column, row in (margins, margins[::-1]):
        sizes = [graph.tensors[name].shape[-2:] for name in (column, row)]
        if sizes == [(shape[-1], 1), (1, shape[-1])]:
            return ScoreSum(column, row, _as_column(graph, row), op)
    return None


def _before_broadcast(graph: Graph, name: str, shape: tuple[int, ...]) -> str:
    laid_out = graph.made_by(name, "Broadcast", "Tile")
    return laid_out.inputs[0] if laid_out and graph.tensors[name].shape[-2:] == shape[-2:] else name


def _as_column(graph: Graph, name: str) -> str | None:
    """Return the column [.., N, 1] that became a row [.., 1, N] by views and transposes."""
    shape = (graph.tensors[name].shape[-1], 1)
    while (moved := graph.made_by(name, Family.VIEW, "Transpose")) is not None:
        name = moved.inputs[0]
        if graph.tensors[name].shape[-2:] == shape:
            return name
    return None


def _rewrite(graph: Graph, parameters: Grax2Parameters) -> Graph:
    """Scores of all pairs from vectors: added before the broadcast, the source alone, or a rank-2 product.

    GAT adds a column and a row of scores to a square: a transpose, a broadcast and a LeakyReLU on N x N
    elements. Added before the broadcast, all of that works on vectors (`literal`), but each row of the
    softmax is constant and attention a plain mean. `source` keeps the term that the softmax does not cancel;
    `rank2` keeps both and runs the square on the grid as a product.
    """
    editor = Rewriter.of(graph)
    for scores in find_score_sums(graph):
        editor.region = scores.operator.region
        if parameters.form == "rank2":
            editor.rewire(scores.operator.outputs[0], _rank2(editor, scores))
        else:
            vector = scores.row if parameters.form == "source" else _sum(editor, scores)
            _broadcast_after_activations(editor, graph, scores.operator, vector)
    return editor.finish()


def _rank2(editor: Rewriter, scores: ScoreSum) -> str:
    column, row = editor.tensors[scores.column], editor.tensors[scores.row]
    ones_right = editor.constant("rank2/ones_right", column.shape, column.dtype, fill=1.0)
    ones_below = editor.constant("rank2/ones_below", row.shape, row.dtype, fill=1.0)
    left = editor.concat((column.name, ones_right), len(column.shape) - 1, "rank2/left")
    right = editor.concat((ones_below, row.name), len(row.shape) - 2, "rank2/right")
    return editor.matmul(left, right, "rank2/matmul", keep_float=True)


def _sum(editor: Rewriter, scores: ScoreSum) -> str:
    upright = scores.row_as_column
    if upright is None:
        upright = editor.reshape(scores.row, editor.tensors[scores.column].shape, "grax2/upright")
    return editor.eltwise("Add", scores.column, upright, "grax2/add")


def _broadcast_after_activations(editor: Rewriter, graph: Graph, addition: Operator, vector: str) -> None:
    """Move activations before the broadcast: N elements instead of N x N."""
    full_size = addition.outputs[0]
    small = editor.tensors[vector].shape
    editor.rewire(full_size, vector)
    readers = graph.readers(full_size)
    while len(readers) == 1 and readers[0].family is Family.ACTIVATION and full_size not in graph.outputs:
        full_size = vector = readers[0].outputs[0]
        editor.change_tensor(full_size, shape=small)
        readers = graph.readers(full_size)
    full = graph.tensors[addition.outputs[0]].shape
    large = {name for name, tensor in graph.tensors.items() if tensor.shape[-2:] == full[-2:]}
    bare = [op for op in readers if not large.difference({full_size}).intersection(op.inputs)]
    if bare or full_size in graph.outputs:
        copy = editor.op("Broadcast", (vector,), full, editor.tensors[vector].dtype, "grax2/broadcast")
        editor.rewire(vector, copy, only=[op.name for op in bare])


GRAX2 = Technique(
    name="grax2",
    numerics="literal: attention is a uniform mean (+0.3 points on Cora, noise); source: 0.0; rank2: exact.",
    rewrite=_rewrite,
    stage=Stage.OPERATORS,
    needs="a broadcast addition of attention scores",
    finds=lambda graph, _: find_score_sums(graph),
    parameters=Grax2Parameters,
    exact=False,
    source="GraNNite, section IV-C",
)
