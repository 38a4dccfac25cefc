"""Masks of attentions and of maxima over neighbours: finding them, and their 0/1 form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Operator, Role, Tensor, TensorKind
from npusim.techniques.preprocessing import feature_independent, unique_name


@dataclass(frozen=True, slots=True)
class Masking:
    """One place where values of absent edges are replaced by a large negative number."""

    values: str
    """What is masked: attention scores [N, N], or neighbours' features [N, K, F]."""
    result: str
    """Tensor that holds the masked values."""
    mask: str
    """The mask: boolean or 0/1, in whatever form the graph has it."""
    negative: str | None
    """The additive mask, where the masking is a Multiply and an Add."""
    operator: Operator
    """The operator that writes `result`: Select or Add."""
    first: Operator
    """The operator that reads `values`: Select or Multiply."""

    @property
    def selects(self) -> bool:
        """Whether it is written as a Select."""
        return self.operator.family is Family.SELECT


def find_maskings(graph: Graph) -> tuple[Masking, ...]:
    """Find every masking, by structure: a choice between values and constants that edges alone decide."""
    constant, found = feature_independent(graph), []
    for op in graph:
        find = _selecting if op.family is Family.SELECT else _multiplying
        masking = find(graph, op, constant)
        if masking is not None:
            found.append(masking)
    return tuple(found)


def _selecting(graph: Graph, op: Operator, constant: frozenset[str]) -> Masking | None:
    condition, values, otherwise = op.inputs[:3]
    if (
        values in constant
        or condition not in constant
        or otherwise not in constant
        or not _masks_nodes(graph, condition)
    ):
        return None
    return Masking(values, op.outputs[0], condition, None, op, op)


def _multiplying(graph: Graph, op: Operator, constant: frozenset[str]) -> Masking | None:
    if op.type != "Add":
        return None
    for product, negative in (op.inputs, op.inputs[::-1]):
        writer = graph.writer(product)
        if writer is None or writer.type != "Multiply" or len(graph.readers(product)) != 1:
            continue
        if negative not in constant or not _masks_nodes(graph, negative):
            continue
        for values, mask in (writer.inputs, writer.inputs[::-1]):
            if mask in constant and values not in constant and _masks_nodes(graph, mask):
                return Masking(values, op.outputs[0], mask, negative, op, writer)
    return None


def _masks_nodes(graph: Graph, name: str) -> bool:
    """A mask says something of more than one node at a time: it has two dimensions that are not 1."""
    return sum(d > 1 for d in graph.tensors[name].shape) >= 2


def mask_pair(
    editor: Editor, graph: Graph, masking: Masking, made: dict[str, tuple[str, str]], dtype: DType
) -> tuple[str, str]:
    """Return the names of the 0/1 mask and of the additive mask (0 and -1e4) that replace a condition.

    They are what the mask is: constants for a constant (StaGr), inputs for an input (GrAd), and made in the
    graph where the mask is made in the graph. `made` remembers the pair of each mask, so that layers share
    it.
    """
    number = _numeric(graph, masking.mask)
    if number.name not in made:
        in_graph = number.kind is TensorKind.ACTIVATION
        made[number.name] = (
            _computed(editor, graph, number, dtype) if in_graph else _prepared(editor, graph, number, dtype)
        )
    return made[number.name]


def _numeric(graph: Graph, mask: str) -> Tensor:
    """The 0/1 matrix behind a comparison with a constant, or the mask itself."""
    writer = graph.writer(mask)
    if writer is not None and writer.family is Family.COMPARE:
        for name in writer.inputs:
            if graph.tensors[name].shape == graph.tensors[mask].shape:
                return graph.tensors[name]
    return graph.tensors[mask]


def _prepared(editor: Editor, graph: Graph, mask: Tensor, dtype: DType) -> tuple[str, str]:
    same = {"dtype": dtype, "role": Role.MASK}
    present, made = mask.name, Editor.of(graph)
    parts = [made.part(name) for name in _computed(made, graph, mask, dtype)]
    if not mask.dtype.is_float:
        present = unique_name(editor, f"{mask.name}_present")
        editor.tensors[present] = mask.with_(name=present, **same)
        editor.prepared[present] = parts[0]
    absent = unique_name(editor, f"{mask.name}_negative")
    editor.tensors[absent] = mask.with_(name=absent, density=1.0 - mask.density, block_density=None, **same)
    editor.prepared[absent] = parts[1]
    return present, absent


def _computed(editor: Editor, graph: Graph, mask: Tensor, dtype: DType) -> tuple[str, str]:
    """Build the additive mask as 1e4 mask - 1e4, the form OpenVINO gives (mask - 1) 1e4."""
    writer = graph.writer(mask.name)
    editor.region = writer.region if writer is not None else ""
    more: dict[str, Any] = {"device": writer.device if writer is not None else None}
    place, one = f"{editor.region}/", (1,) * len(mask.shape)
    kept = {"role": Role.MASK, "density": mask.density, "block_density": mask.block_density}
    fields = {**kept, "symmetric": mask.symmetric}
    present = mask.name
    if not mask.dtype.is_float:
        name = unique_name(editor, f"{place}mask_present")
        present = editor.op("Convert", (present,), mask.shape, dtype, name, tensor=fields, **more)
    scale = editor.constant(unique_name(editor, f"{place}lowering"), one, dtype)
    offset = editor.constant(unique_name(editor, f"{place}minus_lowering"), one, dtype)
    scaled = editor.eltwise(
        "Multiply", present, scale, unique_name(editor, f"{place}mask_scaled"), tensor=fields, **more
    )
    fields |= {"density": 1.0 - mask.density, "block_density": None}
    return present, editor.eltwise(
        "Add", scaled, offset, unique_name(editor, f"{place}mask_negative"), tensor=fields, **more
    )
