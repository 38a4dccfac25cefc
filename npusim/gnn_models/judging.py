"""Accuracy, agreement and largest difference of trained models under technique stacks.

Shipped models are trained here; a user's own module keeps its parameters. Techniques rewrite the traced graph
of either, and OpenVINO runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError

try:
    import torch
    from torch import Tensor, nn
except ImportError:
    remedy = 'install it: pip install "npusim[gnn]"'
    raise FileError("torch", "is not installed, and models are trained with it", remedy) from None


from npusim.config.overrides import Settings
from npusim.errors import ConfigError, IllegalTechniqueError
from npusim.frontends.pyg import flattened
from npusim.frontends.valued import valued_module
from npusim.gnn_models.document import AccuracyReport, LeftOut, OneSeed, StackAccuracy, Training
from npusim.gnn_models.models import Rewritten, TrainedWorkload, rewritten
from npusim.gnn_models.number_formats import Scores
from npusim.gnn_models.planetoid import read_planetoid
from npusim.gnn_models.training import Recipe, accuracy, cached_training
from npusim.ops import DType
from npusim.studies.agreement import reason_of
from npusim.techniques import Stack, apply, parse
from npusim.techniques.stack import legal
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics

Tell = Callable[[str, float], None]
"""Progress callback: message, fraction done."""


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
    recipe, wanted = recipe or Recipe(), _with_baseline(stacks)
    specs = {name: load_gnn(name, overrides) for name in workloads}
    datasets = {spec.dataset: read_planetoid(spec.dataset, data) for spec in specs.values()}
    graphs = {name: build_gnn(spec, load_statistics(spec.dataset), name) for name, spec in specs.items()}
    allowed: dict[str, list[Stack]] = {name: [] for name in specs}
    skipped: list[LeftOut] = []
    for name, graph in graphs.items():
        for stack in wanted:
            reason = legal(graph, stack)
            if reason is None:
                allowed[name].append(stack)
            else:
                skipped.append(LeftOut(workload=name, techniques=str(stack), reason=reason))
    if len(wanted) > 1 and all(len(stacks) == 1 for stacks in allowed.values()):
        raise IllegalTechniqueError(skipped[0].techniques, skipped[0].reason)
    judged: dict[tuple[str, str, str], list[OneSeed]] = {}
    models = [(name, seed) for name in specs for seed in seeds]
    for number, (name, seed) in enumerate(models):
        spec, dataset, own = specs[name], datasets[specs[name].dataset], replace(recipe, seed=seed)
        within = _within(tell, f"{name}, seed {seed}", number, len(models))
        trained = cached_training(spec, dataset, own, retrain, partial(within, "training"))
        workload = TrainedWorkload(spec, dataset, graphs[name], trained.parameters, seed)
        comparison = _Comparison(name, workload.rewritten, dataset.y, dataset.test, seed)
        for stack in allowed[name]:
            within(str(stack), 0.5)
            for numbers, result in comparison.results(stack, _formats(stack, spec), skipped):
                judged.setdefault((name, str(stack), numbers), []).append(result)
    results = [
        StackAccuracy.over(name, stack, numbers, expected_of(parse(stack)), of_seeds)
        for (name, stack, numbers), of_seeds in judged.items()
    ]
    return AccuracyReport(training=training_of(recipe), results=results, skipped=skipped)


def _with_baseline(stacks: Sequence[Stack | str]) -> list[Stack]:
    return [parse(text) for text in dict.fromkeys(map(str, map(parse, ("none", *stacks))))]


def _within(tell: Tell | None, model: str, number: int, models: int) -> Tell:
    """Return the progress callback of one model of several."""

    def within(doing: str, share: float) -> None:
        if tell is not None:
            tell(f"{model}: {doing}", (number + 0.5 * share) / models)

    return within


def training_of(recipe: Recipe) -> Training:
    """Return the settings of a training for a document."""
    settings = asdict(recipe)
    del settings["seed"]
    return Training(**settings, torch=torch.__version__)


def _formats(stack: Stack, spec: GnnSpec | None = None) -> list[str]:
    """Return the number formats in which a stack is judged, on a workload or on a user's module."""
    formats = ["int8"] if stack.precision is DType.INT8 else ["fp32", "fp16"]
    if spec is None:
        return formats
    own = [f"{spec.weights or spec.activations or spec.precision} x {spec.activations or spec.precision}"]
    formats = [name for name in formats if name != "fp16" or spec.precision == "fp16"]
    return formats + (own if spec.weights or spec.activations else [])


class _Comparison:
    """A trained network whose stacks are compared with the baseline in fp32."""

    def __init__(
        self,
        name: str,
        rewritten_as: Callable[[Stack], Rewritten],
        labels: npt.NDArray[np.int64],
        nodes: npt.NDArray[np.bool_],
        seed: int = 0,
        baseline: Scores | None = None,
    ) -> None:
        self.name, self.rewritten_as, self.seed = name, rewritten_as, seed
        self.labels, self.nodes = labels, nodes
        self.baseline = rewritten_as(parse("none")).scores("fp32") if baseline is None else baseline

    def results(
        self, stack: Stack, formats: Sequence[str], skipped: list[LeftOut]
    ) -> Iterator[tuple[str, OneSeed]]:
        """Yield number format and result of a stack; one that fails is added to `skipped` with its reason."""
        try:
            network = self.rewritten_as(stack)
            for numbers in formats:
                yield numbers, self.compared(network.scores(numbers))
        except FileError:  # a package is missing, for all stacks alike
            raise
        except Exception as error:  # of NNCF or OpenVINO, or no memory
            reason = getattr(error, "reason", None) or reason_of(error)
            skipped.append(LeftOut(workload=self.name, techniques=str(stack), reason=reason))

    def compared(self, scores: Scores) -> OneSeed:
        """Return what differs from the baseline."""
        scores = scores[: self.labels.size]
        finite = bool(np.isfinite(scores).all())
        return OneSeed(
            seed=self.seed,
            baseline_accuracy=accuracy(self.baseline, self.labels, self.nodes),
            accuracy=accuracy(scores, self.labels, self.nodes),
            agreement=float((scores.argmax(axis=1) == self.baseline.argmax(axis=1)).mean()),
            largest_difference=float(np.abs(scores - self.baseline).max()) if finite else None,
        )


def expected_of(stack: Stack) -> str:
    """Return the documented effect of a stack's techniques on the numbers."""
    effects: dict[str, list[str]] = {}
    for entry in stack:
        effects.setdefault(entry.technique.numerics, []).append(entry.technique.name)
    return " ".join(f"{', '.join(names)}: {effect}" for effect, names in effects.items()) or "The baseline."


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
    labels, nodes = _answers(data, mask)
    network = valued_module(module, values, name)

    def rewritten_as(stack: Stack) -> Rewritten:
        apply(network.graph, stack)
        return rewritten(network, stack)

    original = np.asarray(network.answers(network.inputs)[0], np.float32)  # as PyTorch runs it
    comparison = _Comparison(name, rewritten_as, labels, nodes, baseline=original)
    shape = comparison.baseline.shape
    if len(shape) != 2 or shape[0] != labels.size:
        allowed = f"a score per node and class, for the {labels.size} nodes of `y`"
        raise ConfigError(f"a result of shape {list(shape)}", allowed=allowed)
    skipped: list[LeftOut] = []
    results = [
        StackAccuracy.over(name, str(stack), numbers, expected_of(stack), [result])
        for stack in _with_baseline(stacks)
        for numbers, result in comparison.results(stack, _formats(stack), skipped)
    ]
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
