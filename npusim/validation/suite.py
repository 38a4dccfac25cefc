"""Suites (`validate/<suite>.yaml`): figures that are checked, groups of rows, error limits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from npusim.config import Section, load_model
from npusim.errors import UnknownNameError
from npusim.locate import resource, resource_names
from npusim.plugins import announced, folder_of
from npusim.units import PositiveRatio, refuse

Statistic = Literal["mean_error", "median_error", "p90_error"]
"""What a limit binds: a statistic over the errors of a group's rows."""
ErrorKind = Literal["relative", "points"]
"""What an error is: |predicted - measured| over measured, or of figures that are shares the difference."""


class Condition(Section):
    """What a row's value in one column must be; all that is given must hold."""

    one_of: list[str | int] | None = None
    """One of these words or numbers."""
    at_least: float | None = None
    """This number or more."""
    below: float | None = None
    """Less than this number."""

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
    """Conditions by column; none: every row that no group above has taken."""
    limit: PositiveRatio | None = None
    """Largest error allowed; None: the group informs only."""
    error: ErrorKind = "relative"
    """`relative`: errors are shares of what was measured; `points`: of figures that are shares themselves,
    such as miss rates, they are differences, and a limit of 10 % is one of 10 percentage points."""
    statistic: Statistic = "mean_error"
    """What the limit binds."""
    max_error: PositiveRatio | None = None
    """Largest error that any one row of the group may have; None: no row is bound by itself."""
    yardstick: str = ""
    """Mean error of Intel's own cost model on the same kind of rows, to compare with."""
    note: str = ""
    """What else a reader should know."""


class MachineAt(Section):
    """The machine whose figures a suite holds, at the clocks of the measurement."""

    soc: str
    """Name of a shipped SoC."""
    operating_point: str
    """One of its NPU's operating points."""


class Suite(Section):
    """One suite of figures and the errors it allows."""

    schema_name: Literal["npusim.suite/1"] = Field(alias="schema")
    """Version of this file format: npusim.suite/1."""
    title: str
    """What is checked, in a line."""
    figures: str | None
    """File in `validate/figures`; None where the suite makes its own rows."""
    predictor: str
    """Which part of `npusim.validation` reads the figures and predicts them."""
    fit: str | None = None
    """Which fit of `npusim.calibrate` is repeated in each fold of a cross-validation; None: nothing is
    fitted to these figures."""
    machines: dict[str, MachineAt] = Field(default_factory=dict)
    """Machine of each name in the figures' column `npu`."""
    unmodelled: dict[str, str] = Field(default_factory=dict)
    """Names in that column that are left out, with the reason."""
    groups: list[Group] = Field(min_length=1)
    """Groups, tried in this order; each row counts in one."""
    breakdown: list[Group] = Field(default_factory=list)
    """Further groups over the same rows, to see where errors come from; they have no limit."""
    notes: list[str] = Field(default_factory=list)
    """What a reader of the result should know."""


def suite_names() -> list[str]:
    """Return the names of all suites, sorted."""
    return sorted({*resource_names("validate", ".yaml"), *announced("npusim.suites")})


def load_suite(name: str) -> Suite:
    """Return a suite by its name.

    Raises
    ------
    UnknownNameError
        Where there is none of that name.
    """
    names = suite_names()
    if name not in names:
        raise UnknownNameError("suite", name, names)
    return load_model(suite_file(name, f"{name}.yaml"), Suite)


def suite_file(suite: str, *parts: str) -> Path:
    """Return a file of a suite, from the package that announces the suite or from the shipped folder."""
    entry = announced("npusim.suites").get(suite)
    path = folder_of(entry).joinpath("validate", *parts) if entry is not None else None
    return path if path is not None and path.is_file() else resource("validate", *parts)
