"""Trains a workload's model and saves it as an OpenVINO IR, the file that runs on a laptop's NPU.

A file is written only where it would agree with the graph that npusim costs, operator for operator, or where
rounding is all that was added to it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npusim.errors import FileError

try:
    import torch  # noqa: F401
except ImportError:
    remedy = 'install it: pip install "npusim[gnn]"'
    raise FileError("torch", "is not installed, and models are trained with it", remedy) from None

from npusim.frontends.openvino_ir import openvino
from npusim.frontends.openvino_write import refuse_target, save_model
from npusim.gnn_models.models import TrainedWorkload, trainable
from npusim.gnn_models.number_formats import answers_of, quantised
from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.gnn_models.training import Recipe, Trained, accuracy, one_thread, train
from npusim.graph import Graph
from npusim.ops import DType
from npusim.techniques import Stack, apply, parse
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics


@dataclass(frozen=True, slots=True)
class Model:
    """A trained model in the form of a stack."""

    spec: GnnSpec
    stack: Stack
    graph: Graph  # what npusim builds for it
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
    apply(build_gnn(spec, load_statistics(spec.dataset)), stack)
    model = trained_model(spec, stack, read_planetoid(spec.dataset, data), recipe or Recipe())
    save_model(model.converted, output, half=model.spec.precision == "fp16")
    return Export(output, workload, str(model.stack), model.test, len(model.graph))


def trained_model(
    spec: GnnSpec, stack: Stack, data: GraphData, recipe: Recipe, trained: Trained | None = None
) -> Model:
    """Return a workload's model with trained parameters under a stack; give `trained` to share a training."""
    graph = build_gnn(spec, load_statistics(spec.dataset))
    if trained is None:
        trained = train(trainable(spec, data, recipe.seed), data, recipe)
    network = TrainedWorkload(spec, data, graph, trained.parameters, recipe.seed).rewritten(stack)
    model, inputs = network.model, network.inputs
    with one_thread():
        converted = quantised(model, inputs) if stack.precision is DType.INT8 else model
    test = accuracy(answers_of(converted, inputs), data.y, data.test)
    return Model(spec, stack, apply(graph, stack), trained, converted, test)
