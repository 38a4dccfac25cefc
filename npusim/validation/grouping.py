"""Sorts the rows of a suite into its groups, and computes each group's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.errors import ConfigError
from npusim.validation.evidence import Evidence
from npusim.validation.suite import Condition, Group

OTHER = "other rows"
"""Group of rows that meet no group's conditions."""

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class GroupErrors:
    """One group's errors beside its limit."""

    name: str
    rule: Group | None
    """The suite's entry that made the group; None for rows that met none."""
    errors: NDArray[np.float64]
    """|predicted - measured|, over measured where the rule does not ask for points. Shape (rows,)."""

    @property
    def unit(self) -> str:
        """Unit in which errors are told: % of what was measured, or percentage points."""
        return "points" if self.rule is not None and self.rule.error == "points" else "%"

    @property
    def mean_error(self) -> float:
        """Mean of the errors."""
        return float(self.errors.mean())

    @property
    def median_error(self) -> float:
        """Median of the errors."""
        return float(np.median(self.errors))

    @property
    def p90_error(self) -> float:
        """90th percentile of the errors."""
        return float(np.quantile(self.errors, 0.9))

    @property
    def max_error(self) -> float:
        """Largest error of a row."""
        return float(self.errors.max())

    @property
    def limit(self) -> float | None:
        """Largest value that the bound statistic may have; None: there is none."""
        return None if self.rule is None or self.rule.limit is None else float(self.rule.limit)

    @property
    def ok(self) -> bool:
        """Whether the limits of the group and of its rows are kept; true where there are none."""
        if self.rule is None:
            return True
        whole = self.rule.limit is None or getattr(self, self.rule.statistic) <= self.rule.limit
        return bool(whole and (self.rule.max_error is None or self.max_error <= self.rule.max_error))


def group_of_rows(entries: Sequence[Group], evidence: Evidence) -> tuple[list[str], dict[str, Group]]:
    """Return the group's name of each row, and the suite's entry behind each name.

    Raises
    ------
    ConfigError
        Where the suite names a column that its figures do not have.
    """
    count = len(evidence.ids)
    names = np.array([OTHER] * count, object)
    free = np.ones(count, bool)
    rules: dict[str, Group] = {}
    for rule in entries:
        met = free.copy()
        for column, condition in rule.where.items():
            met &= _meets(_column(evidence.columns, column), condition)
        free &= ~met
        for row in np.flatnonzero(met):
            names[row] = _PLACE.sub(lambda place: _word(_column(evidence.columns, place[1])[row]), rule.group)  # noqa: B023
            rules.setdefault(names[row], rule)
    return [str(name) for name in names], rules


def errors_by_group(names: list[str], rules: Mapping[str, Group], evidence: Evidence) -> list[GroupErrors]:
    """Return the errors of each group: those with a limit first, in the order in which they appear."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    order = {name: i for i, name in enumerate(rules)}
    found = [_errors_of(name, rules.get(name), evidence, members) for name, members in rows.items()]
    return sorted(found, key=lambda group: (group.limit is None, order.get(group.name, len(order))))


def _errors_of(name: str, rule: Group | None, evidence: Evidence, members: list[int]) -> GroupErrors:
    in_points = rule is not None and rule.error == "points"
    return GroupErrors(name, rule, (evidence.differences if in_points else evidence.errors)[members])


def _column(columns: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    if name not in columns:
        raise ConfigError(f"the unknown column `{name}`", key="groups", allowed=", ".join(columns))
    return columns[name]


def _meets(values: NDArray[Any], condition: Condition) -> NDArray[np.bool_]:
    met = np.ones(len(values), bool)
    if condition.one_of is not None:
        met &= np.isin(values, np.array(condition.one_of, values.dtype))
    if condition.at_least is not None:
        met &= values.astype(float) >= condition.at_least
    if condition.below is not None:
        met &= values.astype(float) < condition.below
    return met


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
