"""Free parameters, priors and tolerances of GraNNite's fit (`validate/definitions/granite_fit.yaml`)."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Literal

from pydantic import Field

from npusim.config import Section, load_model
from npusim.errors import ConfigError
from npusim.locate import resource
from npusim.validation.granite import Key

__all__ = ["Parameter", "Plan", "Prior", "SheetNumber", "Tolerance", "load_plan"]

Positive = Annotated[float, Field(gt=0.0)]


class SheetNumber(Section):
    """A number of data sheets that follows a parameter."""

    socs: list[str] = Field(min_length=1)
    """SoCs whose sheets hold it."""
    path: str
    """Where it stands, as in `--set`."""
    unit: str
    """Unit, as in the sheet."""
    share: Positive = 1.0
    """The number over the parameter."""
    source: str = ""
    """What the sheet says of it; empty: that it was fitted here, and what it was beforehand."""


class Prior(Section):
    """What is known of a parameter from elsewhere: log-normal."""

    value: Positive
    """Median, in the unit of its numbers."""
    width: Positive
    """Standard deviation of the logarithm."""
    source: str
    """Where that comes from."""


class Parameter(Section):
    """A free parameter."""

    title: str
    """What it is, in a line."""
    numbers: list[SheetNumber] = Field(min_length=1)
    """Numbers that follow it."""
    prior: Prior


class Tolerance(Section):
    """How exactly a figure is to be met: one standard deviation."""

    figure: str
    layer: str = ""
    measure: str = ""
    ratio: Positive | None = None
    """Of the logarithm of predicted over published."""
    points: Positive | None = None
    """Of the difference, for shares."""

    def fits(self, key: Key) -> bool:
        """Whether it is meant for a figure."""
        return (
            self.figure == key.figure and self.layer in ("", key.layer) and self.measure in ("", key.measure)
        )


class Plan(Section):
    """The fit's terms."""

    schema_name: Literal["npusim.granite-fit/1"] = Field(alias="schema")
    """Version of this file format."""
    parameters: dict[str, Parameter] = Field(min_length=1)
    """Free parameters by name."""
    tolerances: list[Tolerance]
    """The first that fits a figure counts."""

    def tolerance(self, key: Key) -> Tolerance:
        """Return the tolerance of a figure."""
        for tolerance in self.tolerances:
            if tolerance.fits(key):
                return tolerance
        raise ConfigError(f"no tolerance for {key.figure}", key="tolerances", allowed="one for every figure")


@cache
def load_plan() -> Plan:
    """Return the shipped plan."""
    return load_model(resource("validate", "definitions", "granite_fit.yaml"), Plan)
