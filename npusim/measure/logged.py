"""Energy from the log of another tool that ran at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npusim.errors import NpusimError
from npusim.measure.document import Row
from npusim.measure.energy import Drawn
from npusim.measure.hwinfo import read_hwinfo

__all__ = ["with_logged_energy"]

Measured = list[tuple[Row, Drawn | None]]


def with_logged_energy(
    measured: Sequence[tuple[Row, Drawn | None]], kind: str, path: Path
) -> tuple[Measured, str]:
    """Return rows with the energy that HWiNFO's log gives them.

    A log that does not help is no reason to lose the times: rows stay without energy then.

    Parameters
    ----------
    measured : sequence of Row and Drawn
        Rows and when each ran without a pause.
    kind : str
        Class of device: npu, gpu, cpu.
    path : Path
        The log.

    Returns
    -------
    tuple of list and str
        The rows, and why some have no energy; empty where all have. Energy is the mean power in a row's run
        times its length, by its inferences.
    """
    try:
        log = read_hwinfo(path)
    except NpusimError as error:
        return list(measured), str(error)
    found: Measured = []
    for row, drawn in measured:
        power_w = log.mean_power_w(kind, drawn.began_s, drawn.ended_s) if drawn else None
        if drawn is not None and power_w is not None:
            joules = power_w * (drawn.ended_s - drawn.began_s) / drawn.inferences
            row = row.model_copy(update={"energy_j": joules, "energy_source": "hwinfo"})
        found.append((row, drawn))
    without = sum(row.energy_j is None for row, _ in found)
    reason = f"{path.name} tells no power of the {kind.upper()} while {without} of {len(found)} rows ran"
    return found, "; ".join([reason, *log.notes]) if without else ""
