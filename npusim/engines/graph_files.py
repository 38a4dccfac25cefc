"""A graph with the costs of an estimate, for other tools: networkx, GraphML, DOT of Graphviz, ONNX.

A node holds what its operator costs, in SI units by the names of `OperatorCost`. An operator that is fused
into another one names it under `fused_into`, and has no cost of its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from npusim.engines.estimate import Estimate
from npusim.files import optional_module
from npusim.graph import Graph

if TYPE_CHECKING:
    import networkx as nx

_TOTALS = {"workload", "soc", "techniques", "engine", "hint", "latency_s", "energy_j", "dram_bytes"}
_OTHER_NAMES = dict(fp64="DOUBLE", fp32="FLOAT", fp16="FLOAT16", bf16="BFLOAT16")
_OTHER_NAMES |= dict(fp8_e4m3="FLOAT8E4M3FN", fp8_e5m2="FLOAT8E5M2")
"""ONNX names of formats that are not ours in capital letters."""


def costed_graph(graph: Graph, estimate: Estimate) -> nx.DiGraph[str]:
    """Return a graph after its techniques as networkx's, with the costs of an estimate of it.

    Examples
    --------
    >>> import npusim
    >>> scenario = npusim.Scenario("gcn-cora", techniques="stagr")
    >>> costed = costed_graph(scenario.graph, npusim.estimate(scenario))
    >>> costed.nodes["layer0/combine/matmul"]["unit"]
    'npu.dpu'
    """
    view = graph.to_networkx()
    for name, fields in _costs(estimate).items():
        view.nodes[name].update(fields)
    view.graph.update(estimate.model_dump(include=_TOTALS))
    return view


def _costs(estimate: Estimate) -> dict[str, dict[str, Any]]:
    """Return the figures and texts of each operator, by its name."""
    costs: dict[str, dict[str, Any]] = {}
    for cost in estimate.operators:
        costs |= {fused: {"fused_into": cost.name} for fused in cost.fused}
        facts = ((key, str(value) if isinstance(value, str) else value) for key, value in cost)
        costs[cost.name] = {key: value for key, value in facts if isinstance(value, str | int | float)}
    return costs


def _graphml(graph: Graph, estimate: Estimate) -> bytes:
    """Return GraphML; control characters in names, which XML lacks, become question marks."""
    import networkx as nx

    content = io.BytesIO()
    nx.write_graphml(costed_graph(graph, estimate), content, infer_numeric_types=True)
    return re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b"?", content.getvalue())


def _onnx(graph: Graph, estimate: Estimate) -> bytes:
    """Return ONNX: operators of the domain `npusim`, costs as metadata; constants are inputs without data."""
    onnx = optional_module("onnx", "onnx")
    helper, types, costs = onnx.helper, onnx.TensorProto, _costs(estimate)

    def with_facts(part: Any, facts: Mapping[str, Any]) -> Any:
        helper.set_model_props(part, {f"npusim.{key}": str(value) for key, value in facts.items()})
        return part

    def declared(name: str) -> Any:
        tensor = graph.tensors[name]
        form = tensor.dtype.value
        element = getattr(types, _OTHER_NAMES.get(form, form.upper()), types.UINT8)
        facts = {"kind": tensor.kind.value, "format": form, "bytes": tensor.stored_bytes}
        return with_facts(helper.make_tensor_value_info(name, element, tensor.shape), facts)

    nodes = []
    for op in graph:
        node = helper.make_node(op.type, op.inputs, op.outputs, name=op.name, domain="npusim")
        nodes.append(
            with_facts(node, {"region": op.region, "macs": graph.macs_of(op), **costs.get(op.name, {})})
        )
    written = {name for op in graph for name in op.outputs}
    inputs = [declared(name) for name in graph.tensors if name not in written]
    inner = [declared(name) for name in graph.tensors if name in written.difference(graph.outputs)]
    body = helper.make_graph(nodes, graph.name, inputs, [*map(declared, graph.outputs)], value_info=inner)
    model = helper.make_model(body, producer_name="npusim", opset_imports=[helper.make_opsetid("npusim", 1)])
    return bytes(with_facts(model, estimate.model_dump(include=_TOTALS)).SerializeToString())


def _dot(graph: Graph, estimate: Estimate) -> bytes:
    from npusim.graph import to_dot

    return to_dot(graph, facts=_costs(estimate)).encode()


WRITERS = {".graphml": _graphml, ".dot": _dot, ".onnx": _onnx}
"""Writers of a costed graph by the ending of its file."""
