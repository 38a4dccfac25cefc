"""Runs suites: reads the figures, predicts each row, sorts rows into groups and checks the limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from npusim.errors import ConfigError, UnknownNameError
from npusim.plugins import announced, load
from npusim.validation.document import GroupResult, RowResult, SuiteResult
from npusim.validation.figures import Evidence, Predictor
from npusim.validation.suite import Condition, Group, Suite, figures_path, load_suite, suite_names
from npusim.validation.unit_models import Machine, machine_at

OTHER = "other rows"
"""Group of rows that meet no group's conditions."""
_PLACE = re.compile(r"\{(\w+)\}")


_FREE = Group(group=OTHER)  # rule of rows that meet no conditions: it allows any error


class GroupErrors(GroupResult):
    """Errors of one group, with the suite's entry of the group."""

    rule: Group = Field(exclude=True)


def group_of_rows(entries: Sequence[Group], evidence: Evidence) -> tuple[list[str], dict[str, Group]]:
    """Return the group's name of each row, and the suite's entry of each name.

    Raises
    ------
    ConfigError
        Where the suite names a column that its figures lack.
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
        places = {place: _column(evidence.columns, place) for place in _PLACE.findall(rule.group)}
        for row in np.flatnonzero(met):
            names[row] = rule.group.format(**{place: _word(values[row]) for place, values in places.items()})
            rules.setdefault(names[row], rule)
    return [str(name) for name in names], rules


def errors_by_group(
    names: list[str], rules: Mapping[str, Group], evidence: Evidence, fitted: Mapping[str, int] | None = None
) -> list[GroupErrors]:
    """Return the errors of each group; groups with a limit come first, in the order of the suite."""
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    order = {name: i for i, name in enumerate(rules)}
    groups = []
    for name, members in rows.items():
        rule = rules.get(name, _FREE)
        errors = (evidence.differences if rule.error == "points" else evidence.errors)[members]
        for row in np.array(members)[~np.isfinite(errors)]:
            figures = f"{evidence.measured[row]:g} beside a prediction of {evidence.predicted[row]:g}"
            raise ConfigError(figures, key=f"figure {evidence.ids[row]}", allowed="finite numbers above 0")
        mean, median, p90 = float(errors.mean()), float(np.median(errors)), float(np.quantile(errors, 0.9))
        statistics = {"mean_error": mean, "median_error": median, "p90_error": p90}
        bounds = [(statistics[rule.statistic], rule.limit), (p90, rule.p90_limit)]
        bounds += [(median, rule.median_limit), (float(errors.max()), rule.max_error)]
        is_kept = all(limit is None or error <= limit for error, limit in bounds)
        known = evidence.inside[members]
        known = known[~np.isnan(known)]
        inside = float(known.mean()) if known.size else None
        if rule.inside is not None and inside is not None:
            is_kept &= rule.inside[0] <= inside <= rule.inside[1]
        limit = None if rule.limit is None else float(rule.limit)
        fields = {"group": name, "rows": len(errors), "limit": limit, "error": rule.error, "ok": is_kept}
        fields |= {"inside": inside, "fitted": (fitted or {}).get(name, 0), "rule": rule}
        groups.append(GroupErrors.model_validate(fields | statistics))
    return sorted(groups, key=lambda group: (group.limit is None, order.get(group.group, len(order))))


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


@dataclass(frozen=True)
class Judged:
    """A suite with the errors of its rows and groups."""

    name: str
    suite: Suite
    evidence: Evidence
    row_groups: list[str]
    """Group of each row."""
    row_parts: list[str]
    """Part of the breakdown of each row; its group where the suite has no breakdown."""
    groups: list[GroupErrors]
    """Errors by group, those with a limit first; the suite's breakdown last."""

    @property
    def ok(self) -> bool:
        """Whether every limit is kept."""
        return all(group.ok for group in self.groups)

    @property
    def fitted(self) -> int:
        """Number of parameters that are fitted to the figures."""
        return self.suite.fitted.get("all", 0) + sum(group.fitted for group in self.groups)

    @property
    def is_determined(self) -> bool:
        """Whether as many parameters are fitted as there are figures."""
        return self.fitted >= len(self.evidence.ids)

    def result(self) -> SuiteResult:
        """Return the suite's part of the document."""
        evidence = self.evidence
        bounds: list[Any] = [None] * len(evidence.ids)
        if evidence.intervals is not None:
            bounds = [None if np.isnan(pair[0]) else tuple(map(float, pair)) for pair in evidence.intervals]
        numbers = zip(
            evidence.ids, self.row_groups, evidence.measured, evidence.predicted, bounds, strict=True
        )
        groups = [group.model_dump(exclude={"rule"}) for group in self.groups]
        rows = [dict(zip(RowResult.model_fields, row, strict=True)) for row in numbers]
        counts = {"fitted": self.fitted, "determined": self.is_determined}
        return SuiteResult.model_validate({"name": self.name, "groups": groups, "rows": rows, **counts})


def run_suites(names: Sequence[str] = (), figures: str | Path | None = None) -> list[Judged]:
    """Run suites with the shipped parameters, each once; none: all.

    Parameters
    ----------
    figures : str or Path, optional
        Another file of the same form, for the one named suite.

    Raises
    ------
    UnknownNameError
        Where a name belongs to no suite.
    ConfigError, FileError
        Where the figures cannot be read or are of another suite.
    """
    if figures is not None and len(names) != 1:
        count = f"{len(names)} suites" if names else "no suite"
        raise ConfigError(count, file="--figures", allowed="exactly one suite beside it")
    for name in names:
        load_suite(name)  # a misspelt name is refused before minutes of work
    return [run_suite(name, figures) for name in dict.fromkeys(names or suite_names())]


def run_suite(name: str, figures: str | Path | None = None) -> Judged:
    """Run one suite with the shipped parameters; parameters and errors as for `run_suites`."""
    suite = load_suite(name)
    if figures is not None:  # numbers are fitted to the shipped figures
        suite = suite.model_copy(update={"fitted": {}})
    evidence = predictor_of(suite).evidence(suite, figures_path(suite, figures), machines_of(suite))
    return judge(name, suite, evidence)


def judge(name: str, suite: Suite, evidence: Evidence) -> Judged:
    """Return evidence sorted into the suite's groups, with each group's errors."""
    row_groups, rules = group_of_rows(suite.groups, evidence)
    for group in suite.fitted.keys() - {"all", *row_groups}:
        raise ConfigError(f"the unknown group `{group}`", key="fitted", allowed=", ".join(["all", *rules]))
    groups = errors_by_group(row_groups, rules, evidence, suite.fitted)
    parts, part_rules = group_of_rows(suite.breakdown, evidence)
    groups += [part for part in errors_by_group(parts, part_rules, evidence) if part.rule is not _FREE]
    return Judged(name, suite, evidence, row_groups, parts if suite.breakdown else row_groups, groups)


def predictor_of(suite: Suite) -> Predictor:
    """Return the predictor of a suite; `UnknownNameError` where no package announces it."""
    predictors = announced("npusim.suites")
    if suite.predictor not in predictors:
        raise UnknownNameError("predictor", suite.predictor, tuple(predictors))
    predictor: Predictor = load(predictors[suite.predictor], "predictor")
    return predictor


def machines_of(suite: Suite) -> dict[str, Machine]:
    """Return the machines of a suite by their name in the figures."""
    return {name: machine_at(name, place) for name, place in suite.machines.items()}
