"""GraSp: sparse operands are stored with zero-value compression, a bitmap and the non-zeros."""

from __future__ import annotations

from npusim.graph import Editor, Graph
from npusim.ops import Annotation, Role, Storage, Tensor, TensorKind, stored_bytes
from npusim.techniques.preprocessing import MATRIX_ROLES, stored_tensors
from npusim.techniques.technique import Parameters, Stage, Technique


class GraspParameters(Parameters):
    """Which tensors are compressed: a switch a kind."""

    matrix: bool = True
    """The norm matrix, adjacency or mask."""
    features: bool = True
    """The input features."""
    constants: bool = True
    """Weights and every other constant."""


def _wanted(tensor: Tensor, parameters: GraspParameters) -> bool:
    if tensor.role in MATRIX_ROLES:
        return parameters.matrix
    if tensor.role is Role.FEATURES:
        return parameters.features
    return tensor.kind is TensorKind.CONSTANT and parameters.constants


def _compressed(graph: Graph, parameters: GraspParameters) -> list[Tensor]:
    found = []
    for tensor in stored_tensors(graph):
        columns = tensor.shape[-1] if tensor.shape else 1
        packed = stored_bytes(tensor.elements, tensor.dtype, Storage.ZVC, tensor.density, columns)
        if packed < tensor.stored_bytes and _wanted(tensor, parameters):
            found.append(tensor)
    return found


def _rewrite(graph: Graph, parameters: GraspParameters) -> Graph:
    editor = Editor.of(graph)
    for tensor in _compressed(graph, parameters):
        editor.change_tensor(tensor.name, storage=Storage.ZVC)
    return editor.finish()


GRASP = Technique(
    name="grasp",
    summary=(
        "Sparse constants and inputs are stored with zero-value compression: one bit per element, then the "
        "non-zeros."
    ),
    rationale=(
        "Cora's norm matrix is 99.8 % zeros: 0.94 MB in place of 14.7 MB, nearly all of it the bitmap. "
        "Whether that saves traffic depends on whether the DMA can decompress the operand's role, and how "
        "many multiplications are skipped on the grid's granules and balance; both are properties of the "
        "machine, not of this rewrite."
    ),
    numerics="The same.",
    rewrite=_rewrite,
    stage=Stage.STORAGE,
    needs="a constant or input that zero-value compression makes smaller",
    finds=_compressed,
    parameters=GraspParameters,
    annotation=Annotation.COMPRESSED,
    host_note=(
        "products are costed along the non-zeros, as libraries for sparse matrices work; OpenVINO "
        "multiplies them dense"
    ),
    source="GraNNite, section IV-B",
)
