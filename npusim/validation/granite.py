"""GraNNite's figures, predicted beside published: each key of the file is answered by its definition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from npusim.errors import NpusimError
from npusim.ops import Annotation
from npusim.techniques import parse, technique_with
from npusim.validation.evidence import Evidence
from npusim.validation.figures import read_keyed
from npusim.validation.granite_definitions import PublishedVariant, load_definitions
from npusim.validation.granite_runs import GraniteRunner
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine

_DATASET = r"(?P<dataset>cora|citeseer)"
_MODEL = r"(?P<model>gcn|gat|sage_max|sage_mean)"
_FORMS = {
    "fig4": r"fig4_preprocessing_share\.(?P<layer>graph_attn|graph_conv)",
    "fig5": r"fig5_control_op_share_of_compute\.(?P<layer>graph_attn|graph_conv)",
    "fig20": (
        rf"fig20_speedup_over_baseline(_(?P<d1>cora|citeseer))?\.{_MODEL}([_.-](?P<d2>cora|citeseer))?"
        r"\.(?P<stack>[a-z0-9+_]+)"
    ),
    "fig21": rf"fig21_series2_over_series1_throughput\.{_MODEL}_{_DATASET}_(?P<stack>[a-z0-9_+]+)",
    "fig22": rf"fig22_npu_speedup_series2(_(?P<d1>cora|citeseer))?\.{_MODEL}\.over_(?P<device>gpu|cpu)",
    "fig23": rf"fig23_npu_energy_efficiency_{_DATASET}\.(({_MODEL})\.)?over_(?P<device>gpu|cpu)",
    "int8": r"int8_over_fp16\.(?P<measure>tops|tops_per_watt)",
}
_PATTERNS = {figure: re.compile(rf"granite\.{form}") for figure, form in _FORMS.items()}
_BRANCHES = [f"granite.{re.match('[a-z0-9_]+', form)[0]}" for form in _FORMS.values()]  # type: ignore[index]
_PRESENT = ("model", "dataset", "stack", "device", "layer", "measure")


@dataclass(frozen=True)
class Key:
    """Parts of a figure's key; empty where the figure has no such part."""

    figure: str
    model: str = ""
    dataset: str = ""
    stack: str = ""
    device: str = ""
    layer: str = ""
    measure: str = ""

    @property
    def workload(self) -> str:
        """The workload's name."""
        return f"{self.model.replace('_', '-')}-{self.dataset}"


def parse_key(path: str) -> Key | None:
    """Return what a key path asks for, or None where it is no figure of the suite."""
    for figure, pattern in _PATTERNS.items():
        match = pattern.fullmatch(path)
        if match is not None:
            found = {name: value for name, value in match.groupdict().items() if value}
            dataset = found.get("dataset") or found.get("d1") or found.get("d2") or "cora"
            model = found.get("model") or ("gcn" if figure == "fig23" else "")
            rest = {
                name: found[name] for name in _PRESENT if name in found and name not in ("model", "dataset")
            }
            return Key(figure, model=model, dataset=dataset if model else "", **rest)
    return None


def predict(key: Key, runner: GraniteRunner) -> float:
    """Return the prediction for a key.

    Raises
    ------
    NpusimError
        Where the stack cannot be applied to the model.
    """
    return float(_PREDICT[key.figure](key, runner))


def _share(key: Key, runner: GraniteRunner) -> float:
    shares = runner.shares(getattr(runner.definitions.layers, key.layer))
    return shares.preprocessing if key.figure == "fig4" else shares.control


def _speedup(key: Key, runner: GraniteRunner) -> float:
    place, stack, start = runner.definitions.places["series2"], key.stack, "baseline"
    if stack.endswith("_further"):  # grasp_further: on top of GrAd and NodePad
        start = "grad+nodepad"
        stack = f"{start}+{stack.removesuffix('_further')}"
    new = runner.outcome(key.workload, variant_of(key.model, stack, runner), place)
    old = runner.outcome(key.workload, variant_of(key.model, start, runner), place)
    return old.interval_s / new.interval_s


def _generations(key: Key, runner: GraniteRunner) -> float:
    variant = variant_of(key.model, key.stack.replace("_", "+"), runner)
    places = runner.definitions.places
    series1 = runner.outcome(key.workload, variant, places["series1"])
    return series1.interval_s / runner.outcome(key.workload, variant, places["series2"]).interval_s


def _devices(key: Key, runner: GraniteRunner) -> float:
    definitions, best = runner.definitions, {}
    on_npu = definitions.best_of[key.model]
    on_host = definitions.hosts_choose.get(key.model, on_npu)
    for place, names in (("series2", on_npu), (f"series2_{key.device}", on_host)):
        runs = [
            runner.outcome(key.workload, variant_of(key.model, name, runner), definitions.places[place])
            for name in names
        ]
        best[place] = min(run.interval_s if key.figure == "fig22" else run.package_j for run in runs)
    return best[f"series2_{key.device}"] / best["series2"]


def _peak(key: Key, runner: GraniteRunner) -> float:
    tops, tops_per_watt = runner.peak_ratio()
    return tops if key.measure == "tops" else tops_per_watt


_PREDICT = {
    "fig4": _share,
    "fig5": _share,
    "fig20": _speedup,
    "fig21": _generations,
    "fig22": _devices,
    "fig23": _devices,
    "int8": _peak,
}


def variant_of(model: str, stack: str, runner: GraniteRunner) -> PublishedVariant:
    """Return the variant that a figure's stack means, or the stack as written where none is defined."""
    definitions = runner.definitions
    known = definitions.variants[model]
    name = definitions.names.get(stack, stack)
    if name in known:
        return known[name]
    wanted = set(name.split("+")) - {technique_with(annotation=Annotation.DEVICE).name}
    for known_name, variant in known.items():
        if set(known_name.split("+")) == wanted:
            return variant
    return PublishedVariant(techniques=str(parse(name)), reason="as the figure writes it")


@dataclass(frozen=True)
class GraniteFigures:
    """The suite's predictor."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the figures of a file with their predictions; unknown keys are skipped with a note."""
        assert path is not None, "the suite needs a file"
        figures, notes = read_keyed(path, lambda name: parse_key(name) is not None, _BRANCHES)
        runner = GraniteRunner(load_definitions())
        kept, predicted, keys = [], [], []
        for figure in figures:
            key = parse_key(figure.id)
            assert key is not None
            try:
                predicted.append(predict(key, runner))
            except NpusimError as error:
                notes.append(f"{figure.id}: skipped, {error}")
                continue
            kept.append(figure)
            keys.append(key)
        return Evidence(
            ids=[figure.id for figure in kept],
            columns={
                name: np.array([getattr(key, name) for key in keys], object)
                for name in ("figure", "model", "dataset", "stack", "device", "layer", "measure")
            },
            measured=np.array([figure.value for figure in kept]),
            predicted=np.array(predicted),
            unit="",
            dimensions=("figure", "model"),
            notes=[note for note in notes if "granite.fig" in note],
        )


FIGURES = GraniteFigures()
"""The predictor of the suite `granite`."""
