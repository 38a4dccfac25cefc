"""Times of a token: NITRO's of Llama (arXiv 2412.11053), with their fit, and others'.

`npusim.validation.measured_networks` reads the rows of published decoders, none of them fitted;
`validate/definitions/decoders.yaml` says which workload and which settings of its runtime a row means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

import numpy as np
from pydantic import Field

from npusim.calibration.fits import FiguresFit, FiguresFits, FitPlan, linear_times, load_plan, settings_of
from npusim.calibration.least_squares import Floats
from npusim.config import Section, load_model
from npusim.config.reading import read_yaml
from npusim.locate import resource
from npusim.scenario import Scenario
from npusim.studies.uncertainty import draw
from npusim.validation.figures import Key, PathPredictor
from npusim.validation.measured_networks import TOKENS
from npusim.validation.suite import suite_file
from npusim.workloads import workload_names

SOC = "core-ultra-nitro"
_LENGTHS = (128, 2048)


@cache
def token_s(model: str, device: str, places: int = _LENGTHS[0], changes: tuple[str, ...] = ()) -> float:
    """Return the predicted time of a token (s), with changes to the data sheet as `--set` takes them.

    NITRO ran OpenVINO 2024.4, which uses fp32 on a CPU without fp16 arithmetic.
    """
    settings = [
        "workload.form=nitro",
        f"workload.max_sequence={places}",
        "workload.attention=separate",
        f"workload.precision={'fp32' if device == 'cpu' else 'fp16'}",
    ]
    scenario = Scenario(model, SOC, device=device, settings=[*settings, *changes])
    return float(scenario.mapped.total["latency_s"])


def predicted(key: Key) -> float:
    """Return the prediction of a figure, in its unit."""
    if key["quantity"] == "ms_per_token":
        return 1e3 * token_s(key["model"], key["device"])
    short_s, long_s = (token_s(key["model"], key["device"], places) for places in _LENGTHS)
    return long_s - short_s


FIGURES = PathPredictor(predicted)
_MODELS = ("llama3.2-1b", "llama3-8b")


class TokenFit(FiguresFit):
    """Fit of CPU or GPU to its published times of a token; the NPU is not fitted, only compared."""

    def __init__(self, device: str) -> None:
        published = read_yaml(resource("validate", "figures", "published.yaml")).data["nitro"]["ms_per_token"]
        measured_s = [1e-3 * published[model][device] for model in _MODELS]

        def times(values: Mapping[str, float]) -> Floats:
            changes = settings_of(self.free, values)
            return np.array([token_s(model, device, changes=changes) for model in _MODELS])

        units = ["s"] * len(_MODELS)
        super().__init__(load_plan("nitro", FitPlan), device, _MODELS, measured_s, units=units)
        self.times_s = linear_times(self.free, times, 1.25)

    def predicted(self, values: Mapping[str, float]) -> Floats:
        """Return the times of a token (s)."""
        return self.times_s(values)


NITRO = FiguresFits("nitro", TokenFit)


class Condition(Section):
    """Settings of rows that a source, device and precision name."""

    source: str = ""
    """Part of the row's source."""
    unit: str = ""
    """npu, gpu or cpu; empty: all."""
    precision: str = ""
    """Format of the weights; empty: all."""
    settings: list[str]
    """Settings of workload and machine, as for `--set`."""
    reason: str
    """Where they come from."""

    def fits(self, source: str, unit: str, precision: str) -> bool:
        """Whether a row belongs to the condition."""
        wanted = (self.unit in ("", unit), self.precision in ("", precision))
        return all(wanted) and self.source.lower() in source.lower()


class DecoderRows(Section):
    """How published rows of decoders are predicted."""

    schema_name: Literal["npusim.decoders-definitions/1"] = Field(alias="schema")
    """Version of this file format."""
    models: dict[str, str] = Field(default_factory=dict)
    """Workload of the same size for a model that has none of its own."""
    endings: list[str] = Field(default_factory=list)
    """Parts of a model's name, between hyphens, that say nothing of its size."""
    conditions: list[Condition]
    """Settings; those of every condition that fits a row, in this order."""


@cache
def load_definitions() -> DecoderRows:
    """Return the shipped definitions."""
    return load_model(suite_file("decoders", "definitions", "decoders.yaml"), DecoderRows)


def workload_of(model: str) -> str | None:
    """Return the workload of a model as publishers name it; None: an unknown one.

    Examples
    --------
    >>> workload_of("meta-llama/Llama-3.2-3B-Instruct"), workload_of("mistral-7b-instruct-v0.3")
    ('llama3.2-3b', 'mistral-7b')
    """
    known = load_definitions()

    def plain(name: str) -> str:
        parts = re.split("[-_ ]", name.lower().rpartition("/")[2])
        return "".join(part for part in parts if part not in known.endings)

    workloads = {name: name for name in workload_names("llm")} | known.models
    return {plain(name): workload for name, workload in workloads.items()}.get(plain(model))


def token_time(
    model: str,
    soc: str,
    device: str,
    precision: str,
    context: int,
    settings: Sequence[str] = (),
    source: str = "",
) -> tuple[float, tuple[float, float]] | None:
    """Return the time of a token in a runtime, and its 90 % interval (s); None: an unknown model.

    Parameters
    ----------
    model : str
        Workload, or a model of the same size.
    precision : {"fp16", "int8", "int4"}
        Format of the weights.
    context : int
        Tokens in the cache. An NPU is compiled for a length, whatever it holds.
    settings : sequence of str
        Further settings, as for `--set`.
    source : str
        Who measured it; some runtimes were older.
    """
    workload = workload_of(model)
    if workload is None:
        return None
    places = [] if device == "npu" else [f"workload.max_sequence={context + 1}"]
    fitting = (one for one in load_definitions().conditions if one.fits(source, device, precision))
    how = [f"workload.weights={precision}", *places, "workload.prompt=1"]
    how += (text for each in fitting for text in each.settings)
    mapped = Scenario(workload, soc, device=device, settings=[*how, *settings]).mapped
    return float(mapped.total["latency_s"]), draw([mapped]).latency_interval(0)


DECODERS = TOKENS
