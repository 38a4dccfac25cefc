"""Decoding rates of published language models on shipped machines: rows of other sources, none fitted.

A row names device, model, precision and source; `validate/definitions/decoders.yaml` says which data sheet,
which workload and which settings of its runtime that means.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from npusim.arch import soc_names
from npusim.config import Section, load_model
from npusim.config.tables import Number, Text
from npusim.errors import ConfigError, InfeasibleError
from npusim.scenario import Scenario
from npusim.validation.figures import Figures, Row, RowPredictor, read_csv
from npusim.validation.suite import Suite, suite_file
from npusim.workloads import workload_names

_TEXTS = ("source", "device", "model", "precision", "hint", "metric", "notes")
_HINT = "decode"
_FORMATS = ("fp16", "int8", "int4")
_METRICS = ("tok/s", "ms/token")
_UNIT = re.compile(r"\b(NPU|GPU|CPU)", re.IGNORECASE)
_CONTEXT = re.compile(r"input (\d+)")


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


class Definitions(Section):
    """How published rows of decoders are predicted."""

    schema_name: Literal["npusim.decoders-definitions/1"] = Field(alias="schema")
    """Version of this file format."""
    platforms: dict[str, list[str]]
    """SoCs by a part of the device's name; the first shipped one counts."""
    models: dict[str, str] = Field(default_factory=dict)
    """Workload of the same size for a model that has none of its own."""
    context: int
    """Tokens in the cache where a row does not name its input."""
    conditions: list[Condition]
    """Settings; those of every condition that fits a row, in this order."""

    def soc(self, device: str) -> str | None:
        """Return the SoC of a device, or None."""
        named = (name for part, names in self.platforms.items() if part in device for name in names)
        return next((name for name in named if name in soc_names()), None)


@cache
def load_definitions() -> Definitions:
    """Return the shipped definitions."""
    return load_model(suite_file("decoders", "definitions", "decoders.yaml"), Definitions)


def token_time(
    model: str,
    soc: str,
    device: str,
    precision: str,
    context: int,
    settings: Sequence[str] = (),
    source: str = "",
) -> float | None:
    """Return the time of a token on a machine as its runtime decodes (s); None for an unknown model.

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
    workload = known.models.get(model, model)
    if workload not in workload_names("llm"):
        return None
    places = [] if device == "npu" else [f"workload.max_sequence={context + 1}"]
    fitting = (each for each in known.conditions if each.fits(source, device, precision))
    how = [f"workload.weights={precision}", *places, "workload.prompt=1"]
    how += (text for each in fitting for text in each.settings)
    return float(Scenario(workload, soc, device=device, settings=[*how, *settings]).mapped.total["latency_s"])


def _rows(suite: Suite, path: Path | None) -> tuple[list[Row], list[str]]:
    """Return the decoding rows of a table in seconds a token, and what was skipped."""
    assert path is not None, "a table needs a file"
    figures = read_csv(path, [*map(Text, _TEXTS), Number("value")])
    rows, skipped = [], 0
    for i in range(len(figures)):
        row = _row(figures, i)
        rows += [] if row is None else [row]
        skipped += row is None and figures["hint"][i] == _HINT
    if not rows:
        allowed = "rows of the hint decode, in tok/s or ms/token, of known machines and models"
        raise ConfigError("no row that can be predicted", file=str(path), allowed=allowed)
    note = f"{path.name}: skipped {skipped} decoding rows of other machines, models or metrics"
    return rows, [*figures.notes, *([note] if skipped else [])]


def _row(figures: Figures, i: int) -> Row | None:
    """Return one row with its prediction; None where it cannot be predicted."""
    row = {name: str(figures[name][i]) for name in _TEXTS}
    metric, value = row["metric"], float(figures["value"][i])
    soc, unit = load_definitions().soc(row["device"]), _UNIT.search(row["device"])
    known = row["hint"] == _HINT and metric in _METRICS and row["precision"] in _FORMATS
    if not known or soc is None or unit is None:
        return None
    device, context = unit[1].lower(), _CONTEXT.search(row["notes"])
    tokens = int(context[1]) if context else load_definitions().context
    try:
        predicted_s = token_time(row["model"], soc, device, row["precision"], tokens, source=row["source"])
    except InfeasibleError:  # it does not fit the machine of the data sheet
        predicted_s = None
    if predicted_s is None:
        return None
    measured_s = 1.0 / value if metric == _METRICS[0] else 1e-3 * value
    columns = {"unit": device, "model": row["model"], "precision": row["precision"]}
    return Row(int(figures.ids[i]), measured_s, predicted_s, columns)


FIGURES = RowPredictor(_rows)
