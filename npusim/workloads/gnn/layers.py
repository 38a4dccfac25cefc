"""The parts every GNN is made of: linear layers, biases, activations, output.

Each part emits the operators that OpenVINO's
conversion of the equal PyTorch code gives, down to the shape of a bias, because exported and built graphs are
compared operator for operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npusim.graph import Editor, GraphMeta, GraphStructure
from npusim.ops import DType, Role
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
