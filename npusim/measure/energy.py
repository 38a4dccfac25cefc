"""Energy of a run: counters in hardware, one reader per source.

A counter only counts up; energy is the difference of two readings. Without a counter the energy is not
available (null), which is not the same as 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from npusim.measure.document import EnergySource
from npusim.measure.pmt import PmtMeter
from npusim.measure.rapl import RaplMeter

__all__ = ["Drawn", "Meter", "find_meter"]


class Meter(Protocol):
    """A counter of energy."""

    @property
    def source(self) -> EnergySource:
        """What it is, as a row says it."""
        ...

    def read(self) -> int:
        """Return the counter."""
        ...

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings (J), right also where the counter wrapped once."""
        ...


@dataclass(frozen=True)
class Drawn:
    """The energy that a run of repeated inferences drew, or when it ran.

    Attributes
    ----------
    began_s, ended_s : float
        Seconds of the wall clock (Unix time), to find it again in the log of another tool.
    inferences : int
        How many ran.
    joules : float or None
        Energy of all of them (J); None where nothing counted it.
    source : str or None
        What counted.
    """

    began_s: float
    ended_s: float
    inferences: int
    joules: float | None
    source: EnergySource | None

    @property
    def joules_each(self) -> float | None:
        """Energy of one inference (J); None where it is not available, also where a counter stood still."""
        return self.joules / self.inferences if self.joules else None


def find_meter(kind: str, root: Path = Path("/")) -> tuple[Meter | None, str]:
    """Return what counts the energy of a class of device here, and why if nothing does.

    Parameters
    ----------
    kind : str
        npu, gpu or cpu.
    root : Path, optional
        Where ``sys`` lies.

    Returns
    -------
    tuple of Meter or None, and str
        A CPU's energy is its package's (RAPL), a GPU's that of RAPL's domain uncore, an NPU's what PMT
        counts. The text is empty where there is a meter, or nothing that a user could mend.
    """
    if kind == "npu":
        return PmtMeter.find(root)
    return RaplMeter.find(root, "uncore" if kind == "gpu" else "package-0")
