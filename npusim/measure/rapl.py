"""RAPL energy counters of a processor's package and domains, as Linux shows them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from npusim.measure.document import EnergySource

__all__ = ["RaplMeter"]

_JOULES_PER_COUNT = 1e-6
"""The counter is in microjoules (Linux, Documentation/power/powercap)."""


@dataclass(frozen=True)
class RaplMeter:
    """The counter of one domain.

    Attributes
    ----------
    counter : Path
        Its file ``energy_uj``.
    wraps_at : int
        Its largest value; the next is 0.
    """

    counter: Path
    wraps_at: int
    source: EnergySource = "intel-rapl"

    @classmethod
    def find(cls, root: Path, domain: str) -> tuple[RaplMeter | None, str]:
        """Return the meter of a domain, and why it cannot be read if it is there and cannot.

        Parameters
        ----------
        root : Path
            Where ``sys`` lies.
        domain : str
            As the kernel calls it: package-0, uncore.
        """
        reason = ""
        for folder in sorted((root / "sys" / "class" / "powercap").glob("intel-rapl:*")):
            if _text(folder / "name") != domain:
                continue
            try:
                wraps_at = int((folder / "max_energy_range_uj").read_text())
                meter = cls(folder / "energy_uj", wraps_at)
                meter.read()
                return meter, ""
            except PermissionError:
                reason = f"RAPL counts the energy of {domain}, but only root may read it"
            except (OSError, ValueError):
                reason = f"RAPL's counter of {domain} cannot be read"
        return None, reason

    def read(self) -> int:
        """Return the counter (uJ)."""
        return int(self.counter.read_text())

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings (J)."""
        return (after - before) % (self.wraps_at + 1) * _JOULES_PER_COUNT


def _text(path: Path) -> str:
    """Return what stands in a small file; nothing where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
