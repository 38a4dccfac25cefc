"""The result of a validation as a document (schema `npusim.validate/1`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part


class GroupResult(Part):
    """The errors of one group of rows; an error is |predicted - measured|, `relative` over measured."""

    group: str
    """Name of the group."""
    rows: int = Field(ge=1)
    """Rows in it."""
    mean_error: float = Field(ge=0)
    """Mean of the errors."""
    median_error: float = Field(ge=0)
    """Median of the errors."""
    p90_error: float = Field(ge=0)
    """90th percentile of the errors."""
    limit: float | None
    """Largest error allowed; the suite's file says whether it binds mean or median. None: the group informs
    only."""
    error: Literal["relative", "points"] = "relative"
    """`points`: figures are shares, and errors and limit their differences (0.1 is 10 percentage points)."""
    ok: bool
    """Whether the limit is kept, and that of single rows where the suite's file has one; true where there is
    none."""


class RowResult(Part):
    """One row of figures with its prediction, in the unit of the figures (seconds, cycles or a ratio)."""

    id: int | str
    """Line in a CSV file, or key path in a YAML file."""
    group: str
    """Group it counts in."""
    measured: float
    """What was measured or published."""
    predicted: float
    """What npusim says."""


class SuiteResult(Part):
    """One suite; a cross-validation of it is an entry of its own, named `SUITE (held out)`."""

    name: str
    """Name of the suite."""
    groups: list[GroupResult]
    """Its groups, those with a limit first."""
    rows: list[RowResult]
    """Its rows, in the order of the file."""


class Validation(Document):
    """A validation as a document."""

    schema_: Literal["npusim.validate/1"] = Field("npusim.validate/1", alias="schema")
    """Version of this document."""
    suites: list[SuiteResult]
    """The suites, in the order asked for."""

    @property
    def ok(self) -> bool:
        """Whether every limit is kept."""
        return all(group.ok for suite in self.suites for group in suite.groups)
