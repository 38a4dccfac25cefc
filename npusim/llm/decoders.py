"""Decoding rates of published language models on shipped machines: rows of other sources, none fitted.

`npusim.validation.measured_networks` reads the rows; `validate/definitions/decoders.yaml` says which workload
and which settings of its runtime a row means.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from pydantic import Field

from npusim.config import Section, load_model
from npusim.scenario import Scenario
from npusim.studies.uncertainty import draw
from npusim.validation.measured_networks import TOKENS
from npusim.validation.suite import suite_file
from npusim.workloads import workload_names


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

    workloads = {plain(name): name for name in workload_names("llm")}
    workloads |= {plain(name): workload for name, workload in known.models.items()}
    return workloads.get(plain(model))


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
    known = load_definitions()
    workload = workload_of(model)
    if workload is None:
        return None
    places = [] if device == "npu" else [f"workload.max_sequence={context + 1}"]
    fitting = (each for each in known.conditions if each.fits(source, device, precision))
    how = [f"workload.weights={precision}", *places, "workload.prompt=1"]
    how += (text for each in fitting for text in each.settings)
    mapped = Scenario(workload, soc, device=device, settings=[*how, *settings]).mapped
    return float(mapped.total["latency_s"]), draw([mapped]).latency_interval(0)


FIGURES = TOKENS
