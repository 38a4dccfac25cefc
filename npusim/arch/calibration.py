"""How a data sheet was fitted to measurements, and how far it can be trusted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from npusim.config import Section
from npusim.units import refuse

OTHER_OPERATORS = "other"
"""Key of `model_error` for operators that were not measured."""

_Share = Annotated[float, Field(ge=0.0, lt=100.0)]
_Correlation = Annotated[float, Field(ge=-1.0, le=1.0)]


class Calibration(Section):
    """How a data sheet was fitted to measurements; written by `npusim calibrate`."""

    device: Literal["npu", "cpu", "gpu"]
    """Class of device that was measured."""
    chip: str
    """Name of the chip that was measured."""
    date: str
    """Day of the measurement; "unknown" where it did not say."""
    rows: Annotated[int, Field(ge=1)]
    """Rows that were fitted to."""
    noise: _Share
    """Relative standard deviation of the measurement itself: of a row's median."""
    model_error: dict[str, _Share]
    """What the equations leave out, by operator: relative standard deviation of an operator's time, found on
    rows that were held out of the fit; `other` for operators that were not measured."""
    parameters: list[str] = Field(default_factory=list)
    """Paths of the numbers whose errors go together."""
    correlation: list[list[_Correlation]] = Field(default_factory=list)
    """Correlation of the errors of their logarithms: a row a parameter, up to its own column."""

    @model_validator(mode="after")
    def _is_a_triangle(self) -> Calibration:
        for i, row in enumerate(self.correlation):
            if len(row) != i + 1 or row[-1] != 1.0:
                allowed = f"{i + 1} numbers, the last of them 1"
                refuse(f"row {i + 1} of {len(row)} numbers", allowed, at="correlation")
        if len(self.correlation) != len(self.parameters):
            refuse(
                f"{len(self.correlation)} rows",
                f"{len(self.parameters)}, a row a parameter",
                at="correlation",
            )
        if OTHER_OPERATORS not in self.model_error:
            refuse("no `other`", "a share for operators that were not measured", at="model_error")
        return self
