"""Runs suites: reads the figures, predicts each row, groups and judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from npusim.errors import ConfigError, UnknownNameError
from npusim.plugins import announced
from npusim.validation.document import GroupResult, RowResult, SuiteResult, Validation
from npusim.validation.evidence import Evidence, Predictor
from npusim.validation.grouping import GroupErrors, errors_by_group, group_of_rows
from npusim.validation.suite import Suite, load_suite, suite_file, suite_names
from npusim.validation.unit_models import Machine, machine_at

PREDICTORS = {
    "accuracy": "npusim.accuracy.published:FIGURES",
    "granite": "npusim.validation.granite:FIGURES",
    "chips": "npusim.validation.chip_figures:CHIPS",
    "costmodel-dma": "npusim.validation.dma_figures:ENGINES",
    "costmodel-dma-rows": "npusim.validation.dma_figures:ROWS",
    "costmodel-eltwise-pool": "npusim.validation.costmodel_figures:CHANNELWISE",
    "costmodel-gemm": "npusim.validation.costmodel_figures:PRODUCTS",
    "costmodel-sparse": "npusim.validation.costmodel_figures:SPARSE_PRODUCTS",
    "dsp": "npusim.validation.dsp_figures:KERNELS",
    "engines": "npusim.validation.engine_agreement:ENGINES",
    "networks": "npusim.validation.network_figures:PUBLISHED",
    "peers": "npusim.validation.peer_figures:PEERS",
    "silicon-dma": "npusim.validation.dma_figures:MEASURED",
    "silicon-dpu": "npusim.validation.dpu_figures:WORKLOADS",
    "silicon-networks": "npusim.validation.trace_figures:NETWORKS",
    "silicon-sparsity": "npusim.validation.dpu_figures:SPARSE",
    "silicon-traces": "npusim.validation.trace_figures:TASKS",
}
"""Predictors that a suite's file can name, as `module:name`; packages announce theirs as `npusim.suites`."""


@dataclass(frozen=True)
class Judged:
    """A suite that has been run."""

    name: str
    suite: Suite
    evidence: Evidence
    """Its rows."""
    row_groups: list[str]
    """Group of each row."""
    row_parts: list[str]
    """Part of the breakdown that each row falls in; its group where the suite has no breakdown."""
    groups: list[GroupErrors]
    """Errors by group, those with a limit first; the suite's breakdown last."""

    @property
    def ok(self) -> bool:
        """Whether every limit is kept."""
        return all(group.ok for group in self.groups)

    def result(self) -> SuiteResult:
        """Return the suite's part of the document."""
        evidence = self.evidence
        numbers = zip(evidence.ids, self.row_groups, evidence.measured, evidence.predicted, strict=True)
        return SuiteResult(
            name=self.name,
            groups=[
                GroupResult(
                    group=group.name,
                    rows=len(group.errors),
                    mean_error=group.mean_error,
                    median_error=group.median_error,
                    p90_error=group.p90_error,
                    limit=group.limit,
                    error=group.rule.error if group.rule is not None else "relative",
                    ok=group.ok,
                )
                for group in self.groups
            ],
            rows=[
                RowResult(id=id_, group=group, measured=float(measured), predicted=float(predicted))
                for id_, group, measured, predicted in numbers
            ],
        )


def validate(names: Sequence[str] = (), figures: str | Path | None = None) -> Validation:
    """Run suites with the shipped parameters.

    Parameters
    ----------
    figures : str or Path, optional
        Another file of the same form to run the one named suite on.

    Raises
    ------
    UnknownNameError
        Where there is no suite of a name.
    ConfigError, FileError
        Where the figures cannot be read, or are not those of the suite.

    Examples
    --------
    >>> document = validate(["silicon-dma"])
    >>> document.ok, document.suites[0].groups[0].group
    (True, 'npu3720')
    """
    return Validation(suites=[judged.result() for judged in run_suites(names, figures)])


def run_suites(names: Sequence[str] = (), figures: str | Path | None = None) -> list[Judged]:
    """Run suites with the shipped parameters, each once; parameters and errors as for `validate`."""
    if figures is not None and len(names) != 1:
        found = f"{len(names)} suites" if names else "no suite"
        raise ConfigError(found, file="--figures", allowed="exactly one suite beside it")
    for name in names:
        load_suite(name)  # a misspelt name is told before minutes of work, not after
    return [run_suite(name, figures) for name in dict.fromkeys(names or suite_names())]


def run_suite(name: str, figures: str | Path | None = None) -> Judged:
    """Run one suite with the shipped parameters; parameters and errors as for `validate`."""
    suite = load_suite(name)
    evidence = predictor_of(suite).evidence(suite, figures_path(suite, figures), machines_of(suite))
    return judge(name, suite, evidence)


def judge(name: str, suite: Suite, evidence: Evidence) -> Judged:
    """Return evidence sorted into the suite's groups."""
    row_groups, rules = group_of_rows(suite.groups, evidence)
    groups = errors_by_group(row_groups, rules, evidence)
    parts, part_rules = group_of_rows(suite.breakdown, evidence)
    groups += [part for part in errors_by_group(parts, part_rules, evidence) if part.rule is not None]
    return Judged(name, suite, evidence, row_groups, parts if suite.breakdown else row_groups, groups)


def predictor_of(suite: Suite) -> Predictor:
    """Return the predictor a suite asks for.

    Raises
    ------
    UnknownNameError
        Where there is none of that name.
    """
    added = announced("npusim.suites")
    if suite.predictor in added:
        predictor: Predictor = added[suite.predictor].load()
        return predictor
    if suite.predictor not in PREDICTORS:
        raise UnknownNameError("predictor", suite.predictor, (*PREDICTORS, *added))
    module, name = PREDICTORS[suite.predictor].split(":")
    predictor = getattr(import_module(module), name)
    return predictor


def figures_path(suite: Suite, figures: str | Path | None = None) -> Path | None:
    """Return the file of a suite's figures: the given one, or the shipped one; None where it has none.

    Raises
    ------
    ConfigError
        Where a file is given to a suite that makes its own rows.
    """
    if figures is not None:
        if suite.figures is None:
            raise ConfigError("a file", file="--figures", allowed="nothing: the suite makes its own rows")
        return Path(figures).expanduser()
    return None if suite.figures is None else suite_file(suite.predictor, "figures", suite.figures)


def machines_of(suite: Suite) -> dict[str, Machine]:
    """Return the machines of a suite by their name in the figures."""
    return {name: machine_at(name, place) for name, place in suite.machines.items()}
