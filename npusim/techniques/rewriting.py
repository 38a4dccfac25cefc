"""What keeps techniques from a network, and how it would have to be written for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from npusim.graph import Graph
from npusim.ops import Family, Operator
from npusim.techniques.edge_attention import find_edge_attentions
from npusim.techniques.preprocessing import feature_independent


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A change of the model by hand that opens it to techniques."""

    operator: str
    """Where: the operator that is in the way."""
    region: str
    """Part of the network that it belongs to."""
    what: str
    """What is written there, and what to write instead."""
    opens: tuple[str, ...]
    """Techniques that apply then."""


def rewritings(graph: Graph) -> tuple[Rewriting, ...]:
    """Return what a user could write otherwise, each place once."""
    found = {one.operator: one for detect in _DETECTORS for one in detect(graph)}
    return tuple(found.values())


def _joint_scores(graph: Graph) -> Iterator[Rewriting]:
    """Attention whose score of an edge mixes both ends before it is summed, as GATv2's does."""
    known = {attention.result for attention in find_edge_attentions(graph)}
    for op in graph:
        if op.family is not Family.ACTIVATION or not op.outputs or op.outputs[0] in known:
            continue
        added = graph.writer(op.inputs[0])
        ends = [] if added is None or added.type != "Add" else [graph.writer(t) for t in added.inputs]
        gathered = [end for end in ends if end is not None and end.family is Family.GATHER]
        shape = graph.tensors[op.outputs[0]].shape
        if len(gathered) != 2 or len(shape) < 3 or shape[-1] == 1:
            continue
        nodes = graph.tensors[gathered[0].inputs[0]].shape[0]
        size = float(nodes) ** 2 * shape[-2] * shape[-1] * graph.tensors[op.outputs[0]].dtype.bytes
        yield Rewriting(
            op.name, op.region,
            f"scores mix both ends of an edge in {shape[-1]} features before they are summed (GATv2): over "
            f"all pairs that takes {size / 1e6:.3g} MB; a score that is one number of the source plus one of "
            "the target (GATConv) becomes a dense [N, N]",
            ("stagr", "grad", "effop", "grax1", "grax2"),
        )  # fmt: skip


def _scattered_maxima(graph: Graph) -> Iterator[Rewriting]:
    """A maximum over neighbours by a scatter, which one DSP does element by element."""
    for op in graph:
        if (
            op.family is Family.SCATTER
            and op.attrs.get("reduction") == "max"
            and _of_features(graph, op)
            and not _steadies_softmax(graph, op)
        ):
            yield Rewriting(
                op.name, op.region,
                "a maximum over the edges is scattered; over K sampled neighbours a node, gathered to "
                "[N, K, F] and masked by a Select, it becomes a product and a pooling",
                ("effop", "grax3"),
            )  # fmt: skip


def _edges_of_features(graph: Graph) -> Iterator[Rewriting]:
    """Neighbours that follow from features (k nearest neighbours), so that nothing can be made beforehand."""
    constant = feature_independent(graph)
    for op in graph:
        indices = op.inputs[1] if op.family is Family.GATHER and len(op.inputs) > 1 else ""
        if indices and indices not in constant and graph.tensors[op.inputs[0]].shape[0] > 1:
            yield Rewriting(
                op.name, op.region,
                "neighbours follow from the features, so that no matrix can be ready before; edges as an "
                "input or a constant of the model can be",
                ("stagr", "grad", "preg"),
            )  # fmt: skip


def _steadies_softmax(graph: Graph, op: Operator) -> bool:
    """Whether a maximum is only taken from scores before their exponential."""
    later = [reader for name in op.outputs for reader in graph.readers(name)]
    gathered = [reader for one in later for name in one.outputs for reader in graph.readers(name)]
    return any(reader.type == "Subtract" for reader in (*later, *gathered))


def _of_features(graph: Graph, op: Operator) -> bool:
    return not feature_independent(graph).issuperset(op.outputs)


_DETECTORS: tuple[Callable[[Graph], Iterator[Rewriting]], ...] = (
    _joint_scores,
    _scattered_maxima,
    _edges_of_features,
)
