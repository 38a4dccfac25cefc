"""Decoding rates of published language models on shipped machines: rows of other sources, none fitted.

A row names device, model, precision and source; `validate/definitions/decoders.yaml` says which data sheet,
which workload and which settings of its runtime that means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from npusim.arch import soc_names
from npusim.config import Section, load_model
from npusim.config.tables import Number, Text
from npusim.scenario import Scenario
from npusim.validation.figures import Figures, Row, RowPredictor, read_csv
from npusim.validation.suite import Suite, suite_file
from npusim.workloads import workload_names

_TEXTS = ("source", "device", "model", "precision", "hint", "metric", "notes")
_HINT = "decode"
_PER_TOKEN = {"ms/token": 1e-3}
_PER_SECOND = "tok/s"
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

    def fits(self, row: Mapping[str, str]) -> bool:
        """Whether a row belongs to the condition."""
        wanted = (self.unit in ("", row["unit"]), self.precision in ("", row["precision"]))
        return all(wanted) and self.source.lower() in row["source"].lower()


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


@cache
def load_definitions() -> Definitions:
    """Return the shipped definitions."""
    return load_model(suite_file("decoders", "definitions", "decoders.yaml"), Definitions)


def scenario_of(row: Mapping[str, str]) -> Scenario | None:
    """Return a published row as a scenario; None where no data sheet or workload stands for it.

    Parameters
    ----------
    row : mapping
        Its `source`, `device`, `model`, `precision` and `notes`.
    """
    definitions, unit = load_definitions(), _UNIT.search(row["device"])
    shipped = set(soc_names())
    socs = (name for part, names in definitions.platforms.items() if part in row["device"] for name in names)
    soc = next((name for name in socs if name in shipped), None)
    model = definitions.models.get(row["model"], row["model"])
    if unit is None or soc is None or model not in workload_names():
        return None
    named, device = _CONTEXT.search(row["notes"]), unit[1].lower()
    context = int(named[1]) if named else definitions.context
    known = dict(row) | {"unit": device}
    settings = [f"workload.weights={row['precision']}"]
    if device != "npu":  # hosts hold as many tokens as there are; an NPU is compiled for a length
        settings.append(f"workload.max_sequence={context + 1}")
    settings += (text for each in definitions.conditions if each.fits(known) for text in each.settings)
    settings.append(f"workload.prompt={min(context, 1024)}")
    return Scenario(model, soc, device=device, settings=settings)


def _rows(suite: Suite, path: Path | None) -> tuple[list[Row], list[str]]:
    """Return the decoding rows of a table in seconds a token, and what was skipped."""
    assert path is not None, "a table needs a file"
    figures = read_csv(path, [*map(Text, _TEXTS), Number("value")])
    rows, skipped = [], 0
    for i in range(len(figures)):
        row = _row(figures, i)
        rows += [] if row is None else [row]
        skipped += row is None and figures["hint"][i] == _HINT
    notes = [*figures.notes]
    if skipped:
        notes.append(f"{path.name}: skipped {skipped} decoding rows of other machines, models or metrics")
    return rows, notes


def _row(figures: Figures, i: int) -> Row | None:
    """Return one row with its prediction; None where it cannot be predicted."""
    row = {name: str(figures[name][i]) for name in _TEXTS}
    metric, value = row["metric"], float(figures["value"][i])
    if row["hint"] != _HINT or metric not in (_PER_SECOND, *_PER_TOKEN):
        return None
    scenario = scenario_of(row)
    if scenario is None:
        return None
    measured_s = 1.0 / value if metric == _PER_SECOND else _PER_TOKEN[metric] * value
    predicted_s = float(scenario.mapped.total["latency_s"])
    columns = {"unit": scenario.device, "model": row["model"], "precision": row["precision"]}
    return Row(int(figures.ids[i]), measured_s, predicted_s, columns)


FIGURES = RowPredictor(_rows)
