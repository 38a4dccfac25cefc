"""Feature decomposition: neighbours are aggregated in chunks of the features, which are then joined."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from npusim.arch import load_soc
from npusim.graph import Editor, Graph
from npusim.graph.editor import unique_name
from npusim.ops import DType, Family, Operator, Tensor
from npusim.techniques.preprocessing import MATRIX_ROLES
from npusim.techniques.stack import Parameters, Stage, Technique

_EDGE_BYTES = 2 * DType.INT64.bytes
"""Bytes of an edge in a list: two node numbers."""
_PROCESSOR = "generic-cpu"
"""SoC that supplies the cache line where the setting states none."""


class DecompositionParameters(Parameters):
    """Into how many chunks the features are cut."""

    chunks: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = 2
    """Chunks of each aggregation; the next number that divides its width is taken. `auto`: as few as fit
    `memory_gb`; with `cache_mb`, of those that fit, as many as move the fewest bytes."""
    memory_gb: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """Memory that messages, indices and inputs of an aggregation may take (GB); for `chunks=auto`."""
    cache_mb: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """Cache that serves again what it holds of the features (MB); for `chunks=auto`."""
    line_bytes: Annotated[float, Field(gt=0.0, le=1e6)] | None = None
    """Bytes that memory hands over at a time (B); for `cache_mb`. None: a cache line of `generic-cpu`."""


@dataclass(frozen=True, slots=True)
class Segment:
    """An aggregation whose columns do not depend on each other: operators between features and sums."""

    features: str
    """Tensor whose rows are aggregated; its last axis is cut."""
    operators: tuple[Operator, ...]
    """In order, the one that reads the features first."""

    def width(self, graph: Graph) -> int:
        """Return the length of the axis that is cut: of a head where there are heads."""
        return graph.tensors[self.features].shape[-1]

    @property
    def result(self) -> str:
        """Tensor of sums."""
        return self.operators[-1].outputs[0]


def segments(graph: Graph) -> tuple[Segment, ...]:
    """Find the aggregations that can be cut: sums, means and maxima over neighbours, column by column."""
    found: list[Segment | None] = []
    constant = graph.feature_independent
    for op in graph:
        if op.repeats > 1:
            continue
        sparse = op.family is Family.AGGREGATE and len(op.inputs) == 2 and op.inputs[1] not in constant
        if sparse or (op.family is Family.MATMUL and _aggregates(graph, op, constant)):
            found.append(Segment(op.inputs[1], (op,)))
        elif op.family is Family.SCATTER and op.outputs[0] not in constant:
            found.append(_chain(graph, op, constant))
    return tuple(segment for segment in found if segment is not None)


def _aggregates(graph: Graph, op: Operator, constant: frozenset[str]) -> bool:
    """Whether a product multiplies a matrix over the nodes by features."""
    matrix, features = (graph.tensors[t] for t in op.inputs[:2])
    turned = op.attrs.get("transpose_a") or op.attrs.get("transpose_b")
    square = len(matrix.shape) == 2 and matrix.shape[0] == matrix.shape[1]
    of_graph = matrix.role in MATRIX_ROLES or matrix.name in graph.structural
    return square and of_graph and features.name not in constant and not turned


def _chain(graph: Graph, scatter: Operator, constant: frozenset[str]) -> Segment | None:
    """Follow messages back to the gather that fetched them, through factors of whole rows."""
    if scatter.type != "ScatterElementsUpdate" or scatter.inputs[0] not in constant:
        return None
    found, name = [scatter], scatter.inputs[2]
    while (op := graph.writer(name)) is not None:
        if len(graph.readers(name)) != 1 or name in graph.outputs:
            return None
        found.append(op)
        if op.family is Family.GATHER:
            table = graph.tensors[op.inputs[0]]
            wide = len(table.shape) > 1 and op.inputs[0] not in constant and op.inputs[1] in constant
            rows = op.attrs.get("axes", (0,)) == (0,)
            return Segment(op.inputs[0], tuple(reversed(found))) if wide and rows else None
        if op.type not in ("Multiply", "Divide"):
            return None
        shape = graph.tensors[name].shape
        scaled = [t for t in op.inputs if graph.tensors[t].shape == shape]
        factors = [t for t in op.inputs if graph.tensors[t].shape[-1:] in ((1,), ())]
        if len(scaled) != 1 or len(scaled) + len(factors) != len(op.inputs) or shape[-1] == 1:
            return None
        name = scaled[0]
    return None


def chunks_of(graph: Graph, segment: Segment, parameters: DecompositionParameters) -> int:
    """Return how many chunks an aggregation is cut into: the next number that divides its width."""
    width = segment.width(graph)
    if parameters.chunks != "auto":
        return divisor(width, parameters.chunks)
    limit = math.inf if parameters.memory_gb is None else parameters.memory_gb * 1e9
    counts = [p for p in range(1, width + 1) if width % p == 0]
    fitting = [p for p in counts if peak_bytes(graph, segment, p) <= limit] or [width]
    if parameters.cache_mb is None:
        return fitting[0]
    cache_bytes = parameters.cache_mb * 1e6
    line_bytes = parameters.line_bytes
    if line_bytes is None:
        hosts = load_soc(_PROCESSOR).hosts.values()
        (line_bytes,) = {float(host.cache_line) for host in hosts if host.cache_line}
    return min(fitting, key=lambda p: moved_bytes(graph, segment, p, cache_bytes, line_bytes))


def divisor(width: int, chunks: int) -> int:
    """Return the smallest divisor of a width that is no less than a number of chunks, or the width.

    Examples
    --------
    >>> divisor(64, 3), divisor(7, 2), divisor(7, 32)
    (4, 7, 7)
    """
    return next((p for p in range(min(chunks, width), width + 1) if width % p == 0), width)


def peak_bytes(graph: Graph, segment: Segment, chunks: int) -> float:
    """Count the bytes of an aggregation in chunks: messages, scaled copy, indices, features, sums.

    Section II-B of the paper: by edges, features and chunks.
    """
    kept = float(graph.tensors[segment.features].bytes + graph.tensors[segment.result].bytes)
    if len(segment.operators) == 1:
        return kept + float(graph.tensors[segment.operators[0].inputs[0]].bytes)
    messages = [graph.tensors[op.outputs[0]] for op in segment.operators[:-1]]
    return kept + sum(t.bytes / chunks for t in messages) + _EDGE_BYTES * messages[0].shape[0]


def moved_bytes(graph: Graph, segment: Segment, chunks: int, cache_bytes: float, line_bytes: float) -> float:
    """Count the bytes between a cache and memory that depend on the chunks (section II-B of the paper).

    Edges are read again for each chunk; a row of the features comes from memory, with its cache line, by the
    share of the chunk's table that the cache does not hold.
    """
    table = graph.tensors[segment.features]
    first = segment.operators[0]
    if len(segment.operators) == 1:
        matrix = graph.tensors[first.inputs[0]]
        edges, listed = float(matrix.nonzeros), float(matrix.bytes)
    else:
        edges = float(graph.tensors[first.outputs[0]].shape[0])
        listed = _EDGE_BYTES * edges
    held = float(table.bytes) / chunks
    row_bytes = held / table.shape[0]
    missed = max(0.0, 1.0 - cache_bytes / held)
    return chunks * (listed + edges * missed * max(row_bytes, line_bytes))


def _check(graph: Graph, parameters: DecompositionParameters) -> str | None:
    found = segments(graph)
    if parameters.chunks == "auto":
        if parameters.memory_gb is None and parameters.cache_mb is None:
            return (
                "feature-decomposition needs memory_gb with chunks=auto, such as chunks=auto:memory_gb=8, or "
                "cache_mb, such as chunks=auto:cache_mb=16"
            )
        if parameters.memory_gb is None:
            return None
        worst = min(
            (parameters.memory_gb * 1e9 - peak_bytes(graph, s, s.width(graph)) for s in found), default=0
        )
        if worst < 0:
            least = parameters.memory_gb - worst / 1e9
            return f"feature-decomposition needs memory_gb of at least {least:.3g}: chunks of 1 take that"
        return None
    widest = max(s.width(graph) for s in found)
    if parameters.chunks > widest:
        headed = any(len(graph.tensors[s.features].shape) > 2 for s in found)
        what = "features of a head" if headed else "features"
        return f"feature-decomposition needs chunks of at most {widest}, the {what} that are aggregated"
    heads = [s.width(graph) for s in found if len(graph.tensors[s.features].shape) > 2]
    if heads and max(heads) % parameters.chunks:
        return f"feature-decomposition needs chunks that divide the {max(heads)} features of a head"
    return None


def _rewrite(graph: Graph, parameters: DecompositionParameters) -> Graph:
    editor = Editor.of(graph)
    for segment in segments(graph):
        chunks = chunks_of(graph, segment, parameters)
        if chunks > 1:
            _decompose(editor, graph, segment, chunks)
    return editor.finish()


def _decompose(editor: Editor, graph: Graph, segment: Segment, chunks: int) -> None:
    """Let the operators of an aggregation run a chunk at a time, and join the chunks."""
    first, last = segment.operators[0], segment.operators[-1]
    table = graph.tensors[segment.features]
    width = table.shape[-1] // chunks
    region = editor.region = last.region
    shape = (*table.shape[:-1], width)
    current = _sliced(editor, table, shape, unique_name(editor, f"{region}/chunk"))
    editor.change_operator(current, repeats=chunks)
    swapped = segment.features
    for op in segment.operators:
        result = graph.tensors[op.outputs[0]]
        inputs = [current if t == swapped else t for t in op.inputs]
        if op is last and op.family is Family.SCATTER:
            whole = graph.tensors[op.inputs[0]]
            name, part = unique_name(editor, f"{whole.name}/chunk"), (*whole.shape[:-1], width)
            inputs[0] = editor.constant(name, part, whole.dtype, density=whole.density)
            inputs[1] = _index(editor, graph, op.inputs[1], (*graph.tensors[op.inputs[1]].shape[:-1], width))
        name = unique_name(editor, f"{op.name}/chunk")
        piece = result.with_(name=name, shape=(*result.shape[:-1], width))
        editor.add_operator(
            op.with_(name=name, inputs=tuple(inputs), outputs=(name,), repeats=chunks), [piece]
        )
        swapped, current = op.outputs[0], name
    result = graph.tensors[last.outputs[0]]
    editor.region = first.region
    name = unique_name(editor, f"{region}/join")
    joined = editor.concat((current,) * chunks, len(result.shape) - 1, name)
    editor.rewire(result.name, joined)


def _sliced(editor: Editor, whole: Tensor, shape: tuple[int, ...], name: str) -> str:
    """Columns of a tensor."""
    ends = [editor.constant(f"{name}/{end}", (1,), DType.INT64) for end in ("begin", "end", "step")]
    return editor.op(
        "Slice", (whole.name, *ends), shape, whole.dtype, name, tensor={"density": whole.density}
    )


def _index(editor: Editor, graph: Graph, index: str, shape: tuple[int, ...]) -> str:
    """The targets repeated over the width of a chunk; equal ones once."""
    whole, targets = graph.tensors[index], graph.before_broadcast(index)
    name = f"{index}/chunk{shape[-1]}"
    if name in editor.operators:
        return name
    writer, here = graph.writer(index), editor.region
    editor.region = writer.region if writer is not None else here
    if graph.tensors[targets].elements != shape[0]:  # they came repeated over the whole width
        result = _sliced(editor, whole, shape, name)
        editor.region = here
        return result
    column = editor.reshape(
        targets, (shape[0], *(1,) * (len(shape) - 1)), unique_name(editor, f"{name}_column")
    )
    kind = editor.tensors[targets].dtype
    wide = editor.op("Broadcast", (column,), shape, kind, unique_name(editor, f"{name}_wide"))
    result = editor.op("Convert", (wide,), shape, whole.dtype, name)
    editor.region = here
    return result


FEATURE_DECOMPOSITION = Technique(
    name="feature-decomposition",
    summary="Neighbours are aggregated in chunks of the features, one after the other, then joined.",
    rationale=(
        "A message for each edge, as wide as the features, and its scaled copy fill the memory of a GNN: "
        "29 GB on Reddit with 32 features. Sums, means and maxima work feature by feature, so that chunks "
        "need a part of that each, and rows of a chunk fit caches that whole rows do not. The price is that "
        "every chunk reads all edges again, and calls every operator again."
    ),
    numerics="The same to the bit: each feature is summed over the same neighbours in the same order.",
    rewrite=_rewrite,
    stage=Stage.OPERATORS,
    needs="an aggregation over neighbours that works feature by feature",
    finds=lambda graph, _: segments(graph),
    check=_check,
    parameters=DecompositionParameters,
    source="Zhou et al., Optimizing Memory Efficiency of GNNs on Edge Computing Platforms",
)
