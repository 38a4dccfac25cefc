"""Documents of a validation: errors of suites, and numbers that no measured row constrains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal

from pydantic import Field

from npusim.arch import Soc, load_soc, soc_names
from npusim.documents import Document, Part
from npusim.studies.perturbation import number_at, numbers_of


class GroupResult(Part):
    """The errors of one group of rows; an error is |predicted - measured|, `relative` over measured."""

    group: str
    """Name of the group."""
    rows: int = Field(ge=1)
    """Number of rows."""
    mean_error: float = Field(ge=0)
    """Mean of the errors."""
    median_error: float = Field(ge=0)
    """Median of the errors."""
    p90_error: float = Field(ge=0)
    """90th percentile of the errors."""
    inside: float | None = Field(None, ge=0, le=1)
    """Share of its rows inside the 90 % intervals of their predictions; None where no row has an interval."""
    limit: float | None
    """Largest error allowed of the statistic that the suite's file names. None: the group informs only."""
    error: Literal["relative", "points"] = "relative"
    """`points`: figures are shares, and errors and limit their differences (0.1 is 10 percentage points)."""
    fitted: int = Field(0, ge=0)
    """Numbers fitted to its rows alone; with as many as rows it is determined, not tested."""
    ok: bool
    """Whether the limits of the group and of single rows are kept; true where there are none."""


class RowResult(Part):
    """One row of figures with its prediction, in the unit of the figures (seconds, cycles or a ratio)."""

    id: int | str
    """Line in a CSV file, or key path in a YAML file."""
    group: str
    """Group of the row."""
    measured: float
    """Measured or published value."""
    predicted: float
    """Predicted value."""
    interval: tuple[float, float] | None = None
    """90 % interval of the prediction, where the suite has one."""


class SuiteResult(Part):
    """One suite; a cross-validation of it is an entry of its own, named `SUITE (held out)`."""

    name: str
    """Name of the suite."""
    groups: list[GroupResult]
    """Its groups, those with a limit first."""
    rows: list[RowResult]
    """Its rows, in the order of the file."""
    fitted: int = Field(0, ge=0)
    """Numbers fitted to its rows, of a group's and of several."""
    determined: bool = False
    """Whether as many numbers are fitted to its rows as it has: determined, not tested."""


class Validation(Document):
    """A validation as a document."""

    schema_: Literal["npusim.validate/1"] = Field("npusim.validate/1", alias="schema")
    """Version of this document."""
    suites: list[SuiteResult]
    """The suites, in the requested order."""

    @property
    def ok(self) -> bool:
        """Whether every limit is kept."""
        return all(group.ok for suite in self.suites for group in suite.groups)


_MEASURED = ("[SILICON]", "] measured cycles")  # marks in the source of a number that measured rows constrain
_FACTS = ("[VPUNN]", "[NPUC]", "[ITT]", "absent")  # sources of published facts, which are not fitted
# Sections of a data sheet with the numbers of the units' equations.
_MODELS = ("npu.dpu.model.", "npu.dma.model.", "npu.dsp.kernels.")


class UnmeasuredParameter(Part):
    """A number of a unit's equations that no measured row constrains."""

    soc: str
    """SoC whose data sheet holds it."""
    path: str
    """Its path, as in `--set`."""
    value: str
    """Its value with unit."""
    uncertainty: float | None
    """Relative standard deviation; None where the sheet states none."""
    source: str
    """Its source, as in the data sheet."""


class Unmeasured(Document):
    """The numbers that rest on no measured row."""

    schema_: Literal["npusim.parameters/1"] = Field("npusim.parameters/1", alias="schema")
    """Version of this document."""
    parameters: list[UnmeasuredParameter]
    """The numbers, SoC by SoC."""


def unmeasured() -> Unmeasured:
    """Return the numbers of the units' equations that rest on no measured row, for every SoC with an NPU.

    Examples
    --------
    >>> [p.path for p in unmeasured().parameters if p.path.endswith("ddr2cmx_row_cycles")]
    ['npu.dma.model.ddr2cmx_row_cycles', 'npu.dma.model.ddr2cmx_row_cycles']
    """
    socs = [load_soc(name) for name in soc_names(variants=False)]
    return Unmeasured(parameters=[number for soc in socs if soc.has("npu") for number in _of(soc)])


def _of(soc: Soc) -> Iterator[UnmeasuredParameter]:
    for section, (uncertain, _) in product(_MODELS, numbers_of(soc)):
        number = number_at(soc, uncertain.path)
        is_measured = any(word in number.source for word in _MEASURED)
        if uncertain.name.startswith(section) and not is_measured and not number.source.startswith(_FACTS):
            yield UnmeasuredParameter(
                soc=soc.name,
                path=uncertain.name,
                value=number.text,
                uncertainty=number.uncertainty,
                source=number.source,
            )
