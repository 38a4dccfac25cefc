"""Energy from the log of another tool that watched while networks ran.

Like reading the time of a knock off the neighbour's diary: our own notes say when each network ran, the log
says what power was drawn then.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npusim.measure.document import Row
from npusim.measure.energy import Drawn

__all__ = ["with_logged_energy"]


def with_logged_energy(
    measured: Sequence[tuple[Row, Drawn | None]], kind: str, path: Path
) -> tuple[list[tuple[Row, Drawn | None]], str]:
    """Return rows with the energy that HWiNFO's log gives them.

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
    from npusim.measure.hwinfo import read_hwinfo

    log = read_hwinfo(path)
    found = []
    for row, drawn in measured:
        power_w = log.mean_power_w(kind, drawn.began_s, drawn.ended_s) if drawn else None
        if drawn and power_w:
            joules = power_w * (drawn.ended_s - drawn.began_s) / drawn.inferences
            row = row.model_copy(update={"energy_j": joules, "energy_source": "hwinfo"})
        found.append((row, drawn))
    without = sum(row.energy_j is None for row, _ in found)
    reason = f"{path.name} has no power of the {kind.upper()} while {without} of {len(found)} rows ran"
    return found, reason if without else ""
