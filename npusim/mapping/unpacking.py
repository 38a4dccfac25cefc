"""Packed weights that a device does not multiply as they are: unpacked ahead, or by operators.

Weights of 8 or 4 bits with scales are multiplied by activations in floating point. Where they become numbers
again is a fact of the device and its compiler (`packed_weights` in the data sheet).
"""

from __future__ import annotations

from npusim.arch import Soc
from npusim.graph import Editor, Graph
from npusim.ops import DType, Family, Operator, TensorKind

_BITS = {8: "int8", 4: "int4"}


def unpacked(graph: Graph, soc: Soc, device: str) -> Graph:
    """Return a graph whose packed weights are as the devices take them.

    Parameters
    ----------
    device : str
        As in `npusim.mapping.Run`.
    """
    editor, changed = Editor.of(graph), False
    for op in graph:
        how = _handling(op, graph, soc, device)
        if how == "product":
            continue
        changed = True
        weight, dtype = graph.tensors[op.inputs[1]], graph.tensors[op.inputs[0]].dtype
        editor.part_name, editor.region = op.part, op.region
        if how == "ahead":
            name = f"{weight.name}/unpacked/{op.part}"
            if name not in editor.tensors:
                editor.constant(name, weight.shape, dtype, role=weight.role)
        else:
            name = _add_operators(editor, op, weight.name, dtype)
        editor.rewire(weight.name, name, only=[op.name])
    return editor.finish() if changed else graph


def _add_operators(editor: Editor, op: Operator, weight: str, dtype: DType) -> str:
    """Add Convert and Multiply, which write the weight in floating point at each inference."""
    shape, name = editor.tensors[weight].shape, f"{op.name}/unpack"
    wide = editor.op("Convert", (weight,), shape, dtype, f"{name}/convert", device=op.device)
    scale = editor.constant(f"{name}/scale", (shape[0], *(1 for _ in shape[1:])), dtype)
    return editor.op("Multiply", (wide, scale), shape, dtype, f"{name}/scaled", device=op.device)


def _handling(op: Operator, graph: Graph, soc: Soc, device: str) -> str:
    """Return where a product's packed weight is unpacked; `product` where there is none."""
    if op.family is not Family.MATMUL or len(op.inputs) < 2:
        return "product"
    left, weight = graph.inputs_of(op)[:2]
    packed = weight.kind is TensorKind.CONSTANT and weight.scales_bytes > 0.0 and not weight.dtype.is_float
    bits = _BITS.get(weight.dtype.bits)
    if not packed or bits is None or not left.dtype.is_float:
        return "product"
    stays = device == "auto" or op.pinned
    target = soc.named((op.device or soc.main_device) if stays else device)
    return "product" if target is None else str(getattr(soc.devices[target].packed_weights, bits))
