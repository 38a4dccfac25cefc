"""What technique stacks do to the answers of trained models: accuracy, agreement, largest difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from npusim.accuracy.document import AccuracyReport, LeftOut, OneSeed, StackAccuracy, Training
from npusim.accuracy.models import ModelInstance, model_instance
from npusim.accuracy.planetoid import GraphData, read_planetoid
from npusim.accuracy.rounding import run_in_half, run_int8
from npusim.accuracy.training import Recipe, Trained, accuracy, cached_training, one_thread
from npusim.config.overrides import Settings
from npusim.errors import IllegalTechniqueError
from npusim.ops import DType
from npusim.techniques import Stack, apply, parse
from npusim.techniques.technique import Technique
from npusim.workloads import GnnSpec, build_gnn, load_gnn, load_statistics

Scores = npt.NDArray[np.float32]
Tell = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class _Model:
    """One trained model."""

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
    """Train models on real data, or take them from the cache, and compare stacks of techniques on them.

    Parameters
    ----------
    workloads : sequence of str
        Names or files of workloads.
    stacks : sequence of Stack or str
        Technique stacks; `none`, the baseline, is always judged, and first.
    data : Path, optional
        Folder with the raw data sets; default: the variable NPUSIM_DATA.
    seeds : sequence of int
        One training each.
    overrides : settings
        Settings of the workloads, such as "workload.hidden=128".
    retrain : bool
        Whether to train even where the cache has the parameters.
    recipe : Recipe, optional
        How to train; its seed is not used.
    tell : callable, optional
        Is told what is being done, and which share of everything is done.

    Returns
    -------
    AccuracyReport
        Results and stacks left out.

    Raises
    ------
    FileError
        When the raw data is missing.
    IllegalTechniqueError
        When no workload allows any of the stacks.
    """
    recipe = recipe or Recipe()
    parsed = list(dict.fromkeys(map(str, map(parse, ("none", *stacks)))))
    specs = {name: load_gnn(name, overrides) for name in workloads}
    folders = {spec.dataset: read_planetoid(spec.dataset, data) for spec in specs.values()}
    plan, skipped = _plan(specs, parsed)
    if len(parsed) > 1 and len(plan) == len(specs):
        raise IllegalTechniqueError(skipped[0].techniques, skipped[0].reason)
    progress = _Progress(tell or (lambda _, __: None), len(seeds) * (2 * len(specs) + len(plan)))
    found: dict[tuple[str, str, str], list[OneSeed]] = {}
    for name, spec in specs.items():
        wanted = [stack for workload, stack in plan if workload == name]
        for seed in seeds:
            of_seed = replace(recipe, seed=seed)
            progress.begin(f"{name}, seed {seed}: training", 2)
            trained = cached_training(spec, folders[spec.dataset], of_seed, retrain, progress.within)
            model = _Model(name, spec, folders[spec.dataset], trained, seed)
            for stack, numbers, one in _of_model(model, wanted, progress):
                found.setdefault((name, stack, numbers), []).append(one)
    results = [
        StackAccuracy.over(name, stack, numbers, expected_of(parse(stack)), ones)
        for (name, stack, numbers), ones in found.items()
    ]
    told = {key: getattr(recipe, key) for key in ("learning_rate", "weight_decay", "epochs")}
    return AccuracyReport(
        training=Training(**told, torch=torch.__version__), results=results, skipped=skipped
    )


def outputs_of(instance: ModelInstance, numbers: str) -> Scores:
    """Return a model's log-probabilities [N, classes] in a number format: fp32, fp16 or int8."""
    with one_thread(), torch.no_grad():
        if numbers == "int8":
            return run_int8(instance.module, instance.inputs)
        if numbers == "fp16":
            return np.asarray(run_in_half(instance.module, instance.inputs).numpy())
        return np.asarray(instance.module(*instance.inputs.values()).numpy())


def _plan(specs: dict[str, GnnSpec], stacks: list[str]) -> tuple[list[tuple[str, str]], list[LeftOut]]:
    """Return which stacks to judge on which workload, and which a workload does not allow."""
    plan, skipped = [], []
    for name, spec in specs.items():
        graph = build_gnn(spec, load_statistics(spec.dataset), name)
        for stack in stacks:
            try:
                apply(graph, stack)
            except IllegalTechniqueError as error:
                skipped.append(LeftOut(workload=name, techniques=stack, reason=error.reason))
            else:
                plan.append((name, stack))
    return plan, skipped


def _of_model(model: _Model, stacks: list[str], progress: _Progress) -> list[tuple[str, str, OneSeed]]:
    """Judge the stacks on one model; the first is the baseline."""
    found = []
    baseline = outputs_of(model.instance(parse("none")), "fp32")
    for text in stacks:
        progress.begin(f"{model.name}, seed {model.seed}: {text}", 1)
        stack = parse(text)
        instance = model.instance(stack)
        formats = ("fp32", "fp16") if model.spec.precision == "fp16" else ("fp32",)
        if stack.precision is DType.INT8:
            formats = ("int8",)
        for numbers in formats:
            scores = outputs_of(instance, numbers)[: model.data.nodes]
            found.append((text, numbers, _compared(scores, baseline, model)))
    return found


def _compared(scores: Scores, baseline: Scores, model: _Model) -> OneSeed:
    data = model.data
    finite = bool(np.isfinite(scores).all())
    return OneSeed(
        seed=model.seed,
        baseline_accuracy=accuracy(baseline, data.y, data.test),
        accuracy=accuracy(scores, data.y, data.test),
        agreement=float((scores.argmax(axis=1) == baseline.argmax(axis=1)).mean()),
        largest_difference=float(np.abs(scores - baseline).max()) if finite else None,
    )


def expected_of(stack: Stack) -> str:
    """Return what the techniques say of their numbers."""
    said: dict[str, list[str]] = {}
    for step in stack:
        technique: Technique = step.technique
        said.setdefault(technique.numerics, []).append(technique.name)
    return " ".join(f"{', '.join(names)}: {words}" for words, names in said.items()) or "The baseline."


class _Progress:
    """Progress of the work, in steps of about equal length."""

    def __init__(self, tell: Tell, steps: int) -> None:
        self.tell, self.steps = tell, steps
        self.done, self.now, self.doing = 0, 0, ""

    def begin(self, doing: str, steps: int) -> None:
        """Say what is begun, and how many steps it takes."""
        self.done += self.now
        self.now, self.doing = steps, doing
        self.within(0.0)

    def within(self, share: float) -> None:
        """Say which share of it is done."""
        self.tell(self.doing, (self.done + self.now * share) / self.steps)
