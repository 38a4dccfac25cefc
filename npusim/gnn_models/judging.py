"""Accuracy, agreement and largest difference of trained models under technique stacks.

Shipped models are trained here. A user's own module keeps its parameters and layers: layers of PyG that sum
weighted neighbours become products with the matrix of the edges where a stack asks for one, each checked
against the layer's own result. Other techniques are exact, or change the number format.

fp16: products are accumulated in fp32 and results are stored in fp16, as on an NPU. Numbers beyond 65504
become infinite, and 0 times infinity is no number.

int8: NNCF rounds weights, activations and masks of the matrix products. It finds the ranges once on the given
inputs (calibration) and keeps them. Rounding is signed and symmetric: the zero point is 0 and the levels are
-128 to 127, as on the MAC grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError

try:
    import torch
    from torch import Tensor, nn
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map
except ImportError:
    remedy = 'install it: pip install "npusim[gnn]"'
    raise FileError("torch", "is not installed, and models are trained with it", remedy) from None


from npusim.config.overrides import Settings
from npusim.errors import ConfigError, IllegalTechniqueError
from npusim.frontends import quantising
from npusim.frontends.openvino_ir import openvino
from npusim.frontends.openvino_write import run_model
from npusim.frontends.pyg import convert, flattened, from_pyg
from npusim.gnn_models.document import AccuracyReport, LeftOut, OneSeed, StackAccuracy, Training
from npusim.gnn_models.models import ModelInstance, annotates, model_instance, stored
from npusim.gnn_models.number_formats import run_in_formats
from npusim.gnn_models.planetoid import GraphData, read_planetoid
from npusim.gnn_models.training import Recipe, Trained, accuracy, cached_training, one_thread
from npusim.graph import Graph
from npusim.ops import Annotation, DType
from npusim.studies.agreement import reason_of
from npusim.techniques import Stack, apply, parse
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics

Scores = npt.NDArray[np.float32]
Tell = Callable[[str, float], None]
"""Progress callback: message, fraction done."""


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    spec: GnnSpec
    data: GraphData
    trained: Trained
    seed: int

    def instance(self, stack: Stack) -> ModelInstance:
        """Return the model in the form of a stack, with its trained parameters."""
        graph = apply(build_gnn(self.spec, load_statistics(self.spec.dataset), self.name), stack)
        instance = model_instance(self.spec, graph, stack, self.data, self.seed)
        instance.module.load_state_dict(self.trained.parameters)
        instance.module.eval()
        return instance


def judge(
    workloads: Sequence[str],
    stacks: Sequence[Stack | str],
    data: Path | None = None,
    seeds: Sequence[int] = (0,),
    overrides: Settings = (),
    retrain: bool = False,
    recipe: Recipe | None = None,
    tell: Tell | None = None,
) -> AccuracyReport:
    """Compare stacks of techniques on models that are trained on real data, or cached.

    Parameters
    ----------
    stacks : sequence of Stack or str
        Technique stacks; the baseline `none` always comes first.
    data : Path, optional
        Folder with the raw data sets; default: the variable NPUSIM_DATA.
    seeds : sequence of int
        Seeds, one training each.
    retrain : bool
        Whether to train even where the cache has the parameters.
    recipe : Recipe, optional
        How to train; its seed is not used.

    Raises
    ------
    FileError, IllegalTechniqueError
        When the raw data is missing, or no workload allows any stack.
    """
    recipe = recipe or Recipe()
    wanted = list(dict.fromkeys(map(str, map(parse, ("none", *stacks)))))
    specs = {name: load_gnn(name, overrides) for name in workloads}
    datasets = {spec.dataset: read_planetoid(spec.dataset, data) for spec in specs.values()}
    allowed, skipped = _allowed_stacks(specs, wanted)
    cases = sum(map(len, allowed.values()))
    if len(wanted) > 1 and cases == len(specs):
        raise IllegalTechniqueError(skipped[0].techniques, skipped[0].reason)
    progress = _Progress(tell or (lambda _, __: None), len(seeds) * (2 * len(specs) + cases))
    judged: dict[tuple[str, str, str], list[OneSeed]] = {}
    for name, spec in specs.items():
        for seed in seeds:
            within = progress.begin(f"{name}, seed {seed}: training", 2)
            graph_data = datasets[spec.dataset]
            trained = cached_training(spec, graph_data, replace(recipe, seed=seed), retrain, within)
            model = _Model(name, spec, graph_data, trained, seed)
            for stack, numbers, result in _judge_model(model, allowed[name], progress, skipped):
                judged.setdefault((name, stack, numbers), []).append(result)
    results = [
        StackAccuracy.over(name, stack, numbers, expected_of(parse(stack)), of_seeds)
        for (name, stack, numbers), of_seeds in judged.items()
    ]
    return AccuracyReport(training=training_of(recipe), results=results, skipped=skipped)


def training_of(recipe: Recipe) -> Training:
    """Return the settings of a training for a document."""
    settings = asdict(recipe)
    del settings["seed"]
    return Training(**settings, torch=torch.__version__)


def outputs_of(instance: ModelInstance, numbers: str) -> Scores:
    """Return a model's log-probabilities [N, classes] in a number format: fp32, fp16 or int8, or in two.

    `int4 x fp16` are the formats of weights and activations of products.
    """
    with one_thread(), torch.no_grad():
        if " x " in numbers:
            return np.asarray(run_in_formats(instance.module, instance.inputs, *numbers.split(" x ")).numpy())
        if numbers == "int8":
            return run_int8(instance.module, instance.inputs)
        if numbers == "fp16":
            return np.asarray(run_in_half(instance.module, instance.inputs).numpy())
        return np.asarray(instance.module(*instance.inputs.values()).numpy())


def _allowed_stacks(
    specs: dict[str, GnnSpec], stacks: list[str]
) -> tuple[dict[str, list[str]], list[LeftOut]]:
    """Return the stacks that each workload allows, and those that it does not."""
    allowed: dict[str, list[str]] = {}
    skipped: list[LeftOut] = []
    for name, spec in specs.items():
        graph = build_gnn(spec, load_statistics(spec.dataset), name)
        allowed[name] = []
        for stack in stacks:
            try:
                apply(graph, stack)
            except IllegalTechniqueError as error:
                skipped.append(LeftOut(workload=name, techniques=stack, reason=error.reason))
            else:
                allowed[name].append(stack)
    return allowed, skipped


def _judge_model(
    model: _Model, stacks: list[str], progress: _Progress, skipped: list[LeftOut]
) -> list[tuple[str, str, OneSeed]]:
    """Return stack, number format and result of each stack on one model; the first is the baseline.

    A stack that fails is added to `skipped`.
    """
    results, data = [], model.data
    baseline = outputs_of(model.instance(parse("none")), "fp32")
    formats = ("fp32", "fp16") if model.spec.precision == "fp16" else ("fp32",)
    weights, activations = model.spec.weights, model.spec.activations
    read = activations or model.spec.precision
    own = (f"{weights or read} x {read}",) if weights or activations else ()
    for text in stacks:
        progress.begin(f"{model.name}, seed {model.seed}: {text}", 1)
        stack = parse(text)
        with _left_out(skipped, model.name, text):
            instance = model.instance(stack)
            for numbers in (*(("int8",) if stack.precision is DType.INT8 else formats), *own):
                scores = outputs_of(instance, numbers)[: data.nodes]
                results.append((text, numbers, _compared(scores, baseline, data.y, data.test, model.seed)))
    return results


@contextmanager
def _left_out(skipped: list[LeftOut], workload: str, stack: str) -> Iterator[None]:
    """Add a stack that fails to `skipped`, with the reason: NNCF's, OpenVINO's or no memory."""
    try:
        yield
    except FileError:  # a package is missing, for all stacks alike
        raise
    except Exception as error:
        reason = getattr(error, "reason", None) or reason_of(error)
        skipped.append(LeftOut(workload=workload, techniques=stack, reason=reason))


def _compared(
    scores: Scores, baseline: Scores, labels: npt.NDArray[np.int64], nodes: npt.NDArray[np.bool_], seed: int
) -> OneSeed:
    finite = bool(np.isfinite(scores).all())
    return OneSeed(
        seed=seed,
        baseline_accuracy=accuracy(baseline, labels, nodes),
        accuracy=accuracy(scores, labels, nodes),
        agreement=float((scores.argmax(axis=1) == baseline.argmax(axis=1)).mean()),
        largest_difference=float(np.abs(scores - baseline).max()) if finite else None,
    )


def expected_of(stack: Stack) -> str:
    """Return the documented effect of a stack's techniques on the numbers."""
    effects: dict[str, list[str]] = {}
    for entry in stack:
        effects.setdefault(entry.technique.numerics, []).append(entry.technique.name)
    return " ".join(f"{', '.join(names)}: {effect}" for effect, names in effects.items()) or "The baseline."


class _Progress:
    """Progress of the work, in steps of about equal length."""

    def __init__(self, tell: Tell, steps: int) -> None:
        self.tell, self.steps, self.begun = tell, steps, 0

    def begin(self, doing: str, steps: int) -> Callable[[float], None]:
        """Begin a piece of work of some steps; return what reports the fraction of it that is done."""
        first, self.begun = self.begun, self.begun + steps

        def within(share: float) -> None:
            self.tell(doing, (first + steps * share) / self.steps)

        within(0.0)
        return within


LARGEST = 65504.0
"""Largest finite number of fp16 (IEEE 754 binary16)."""


def run_in_half(module: nn.Module, inputs: Mapping[str, Tensor], saturate: bool = True) -> Tensor:
    """Return a module's result, in fp32, with parameters, inputs and intermediate results rounded to fp16.

    Parameters
    ----------
    saturate : bool
        Whether constants of the model such as -9e15 become -65504, as in an fp16 file of OpenVINO; otherwise
        they overflow to infinity, as in PyTorch and numpy.
    """
    copy = deepcopy(module)
    with torch.no_grad():
        for tensor in (*copy.parameters(), *copy.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(to_half(tensor, saturate))
        values = [to_half(t, saturate) if t.is_floating_point() else t for t in inputs.values()]
        with _Rounding(saturate):
            result: Tensor = copy(*values)
        return result


def to_half(values: Tensor, saturate: bool = True) -> Tensor:
    """Return fp32 values rounded to fp16's; beyond its range the largest, or else infinity."""
    if saturate:
        values = values.clamp(-LARGEST, LARGEST)
    return values.half().float()


class _Rounding(TorchDispatchMode):
    """Rounds the results of all operators, and the numbers among their arguments."""

    def __init__(self, saturate: bool) -> None:
        super().__init__()
        self.saturate = saturate

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator."""
        result = func(*tree_map(self._number, args), **tree_map(self._number, kwargs or {}))
        return tree_map(_rounded, result)

    def _number(self, value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return float(to_half(torch.tensor(value, dtype=torch.float32), self.saturate))


def _rounded(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype is torch.float32:
        return to_half(value, saturate=False)
    return value


_LEVELS = 256


def quantised(module: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
    """Return a module as an `openvino.Model` whose matrix products are rounded to 8 bits.

    The inputs are also the calibration set: a full graph is the whole data set. Weights are 8-bit integers
    with a scale per channel; activations pass FakeQuantize with a scale per tensor, signed and symmetric. A
    `FileError` says that NNCF is not installed.
    """
    model = convert(module, inputs)
    sample = {name: value.numpy() for name, value in inputs.items()}
    floating = [op.get_friendly_name() for op in model.get_ops() if _spreads_scores(op)]
    return _signed(quantising.quantised(model, [sample], floating))


def run_int8(module: nn.Module, inputs: Mapping[str, Tensor]) -> npt.NDArray[np.float32]:
    """Return a module's result with its matrix products rounded to 8 bits."""
    return answers_of(quantised(module, inputs), inputs)


def answers_of(model: Any, inputs: Mapping[str, Tensor]) -> npt.NDArray[np.float32]:
    """Return the first result of an `openvino.Model` on the CPU."""
    return run_model(model, {name: value.numpy() for name, value in inputs.items()})[0].astype(np.float32)


def _spreads_scores(op: Any) -> bool:
    """Return whether an operator is GrAx2's product of rank 2, whose results are attention scores."""
    is_product = op.get_type_name() == "MatMul"
    return is_product and bool(op.input_value(0).get_node().get_type_name() == "Concat")


def _signed(model: Any) -> Any:
    """Make the ranges of non-negative tensors signed; NNCF gives them 0 to 255."""
    ov = openvino()
    for op in model.get_ops():
        if op.get_type_name() != "FakeQuantize":
            continue
        low, high = (op.input_value(port).get_node().get_data() for port in (1, 2))
        if op.get_attributes()["levels"] != _LEVELS or not np.all(low == 0):
            continue
        least = ov.opset13.constant(np.asarray(-high * _LEVELS / (_LEVELS - 2), dtype=np.float32))
        for port in (1, 3):
            op.input(port).replace_source_output(least.output(0))
    return model


_CLOSE = 1e-4  # largest relative difference between a product and the layer's own sum
_MATRIX = "aggregation_matrix"


def judge_module(
    module: nn.Module,
    data: Any,
    stacks: Sequence[Stack | str],
    inputs: Mapping[str, Any] | None = None,
    mask: Any = None,
) -> AccuracyReport:
    """Compare stacks of techniques on a trained module, whose result holds a score per node and class.

    Parameters
    ----------
    data : data object
        With `y`, the class of each node, and `test_mask`; as `torch_geometric.data.Data`.
    stacks : sequence of Stack or str
        Technique stacks; the baseline `none` always comes first.
    inputs : mapping of str to tensor, optional
        Values for `forward`; default: the attributes of `data` that it names.
    mask : tensor of bool, optional
        Nodes whose answers count; default: `data.test_mask`, or all.

    Raises
    ------
    NpusimError
        Where the module cannot be traced, or its result is no score per node.
    """
    name, module = type(module).__name__, deepcopy(module).eval()
    module, values = flattened(module, data if inputs is None else inputs)
    labels, chosen = _answers(data, mask)
    baseline = outputs_of(ModelInstance(module, values), "fp32")
    if baseline.ndim != 2 or baseline.shape[0] != labels.size:
        allowed = f"a score per node and class, for the {labels.size} nodes of `y`"
        raise ConfigError(f"a result of shape {list(baseline.shape)}", allowed=allowed)
    graph = from_pyg(module, values, name)
    results, skipped = list[StackAccuracy](), list[LeftOut]()
    for text in dict.fromkeys(map(str, map(parse, ("none", *stacks)))):
        stack = parse(text)
        with _left_out(skipped, name, text):
            _refuse(stack, graph)
            form = ModelInstance(form_of(module, values, stack), values)
            for numbers in ("int8",) if stack.precision is DType.INT8 else ("fp32", "fp16"):
                result = _compared(outputs_of(form, numbers), baseline, labels, chosen, seed=0)
                results.append(StackAccuracy.over(name, text, numbers, expected_of(stack), [result]))
    return AccuracyReport(training=None, results=results, skipped=skipped)


def _answers(data: Any, mask: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the class of each node [N] and the mask of the nodes that count [N]."""
    y = getattr(data, "y", None)
    if not isinstance(y, Tensor):
        allowed = "a data object with y, the class of each node"
        raise ConfigError(f"no `y` in {type(data).__name__}", allowed=allowed)
    labels = y.reshape(-1).numpy()
    chosen = mask if mask is not None else getattr(data, "test_mask", None)
    counts = np.ones(labels.size, bool) if chosen is None else np.asarray(chosen, dtype=bool).reshape(-1)
    if counts.size != labels.size or not counts.any():
        allowed = f"one value per node, {labels.size}, at least one of them true"
        raise ConfigError(
            f"a mask of {counts.size} values, {int(counts.sum())} of them true", allowed=allowed
        )
    return labels, counts


def _refuse(stack: Stack, graph: Graph) -> None:
    """Raise an `IllegalTechniqueError` for a stack that the network, or this method, does not allow."""
    apply(graph, stack)
    for entry in stack:
        technique = entry.technique
        if technique.precision is None and not technique.exact:
            raise IllegalTechniqueError(
                technique.name,
                "it changes how a layer masks or scores, and a module's own layers are computed as they are; "
                "shipped models show what it does to the answers (npusim accuracy gat-cora)",
            )


def form_of(module: nn.Module, inputs: Mapping[str, Any], stack: Stack) -> nn.Module:
    """Return the floating-point module of a stack: sums over neighbours are products with a matrix."""
    if all(entry.technique.edges is None for entry in stack):
        return module
    form = deepcopy(module)
    layers = [layer for layer in form.modules() if hasattr(layer, "propagate") and hasattr(layer, "aggr")]
    for layer in layers:
        _record(layer)
    with torch.no_grad():
        form(*inputs.values())
    triangle, compressed = (annotates(stack, kind) for kind in (Annotation.TRIANGLE, Annotation.COMPRESSED))
    for layer in layers:
        matrix = layer.__dict__.pop("recorded_matrix", None)
        layer.__dict__.pop("propagate", None)
        if matrix is not None:
            kept = stored(matrix.numpy(), triangle and bool((matrix == matrix.T).all()), compressed)
            layer.register_buffer(_MATRIX, torch.from_numpy(kept), persistent=False)
            layer.__class__ = type(type(layer).__name__, (type(layer),), {"propagate": _product})
    return form


def _product(self: Any, edge_index: Any, size: Any = None, **messages: Any) -> Tensor:
    """Sum neighbours as one product with the matrix of the edges."""
    result: Tensor = getattr(self, _MATRIX) @ _sources(messages)
    return result


def _sources(messages: Mapping[str, Any]) -> Tensor:
    x: Any = messages["x"]
    result: Tensor = x[0] if isinstance(x, tuple) else x
    return result


def _record(layer: Any) -> None:
    """Make a layer record the matrix that sums its neighbours, where there is one, at its next call."""
    own = layer.propagate

    def propagate(edge_index: Any, size: Any = None, **messages: Any) -> Tensor:
        result: Tensor = own(edge_index, size=size, **messages)
        layer.__dict__["recorded_matrix"] = _matrix_of(layer, edge_index, messages, result)
        return result

    layer.__dict__["propagate"] = propagate


def _matrix_of(layer: Any, edge_index: Any, messages: Mapping[str, Any], result: Tensor) -> Tensor | None:
    """Return the matrix [targets, sources] whose product with the features is the layer's sum; or None."""
    kind, x = str(layer.aggr), messages.get("x")
    if kind not in ("add", "sum", "mean") or x is None or not isinstance(edge_index, Tensor):
        return None
    features, weights = _sources(messages), messages.get("edge_weight")
    source, target = edge_index if layer.flow == "source_to_target" else edge_index.flip(0)
    values = torch.ones(source.numel()) if weights is None else weights.reshape(-1)
    if features.dim() != 2 or values.numel() != source.numel():
        return None
    matrix = torch.zeros(result.shape[0], features.shape[0]).index_put(
        (target, source), values, accumulate=True
    )
    if kind == "mean":
        counts = torch.bincount(target, minlength=result.shape[0]).clamp(min=1)
        matrix = matrix / counts.unsqueeze(1)
    product = matrix @ features
    same = product.shape == result.shape and bool(
        (product - result).abs().max() <= _CLOSE * result.abs().max().clamp(min=1.0)
    )
    return matrix if same else None
