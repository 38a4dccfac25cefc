"""A graph with the costs of an estimate, for other tools: networkx, GraphML, DOT of Graphviz, ONNX.

A node holds what its operator costs, in SI units by the names of `OperatorCost`. An operator that is fused
into another one names it under `fused_into`, and has no cost of its own.
"""

from __future__ import annotations

import io
from importlib import import_module
from typing import TYPE_CHECKING, Any

from npusim.engines.estimate import Estimate, OperatorCost
from npusim.errors import FileError, printable
from npusim.graph import Graph, to_dot

if TYPE_CHECKING:
    import networkx as nx

_TOTALS = ("workload", "soc", "techniques", "engine", "hint", "latency_s", "energy_j", "dram_bytes", "area_mm2")
_WITH_OTHER_NAMES = {
    "fp64": "DOUBLE",
    "fp32": "FLOAT",
    "fp16": "FLOAT16",
    "bf16": "BFLOAT16",
    "fp8_e4m3": "FLOAT8E4M3FN",
    "fp8_e5m2": "FLOAT8E5M2",
}
"""ONNX names of formats that are not ours in capital letters."""


def costed_graph(graph: Graph, estimate: Estimate) -> nx.DiGraph[str]:
    """Return a graph after its techniques as networkx's, with the costs of an estimate of it.

    Examples
    --------
    >>> import npusim
    >>> scenario = npusim.Scenario("gcn-cora", techniques="stagr")
    >>> result = npusim.estimate(scenario)
    >>> costed = costed_graph(scenario.graph, result)
    >>> sum(cost["critical_s"] for _, cost in costed.nodes(data=True) if cost.get("critical_s")) <= result.latency_s
    True
    """
    view = graph.to_networkx()
    for name, fields in _costs(estimate).items():
        view.nodes[name].update(fields)
    view.graph.update(_totals(estimate))
    return view


def written_graph(graph: Graph, estimate: Estimate, ending: str) -> bytes:
    """Return a costed graph as the content of a file that ends in .graphml, .dot or .onnx."""
    return WRITERS[ending](graph, estimate)


def _costs(estimate: Estimate) -> dict[str, dict[str, Any]]:
    """Return the figures and texts of each operator, by its name."""
    costs: dict[str, dict[str, Any]] = {}
    for cost in estimate.operators:
        values = {name: getattr(cost, name) for name in OperatorCost.model_fields if name != "name"}
        costs[cost.name] = {key: value for key, value in values.items() if isinstance(value, str | int | float)}
        costs |= {fused: {"fused_into": cost.name} for fused in cost.fused}
    return costs


def _totals(estimate: Estimate) -> dict[str, Any]:
    return {name: getattr(estimate, name) for name in _TOTALS}


def _graphml(graph: Graph, estimate: Estimate) -> bytes:
    """Return GraphML, whose names hold no control characters: XML has none."""
    import networkx as nx

    view = nx.relabel_nodes(costed_graph(graph, estimate), printable)
    for fields in (view.graph, *(fields for _, fields in view.nodes(data=True))):
        fields.update({key: printable(value) for key, value in fields.items() if isinstance(value, str)})
    for _, _, fields in view.edges(data=True):
        fields["tensor"] = printable(fields["tensor"])
    content = io.BytesIO()
    nx.write_graphml(view, content, infer_numeric_types=True)
    return content.getvalue()


def _dot(graph: Graph, estimate: Estimate) -> bytes:
    return to_dot(graph, facts=_costs(estimate)).encode()


def _onnx(graph: Graph, estimate: Estimate) -> bytes:
    """Return ONNX: operators of the domain `npusim` with costs as metadata; constants are inputs without data."""
    try:
        onnx: Any = import_module("onnx")
    except ImportError:
        raise FileError("onnx", "is not installed", "install it: pip install onnx") from None
    helper, types, costs = onnx.helper, dict(onnx.TensorProto.DataType.items()), _costs(estimate)

    def declared(name: str) -> Any:
        tensor = graph.tensors[name]
        form = tensor.dtype.value
        element = types.get(_WITH_OTHER_NAMES.get(form, form.upper()), types["UNDEFINED"])
        info = helper.make_tensor_value_info(name, element or types["UINT8"], tensor.shape)
        facts = {"kind": tensor.kind.value, "format": form, "bytes": tensor.stored_bytes}
        helper.set_model_props(info, {key: str(value) for key, value in facts.items()})
        return info

    nodes = []
    for op in graph:
        node = helper.make_node(op.type, op.inputs, op.outputs, name=op.name, domain="npusim")
        facts = {"region": op.region, "macs": graph.macs_of(op), **costs.get(op.name, {})}
        helper.set_model_props(node, {f"npusim.{key}": str(value) for key, value in facts.items()})
        nodes.append(node)
    written = {name for op in graph for name in op.outputs}
    inputs = [declared(name) for name in graph.tensors if name not in written]
    inner = [declared(name) for name in graph.tensors if name in written and name not in graph.outputs]
    outputs = [declared(name) for name in graph.outputs]
    body = helper.make_graph(nodes, graph.name, inputs, outputs, value_info=inner)
    model = helper.make_model(body, producer_name="npusim", opset_imports=[helper.make_opsetid("npusim", 1)])
    helper.set_model_props(model, {f"npusim.{key}": str(value) for key, value in _totals(estimate).items()})
    return bytes(model.SerializeToString())


WRITERS = {".graphml": _graphml, ".dot": _dot, ".onnx": _onnx}
"""Writers of a costed graph by the ending of its file."""
