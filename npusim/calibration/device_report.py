"""The calibration report as a document (schema `npusim.calibration/1`)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from npusim.documents import Document, Part

Status = Literal["identified", "tied", "loose", "not identified", "held"]


class FittedParameter(Part):
    """One number of the data sheet, before and after.

    identified: fitted, and clearly better known than before. tied: fitted, but known only together with the
    numbers in `tied_to`. loose: fitted, because the data rule out the value before, but hardly better known.
    not identified: the data say too little, so it stays. held: not free.
    """

    path: str
    """Its path, as in `--set`."""
    unit: str
    """SI unit; empty for a plain number."""
    before: float
    """Value of the data sheet."""
    before_uncertainty: float
    """Relative standard deviation in the data sheet; 1 where a user freed a number without one."""
    after: float
    """Value in the fitted SoC; the same as before where it was not fitted."""
    interval: tuple[float, float]
    """90 % interval."""
    status: Status
    """Knowledge of the number after the fit."""
    tied_to: list[str]
    """Numbers with correlated errors."""
    rows: int
    """Rows whose time changes by more than 1 % when it moves by its uncertainty."""
    at_bound: bool
    """Whether it reached the bound of what its kind allows."""


class CalibratedRow(Part):
    """One row of the measurement, with its predictions."""

    id: str
    """Name of the row in the measurement."""
    family: str
    """Operator, or kind of network."""
    what: str
    """Description of the network that ran."""
    hint: str
    """Performance hint."""
    requests: int
    """Inferences in flight."""
    figure: Literal["latency", "interval"]
    """Measured quantity: latency, or interval between results."""
    fitted: bool
    """Whether it was fitted to; the others are predicted as a check."""
    measured_s: float
    """Measured time (s)."""
    noise: float
    """Relative standard error of the measurement."""
    before_s: float
    """Time with the numbers before (s)."""
    after_s: float
    """Time with the fitted numbers (s)."""
    held_out_s: float
    """Time predicted by a fit that did not see the row (s)."""
    interval_s: tuple[float, float] | None
    """90 % interval of a single measurement, for rows that were not fitted to (s)."""


class FamilyError(Part):
    """Errors of one family, |predicted / measured - 1|."""

    family: str
    """Operator or kind of network; "all" for all rows fitted to."""
    fitted: bool
    """Whether the rows were fitted to (and predicted in folds)."""
    rows: int
    """Number of rows."""
    before_median: float
    """Median error with the numbers before."""
    after_median: float
    """Median error after the fit, on rows that it saw where `fitted`."""
    held_out_median: float
    """Median error on rows that the fit did not see."""
    held_out_p90: float
    """90 % quantile of the error on rows that the fit did not see."""
    noise_median: float
    """Median of the measurement's own relative standard error."""
    inside: int | None
    """Rows inside their 90 % interval; null without intervals."""


class SkippedRow(Part):
    """A row that was left out."""

    id: str
    """Name of the row in the measurement."""
    reason: str
    """Reason for leaving it out."""


class CalibrationReport(Document):
    """A calibration of one device of a SoC."""

    schema_: Literal["npusim.calibration/1"] = Field("npusim.calibration/1", alias="schema")
    """Version of this document."""
    npusim: str
    """Version of npusim."""
    soc: str
    """Name of the SoC that was fitted."""
    soc_title: str
    """Title of the SoC."""
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
    """Number of decisions of fusion and residency, until they no longer changed."""
    noise: float
    """Median relative standard error of the measured rows."""
    residual: float
    """Relative standard deviation that the fit leaves beyond the noise."""
    model_error: dict[str, float]
    """Relative standard deviation of times, on unseen rows, by operator type; `other`: unmeasured types."""
    parameters: list[FittedParameter]
    """Numbers that affect the rows, most informative first."""
    families: list[FamilyError]
    """Errors by family."""
    rows: list[CalibratedRow]
    """Predicted rows."""
    left_out: list[SkippedRow]
    """Rows that were not predicted."""
    facts: dict[str, str]
    """Numbers that the device reports and that were taken over, such as cpu.cores."""
    warnings: list[str]
    """Unexpected findings."""
