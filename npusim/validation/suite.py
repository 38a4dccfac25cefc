"""Suites (`validate/SUITE.yaml`): figures, their columns, groups of rows and error limits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from npusim.config import Section, load_model
from npusim.errors import ConfigError, UnknownNameError
from npusim.locate import resource, resource_names
from npusim.plugins import announced, folder_of
from npusim.units import Fraction, PositiveRatio, refuse

Statistic = Literal["mean_error", "median_error", "p90_error"]
"""Statistic over the errors of a group's rows that a limit binds."""
ErrorKind = Literal["relative", "points"]
"""Error of a row: |predicted - measured| over measured, or the difference where figures are shares."""
NumberKind = Literal["number", "count", "size", "amount", "amount?", "axis?", "whole", "share", "density"]
ColumnKind = Literal["text", "1x1", "0-0-0-0"] | NumberKind
"""Kind of a column: any text; a number above 0, a whole one (`count`), one up to 65,536 (`size`); a number of
at least 0 (`amount`), a whole one (`whole`), or nothing (`amount?`); one from 1 to 65,536, or nothing
(`axis?`); a number from 0 to 1 (`share`), without 0 (`density`); or whole numbers with a sign between them,
each at least as large as here."""


class Condition(Section):
    """Condition on a row's value in one column; every entry must hold."""

    one_of: list[str | int] | None = None
    at_least: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Condition:
        if self.one_of is None and self.at_least is None and self.below is None:
            refuse("a condition that says nothing", "one_of, at_least or below")
        return self


class Group(Section):
    """Group of rows with one error limit; a row belongs to the first group that fits it."""

    group: str = Field(min_length=1)
    """Name; `{column}` stands for the row's value in that column, so one entry can make many groups."""
    where: dict[str, Condition] = Field(default_factory=dict)
    """Conditions by column; none: every row that no group above holds."""
    limit: PositiveRatio | None = None
    """Largest error allowed; None: the group informs only."""
    error: ErrorKind = "relative"
    """`points`: figures are shares, such as miss rates; a limit of 10 % means 10 percentage points."""
    statistic: Statistic = "mean_error"
    """Statistic that the limit binds."""
    p90_limit: PositiveRatio | None = None
    """Largest 90th percentile allowed beside it; None: it is not bound."""
    median_limit: PositiveRatio | None = None
    """Largest median allowed beside; None: the median is not bound."""
    max_error: PositiveRatio | None = None
    """Largest error allowed in a single row; None: single rows are not bound."""
    inside: tuple[Fraction, Fraction] | None = None
    """Least and largest share of rows inside the 90 % intervals of their predictions; None: not bound."""
    yardstick: str = ""
    """Mean error of Intel's own cost model on the same kind of rows."""
    note: str = ""
    """Remark for the reader."""


class MachineAt(Section):
    """SoC and clocks of a measurement."""

    soc: str
    """Name of a shipped SoC."""
    operating_point: str
    """Operating point of its NPU."""


class Suite(Section):
    """One suite of figures and the errors it allows."""

    schema_name: Literal["npusim.suite/1"] = Field(alias="schema")
    """Version of this file format: npusim.suite/1."""
    title: str
    """What is checked, in a line."""
    figures: str | None
    """File in `validate/figures`; None where the suite makes its own rows."""
    predictor: str
    """Entry of the group `npusim.suites` that predicts the rows."""
    unit: str = ""
    """Unit of measured and predicted values; empty for a ratio."""
    dimensions: list[str] = Field(default_factory=list)
    """Columns that the residuals are plotted against."""
    columns: dict[str, ColumnKind | list[str]] = Field(default_factory=dict)
    """Kind of each column of a CSV table besides `npu`; a list holds the allowed words."""
    measured: str = ""
    """Column with the measured values; the predictor may compute it from others."""
    near_duplicates: list[str] = Field(default_factory=list)
    """Rows with equal values in these columns stay together in a cross-validation."""
    paths: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Key paths of the figures of a YAML file, with columns whose value follows from the path. `{column}`
    stands for one of the column's `words`; the first path that fits counts."""
    words: dict[str, str | list[str]] = Field(default_factory=dict)
    """Values that a column of a key path may have: a list, or a regular expression."""
    branches: list[str] = Field(default_factory=list)
    """Beginnings of keys, which a misspelt key is compared with; none: those of `paths`."""
    ignored: list[str] = Field(default_factory=list)
    """Beginnings of keys that are skipped without a note."""
    fit: str | None = None
    """Entry of the group `npusim.fits` that a cross-validation repeats in each fold; None: no number is
    fitted to these figures."""
    fitted: dict[str, int] = Field(default_factory=dict)
    """How many numbers are fitted to the figures of a group, by its name; `all`: to those of several."""
    machines: dict[str, MachineAt] = Field(default_factory=dict)
    """Machine of each name in the figures' column `npu`."""
    unmodelled: dict[str, str] = Field(default_factory=dict)
    """Names in that column whose rows are left out, with the reason."""
    groups: list[Group] = Field(min_length=1)
    """Groups, tried in this order; each row counts in one."""
    breakdown: list[Group] = Field(default_factory=list)
    """Further groups over the same rows, without limits, to see where errors come from."""
    notes: list[str] = Field(default_factory=list)
    """Remarks on the result."""


def suite_names() -> list[str]:
    """Return the names of all suites, sorted."""
    return sorted({*resource_names("validate", ".yaml"), *announced("npusim.suites")})


def load_suite(name: str) -> Suite:
    """Return a suite by its name; `UnknownNameError` names the nearest one."""
    names = suite_names()
    if name not in names:
        raise UnknownNameError("suite", name, names)
    return load_model(suite_file(name, f"{name}.yaml"), Suite)


def suite_file(suite: str, *parts: str) -> Path:
    """Return a file of a suite: from the package that announces the suite, or from the shipped folder."""
    entry = announced("npusim.suites").get(suite)
    path = folder_of(entry).joinpath("validate", *parts) if entry is not None else None
    return path if path is not None and path.is_file() else resource("validate", *parts)


def figures_path(suite: Suite, figures: str | Path | None = None) -> Path:
    """Return the file of a suite's figures: a user's, or the shipped one; an empty path where it has none.

    Raises
    ------
    ConfigError
        Where a user names a file for a suite that makes its own rows.
    """
    if figures is not None:
        if suite.figures is None:
            raise ConfigError("a file", file="--figures", allowed="nothing: the suite makes its own rows")
        return Path(figures).expanduser()
    return Path() if suite.figures is None else suite_file(suite.predictor, "figures", suite.figures)
