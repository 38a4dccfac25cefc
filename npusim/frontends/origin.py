"""Lines of a user module that make sizes which depend on values, and how to write them statically."""

from __future__ import annotations

import re
from typing import Any

_PYTHON = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')
_SCRIPT = re.compile(r"^\s*(\S[^\n]*?)\((\d+)\): (\S+)", re.MULTILINE)
_LIBRARIES = ("/torch/", "/torch_geometric/", "/site-packages/", "/dist-packages/", "<frozen ")
_SELF_LOOPS = "self_loops"

_MASK = "use x * mask or torch.where(mask, x, 0): they keep the size"
_UNIQUE = "find the unique values before the network and hand them in"
_NONZERO = "make the indices before the network and hand them in, or multiply by the mask"
_ADVICE = {
    "aten::nonzero": _NONZERO,
    "aten::nonzero_numpy": _NONZERO,
    "aten::index": _MASK,
    "aten::masked_select": _MASK,
    "aten::_unique2": _UNIQUE,
    "aten::unique_dim": _UNIQUE,
    "aten::unique_consecutive": _UNIQUE,
    "aten::bincount": "sum a one-hot matrix, or scatter_add to zeros of a fixed size",
}
"""Operators of torch whose results have sizes that depend on values, and what has a fixed one."""
_ADVICE_SIZE = "this size is computed from values: use a fixed number, such as one of x.shape"
_ADVICE_SELF_LOOPS = (
    "give the layer add_self_loops=False and hand in an edge_index with self-loops "
    "(torch_geometric.utils.add_self_loops before the network)"
)
_SIZED = frozenset(
    f"aten::{name}"
    for name in ("zeros", "ones", "full", "empty", "arange", "expand", "view", "reshape", "repeat", "narrow",
                 "repeat_interleave", "split_with_sizes")
)  # fmt: skip
"""Operators of torch that take sizes."""
_ARITHMETIC = frozenset(
    f"aten::{name}"
    for name in ("Int", "IntImplicit", "ScalarImplicit", "item", "add", "sub", "mul", "floor_divide", "div")
) | {"prim::NumToTensor", "prim::ListConstruct"}
"""What sizes are computed with."""


def user_line(trace: str) -> str:
    """Return the innermost line of a stack trace that lies in no library, as `file:line, in function`.

    Parameters
    ----------
    trace : str
        As Python writes it (outermost first) or as torch's tracer does (innermost first).
    """
    python = [m.groups() for m in _PYTHON.finditer(trace)]
    frames = python[::-1] if python else [m.groups() for m in _SCRIPT.finditer(trace)]
    own = [f for f in frames if not any(part in f[0] for part in _LIBRARIES)]
    if not own:
        return ""
    file, line, function = own[0]
    return f"{file}:{line}, in {function}"


def advice_of_trace(graph: Any) -> str:
    """Say which lines of a module make sizes that depend on values, and what to write."""
    found: dict[str, str] = {}
    for node in graph.nodes():
        kind = node.kind()
        advice = _ADVICE_SIZE if kind in _SIZED else _ADVICE.get(kind, "")
        if not advice or not _depends_on_values(node):
            continue
        trace = repr(node.sourceRange()).replace("\\n", "\n").strip("'\"")
        line = user_line(trace)
        if line:
            advice = _ADVICE_SELF_LOOPS if _SELF_LOOPS in trace else advice
            found.setdefault(line, f"{line} ({kind.removeprefix('aten::')}): {advice}")
    return "; ".join(found.values())


def _depends_on_values(node: Any) -> bool:
    """Whether this use of an operator has a size from values: an index by a mask, a computed size."""
    inputs = list(node.inputs())
    if node.kind() == "aten::index":
        picks = [part.type() for part in inputs[1].node().inputs()]
        return any(pick.kind() == "TensorType" and pick.scalarType() == "Bool" for pick in picks)
    if node.kind() not in _SIZED:
        return True
    sizes = inputs if node.kind() == "aten::arange" else inputs[:1] if len(inputs) < 2 else inputs[:2]
    return any(_is_computed(part) for part in sizes if "Tensor" not in str(part.type()))


def _is_computed(size: Any) -> bool:
    """Whether a size follows from values, not from shapes and numbers alone."""
    node = size.node()
    if node.kind() not in _ARITHMETIC:
        return node.kind() not in ("aten::size", "prim::Constant", "prim::Param")
    return any(_is_computed(part) for part in node.inputs())
