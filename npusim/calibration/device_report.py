"""The calibration report as a document (schema `npusim.calibration/1`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from npusim.documents import Document, Part


class FittedParameter(Part):
    """One number of the data sheet, before and after."""

    path: str
    """Where it stands, as in `--set`."""
    unit: str
    """SI unit; empty for a plain number."""
    before: float
    """Value of the data sheet."""
    before_uncertainty: float
    """Relative standard deviation that the data sheet states; 1 where it states none and a user freed it."""
    after: float
    """Value in the fitted SoC; the same as before where it was not fitted."""
    interval: tuple[float, float]
    """90 % interval."""
    status: Literal["identified", "tied", "loose", "not identified", "held"]
    """identified: fitted, and clearly better known than before. tied: fitted, but only together with the
    numbers in `tied_to` is it known. loose: fitted, for the data rule out the value before, but hardly better
    known. not identified: the data say too little, left as it was. held: not
    free."""
    tied_to: list[str]
    """Numbers whose errors go with this one's."""
    rows: int
    """Rows whose time it affects: more than 1 % when it moves by its uncertainty."""
    at_bound: bool
    """Whether it ran into the bound of what its kind allows."""


class CalibratedRow(Part):
    """One row of the measurement, with its predictions."""

    id: str
    """As in the measurement."""
    family: str
    """Operator, or kind of network."""
    what: str
    """What ran."""
    hint: str
    """Performance hint."""
    requests: int
    """Inferences in flight."""
    figure: Literal["latency", "interval"]
    """Whether the time of one inference or the time between two was measured."""
    fitted: bool
    """Whether it was fitted to; the others are predicted as a check."""
    measured_s: float
    """Measured time, in s."""
    noise: float
    """Relative standard error of the measurement."""
    before_s: float
    """Time with the numbers before, in s."""
    after_s: float
    """Time with the fitted numbers, in s."""
    held_out_s: float
    """Time predicted by a fit that did not see the row, in s."""
    interval_s: tuple[float, float] | None
    """90 % interval of what a single measurement should show; of rows that were not fitted to."""


class FamilyError(Part):
    """Errors of one family, |predicted / measured - 1|."""

    family: str
    """Operator or kind of network; "all" for all rows fitted to."""
    fitted: bool
    """Whether the rows were fitted to (and predicted in folds)."""
    rows: int
    """Rows."""
    before_median: float
    """Median error with the numbers before."""
    after_median: float
    """Median error after the fit, on rows that it saw where `fitted`."""
    held_out_median: float
    """Median error on rows that the fit did not see."""
    held_out_p90: float
    """90 % of those rows err less."""
    noise_median: float
    """Median of the measurement's own relative standard error."""
    inside: int | None
    """Rows inside their 90 % interval, where they have one."""


class SkippedRow(Part):
    """A row that was left out."""

    id: str
    """As in the measurement."""
    reason: str
    """Why."""


class CalibrationReport(Document):
    """A calibration of one device of a SoC."""

    schema_: Literal["npusim.calibration/1"] = Field("npusim.calibration/1", alias="schema")
    """Version of this document."""
    npusim: str
    """Version of npusim."""
    soc: str
    """Name of the SoC that was fitted."""
    soc_title: str
    """Its title."""
    output: str | None
    """The fitted SoC file; null where none was written."""
    device: Literal["npu", "gpu", "cpu"]
    """Class of device."""
    chip: str
    """Name of the chip that was measured."""
    environment: dict[str, Any]
    """The device as the measurement describes it."""
    date: str
    """Day of the measurement, or "unknown"."""
    files: list[str]
    """Files of measurements, without their folders."""
    rows_fitted: int
    """Rows that were fitted to."""
    folds: int
    """Folds of the cross-validation."""
    seed: int
    """Seed of its folds."""
    rounds: int
    """Number of times that fusion and residency were decided until they no longer changed."""
    noise: float
    """Median relative standard error of the measured rows."""
    residual: float
    """Relative standard deviation that the fit leaves beyond the noise."""
    model_error: dict[str, float]
    """What the equations leave out, by operator type of the graph: relative standard deviation on rows that
    the fit did not see; `other` for operators that were not measured."""
    parameters: list[FittedParameter]
    """Numbers that bear on the rows, most informative first."""
    families: list[FamilyError]
    """Errors by family."""
    rows: list[CalibratedRow]
    """Every row that was predicted."""
    left_out: list[SkippedRow]
    """Rows that were not."""
    facts: dict[str, str]
    """Numbers that the device reports of itself and that were taken over, such as cpu.cores."""
    warnings: list[str]
    """What was not as one would expect."""
