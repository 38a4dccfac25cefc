"""From a live PyTorch or PyTorch Geometric module to npusim's operator graph, without a file in between.

A dictation instead of a letter: the module speaks once (it is traced), and what it said is taken down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npusim.errors import FileError, NpusimError
from npusim.frontends.openvino_ir import graph_of_model, openvino
from npusim.graph import Graph
from npusim.ops import DType, Role

__all__ = ["convert", "from_pyg"]


def from_pyg(
    module: Any,
    inputs: Mapping[str, Any] | Sequence[Any],
    name: str | None = None,
    roles: Mapping[str, Role] | None = None,
    precision: DType | None = DType.FP16,
) -> Graph:
    """Trace a module and return its operator graph.

    Parameters
    ----------
    module : torch.nn.Module
        The module.
    inputs : mapping of str to tensor, or sequence of tensors
        Example inputs in the order of `forward`; with names, or x, edge_index, input2 ... without. Their
        shapes are those of the graph.
    name : str, optional
        Name of the graph; default: the module's class.
    roles : mapping of str to Role, optional
        What inputs mean where their name does not say it.
    precision : DType, optional
        Format in which wider floating-point tensors are held; None keeps the module's.

    Returns
    -------
    Graph
        As `npusim.frontends.openvino_ir.import_model` returns it for the exported file.

    Raises
    ------
    NpusimError
        When the module cannot be converted, or has sizes that depend on values.
    """
    named = inputs if isinstance(inputs, Mapping) else dict(zip(_names(len(inputs)), inputs, strict=True))
    return graph_of_model(convert(module, named), name or type(module).__name__, None, roles, precision)


def _names(count: int) -> list[str]:
    return ["x", "edge_index", *(f"input{n}" for n in range(2, count))][:count]


def convert(module: Any, inputs: Mapping[str, Any]) -> Any:
    """Trace a module and return it as an `openvino.Model` with fixed shapes whose inputs have the given
    names.
    """
    ov = openvino()
    try:
        import torch
    except ImportError:
        raise FileError("torch", "is not installed", 'install it: pip install "npusim[gnn]"') from None
    examples = tuple(inputs.values())
    module.eval()
    try:
        with torch.no_grad():
            model = ov.convert_model(module, example_input=examples, input=[tuple(t.shape) for t in examples])
    except Exception as error:  # whatever tracing or conversion raises, it is about the module
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise NpusimError(f"{type(module).__name__} cannot be converted to OpenVINO: {reason}") from error
    for port, name in zip(model.inputs, inputs, strict=True):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
    return model
