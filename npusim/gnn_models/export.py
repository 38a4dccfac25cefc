"""Trains a workload's model and saves it as an OpenVINO IR, the file that runs on a laptop's NPU.

A file is written only where it would agree with the graph that npusim costs, operator for operator, or where
rounding is all that was added to it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npusim.errors import IllegalTechniqueError
from npusim.frontends.openvino_ir import openvino
from npusim.frontends.openvino_write import refuse_target, save_model
from npusim.frontends.pyg import convert
from npusim.gnn_models.judging import answers_of, quantised
from npusim.gnn_models.models import ModelInstance, model_instance, trainable
from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.gnn_models.training import Recipe, Trained, accuracy, one_thread, train
from npusim.graph import Graph
from npusim.ops import DType
from npusim.techniques import EdgeData, Stack, apply, parse, technique_with
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics


@dataclass(frozen=True, slots=True)
class Model:
    """A trained model in the form of a stack."""

    spec: GnnSpec
    stack: Stack
    graph: Graph  # what npusim builds for it
    variant: ModelInstance  # what PyTorch runs for it
    trained: Trained
    converted: Any  # the same as an `openvino.Model`
    test: float  # share of test nodes that it classifies correctly on OpenVINO's CPU device


@dataclass(frozen=True, slots=True)
class Export:
    """What was exported."""

    path: Path  # the `.xml` file; the `.bin` file lies beside it
    workload: str
    techniques: str
    test_accuracy: float
    """Share of test nodes that are classified correctly, in fp32 except products that QuantGr rounds."""
    operators: int  # operators of the graph, constants not counted


def export_model(
    workload: str,
    techniques: str = "none",
    data: Path | None = None,
    output: Path = Path("model.xml"),
    overrides: tuple[str, ...] = (),
    recipe: Recipe | None = None,
) -> Export:
    """Train a workload's model on real data and save it as OpenVINO IR.

    Weights are stored in fp16 where the workload's precision is fp16. With quantgr, products read
    FakeQuantize operators and 8-bit weights, of which a device makes integers; the costed graph has integers
    at once.

    Raises
    ------
    FileError
        When the raw data, or the folder to write to, is missing.
    IllegalTechniqueError
        When the stack is not legal on the workload, or cannot be expressed in a model file.
    """
    refuse_target(output)
    openvino()  # before training, so that a missing extra costs no time
    spec, stack = load_gnn(workload, overrides), parse(techniques)
    refuse_unexportable(spec, stack)
    model = trained_model(spec, stack, read_planetoid(spec.dataset, data), recipe or Recipe())
    save_model(model.converted, output, half=model.spec.precision == "fp16")
    return Export(output, workload, str(model.stack), model.test, len(model.graph))


def trained_model(
    spec: GnnSpec, stack: Stack, data: GraphData, recipe: Recipe, trained: Trained | None = None
) -> Model:
    """Return a workload's model with trained parameters under a stack; give `trained` to share a training."""
    graph = apply(build_gnn(spec, load_statistics(spec.dataset)), stack)
    instance = model_instance(spec, graph, stack, data, recipe.seed)
    if trained is None:
        trained = train(trainable(spec, data, recipe.seed), data, recipe)
    instance.module.load_state_dict(trained.parameters)
    instance.module.eval()
    with one_thread():
        make = quantised if stack.precision is DType.INT8 else convert
        converted = make(instance.module, instance.inputs)
    scores = answers_of(converted, instance.inputs)
    return Model(spec, stack, graph, instance, trained, converted, accuracy(scores, data.y, data.test))


def refuse_unexportable(spec: GnnSpec, stack: Stack) -> None:
    """Raise an `IllegalTechniqueError` that says why, where a stack on a workload has no model file.

    GraphSplit, GraSp, SymG and CacheG say where operators run and how tensors are stored, which no model file
    can hold: the file is that of the stack without them.
    """
    by_edges = {entry.technique.edges: entry.technique.name for entry in stack}
    precomputed = by_edges.get(EdgeData.CONSTANT) or by_edges.get(EdgeData.INPUT)
    weights, in_graph = by_edges.get(EdgeData.WEIGHTS), by_edges.get(EdgeData.IN_GRAPH)
    scattering = weights or in_graph
    remedy = " or ".join(technique_with(edges=edges).name for edges in (EdgeData.CONSTANT, EdgeData.INPUT))
    if spec.model == "gat" and spec.form == "edges" and precomputed is not None:
        raise IllegalTechniqueError(
            precomputed,
            "of scores along edges it makes all pairs with the operators that were there; a model file is "
            "written with products in their place",
            "export the form that has all pairs: --set workload.form=dense",
        )
    if spec.model == "sage-max" and spec.form == "edges" and precomputed is not None:
        raise IllegalTechniqueError(
            precomputed,
            "sage-max along edges keeps its scatter, whose indices a model file holds in another shape",
            "export the form with neighbours side by side: --set workload.form=gathered",
        )
    if spec.form == "edges" and spec.model in ("gcn", "sage-mean") and scattering and precomputed is None:
        raise IllegalTechniqueError(
            scattering,
            "it scatters weights to pairs of node numbers, which PyTorch cannot say; its file would differ "
            "from the graph that npusim costs",
            f"use {remedy}" + (", or --set workload.form=dense" if weights else ""),
        )
    if spec.model == "sage-mean" and in_graph and precomputed is None and not weights:
        raise IllegalTechniqueError(
            in_graph,
            "the graph that npusim costs reshapes the neighbours' mask to and fro, which a file leaves out",
            f"use {remedy}",
        )
