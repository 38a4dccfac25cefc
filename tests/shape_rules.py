"""OpenVINO's shape rules, written down a second time: whether the shapes of a graph go together."""

import math

from npusim.graph import Graph
from npusim.ops import Family, Operator


def misfits(graph: Graph) -> list[str]:
    """Return a line for each operator whose result cannot have the shape it has."""
    return [f"{op.type} {op.name}: {_shapes(graph, op)}" for op in graph if not _fits(graph, op)]


def _shapes(graph: Graph, op: Operator) -> str:
    inputs = ", ".join(str(t.shape) for t in graph.inputs_of(op))
    return f"{inputs} -> {graph.outputs_of(op)[0].shape}"


def _fits(graph: Graph, op: Operator) -> bool:
    inputs = [t.shape for t in graph.inputs_of(op)]
    result = graph.outputs_of(op)[0].shape
    if op.family is Family.MATMUL:
        graph.work(op)
        a, b = inputs[0], inputs[1]
        rows = a[-1] if op.attrs.get("transpose_a") else a[-2]
        columns = b[-2] if op.attrs.get("transpose_b") else b[-1]
        return result[-2:] == (rows, columns)
    if op.family is Family.AGGREGATE:
        graph.work(op)
        return result == (inputs[0][0], inputs[1][1])
    if op.type == "Slice":
        return len(inputs[0]) == len(result) and all(a >= b for a, b in zip(inputs[0], result, strict=True))
    if op.type == "TakePages":
        return len(result) == 1
    if op.type == "EdgesToCsr":
        return inputs[0] == inputs[1] and graph.outputs_of(op)[0].nonzeros == inputs[0][0]
    if op.family in (Family.ELTWISE, Family.COMPARE, Family.SELECT):
        return _broadcast(inputs) == result
    if op.family in (Family.ACTIVATION, Family.SOFTMAX, Family.CONVERT):
        return inputs[0] == result
    if op.family is Family.VIEW:
        return math.prod(inputs[0]) == math.prod(result)
    if op.type == "Concat":
        axis = op.attrs["axes"][0]
        same = all(s[:axis] + s[axis + 1 :] == result[:axis] + result[axis + 1 :] for s in inputs)
        return same and sum(s[axis] for s in inputs) == result[axis]
    if op.type == "Transpose":
        return tuple(inputs[0][i] for i in op.attrs["order"]) == result
    if op.type == "Broadcast":
        return _broadcast([inputs[0], result]) == result
    if op.family is Family.GATHER:
        axis = op.attrs.get("axes", (0,))[0]
        return inputs[0][:axis] + inputs[1] + inputs[0][axis + 1 :] == result
    if op.type == "ScatterElementsUpdate":
        return inputs[0] == result and inputs[1] == inputs[2]
    if op.type == "ScatterNDUpdate":
        return inputs[0] == result and inputs[1][:-1] == inputs[2]
    if op.family is Family.REDUCE:
        kept = [1 if i in op.attrs["axes"] else d for i, d in enumerate(inputs[0])]
        short = [d for i, d in enumerate(inputs[0]) if i not in op.attrs["axes"]]
        return list(result) == (kept if op.attrs.get("keep_dims") else short)
    if op.type == "MaxPool":
        kernel = op.attrs["kernel"]
        spatial = [d - k + 1 for d, k in zip(inputs[0][2:], kernel, strict=True)]
        return [*inputs[0][:2], *spatial] == list(result)
    raise AssertionError(f"no shape rule for {op.type}")


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True)
    sizes = [{d for d in column if d != 1} for column in columns]
    return None if any(len(s) > 1 for s in sizes) else tuple(s.pop() if s else 1 for s in sizes)
