"""Energy of an inference: what the package draws, part by part.

MACs, bytes through SRAM and DRAM, and DSP lane operations have an energy each in the SoC's technology;
dynamic energy on the chip goes with the square of the voltage. The NPU's leakage, fabric and clock tree draw
theirs while it works. CPU and GPU draw their power while they work, the memory traffic that they cause
included. What each device draws idle counts from one inference to the next; all of the above is beyond it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from npusim.cost.architecture import MAC_FORMATS, ArchRecord
from npusim.cost.demands import DRAM_BYTES, SRAM_READ_BYTES, SRAM_WRITTEN_BYTES
from npusim.cost.jit import compiled
from npusim.cost.resources import LANE_CYCLES, LEVEL_READ_BYTES, LEVEL_WRITTEN_BYTES, LEVELS, MACS


class UnitEnergy(IntEnum):
    """Columns of the table of energies of units: of an array device in one state."""

    SRAM = 0
    """Joules of a byte read or written in SRAM."""
    DRAM = 1
    """Joules of a byte to or from DRAM."""
    LANE = 2
    """Joules of a cycle of a DSP lane."""
    STATIC_W = 3
    """Watts while it works that do not depend on the work."""
    MAC = 4
    """Joules of a multiply-accumulate, a column for each of `MAC_FORMATS`."""
    LEVEL_READ = 4 + len(MAC_FORMATS)
    """Joules of a byte that a memory level serves, its filling before included, a column for each."""
    LEVEL_WRITE = 4 + len(MAC_FORMATS) + LEVELS
    """Joules of a byte that is written there, a column for each."""


MAC_J, SRAM_J, DRAM_J, DSP_J = range(4)
"""Columns of the table of energies: parts of what work on an array device takes."""
PARTS = 4
FORMATS = len(MAC_FORMATS)
UNIT_ENERGIES = int(UnitEnergy.LEVEL_WRITE) + LEVELS
_SRAM, _DRAM, _LANE, _STATIC_W, _MAC = (int(column) for column in list(UnitEnergy)[:5])
_LEVEL_READ, _LEVEL_WRITE = int(UnitEnergy.LEVEL_READ), int(UnitEnergy.LEVEL_WRITE)


@compiled
def fill_unit_energies(arch: ArchRecord, unit_j: Any, device: int, row: int) -> None:
    """Fill a row of the table of energies of units of an array device.

    Parameters
    ----------
    unit_j : array of float64, shape (array devices, rows, UNIT_ENERGIES)
    """
    unit_j[device, row, _SRAM], unit_j[device, row, _DRAM] = arch.sram_j_per_byte, arch.dram_j_per_byte
    unit_j[device, row, _LANE], unit_j[device, row, _STATIC_W] = arch.dsp_j_per_lane_op, arch.static_w
    for f in range(FORMATS):
        unit_j[device, row, _MAC + f] = arch.mac_j[f]
    for k in range(LEVELS):
        unit_j[device, row, _LEVEL_READ + k] = arch.level_read_j[k] + arch.level_write_j[k]
        unit_j[device, row, _LEVEL_WRITE + k] = arch.level_write_j[k]


@compiled
def fill_energies(
    demands: Any, moved: Any, demand_of: Any, unit_j: Any, state_of: Any, points: int, energies: Any
) -> None:
    """Read the dynamic energy of work on an array device out of what it needs, by part (J).

    Parameters
    ----------
    demands, moved : array of float64, shape (rows, COUNT) and (rows, MOVED)
        What the work needs, and the bytes that it moves (`npusim.cost.demands`).
    unit_j : array of float64, shape (rows, UNIT_ENERGIES)
    demand_of, state_of : array of int64, shape (points,)
        Rows of the tables above that hold at each point.
    energies : array of float64, shape (points, PARTS)
        Written: MACs, SRAM with memory levels, DRAM, DSPs.
    """
    for p in range(points):
        demand, state = demand_of[p], state_of[p]
        mac, traffic = 0.0, moved[demand, SRAM_READ_BYTES] + moved[demand, SRAM_WRITTEN_BYTES]
        sram = traffic * unit_j[state, _SRAM]
        for f in range(FORMATS):
            mac += demands[demand, MACS + f] * unit_j[state, _MAC + f]
        for k in range(LEVELS):
            sram += demands[demand, LEVEL_READ_BYTES + k] * unit_j[state, _LEVEL_READ + k]
            sram += demands[demand, LEVEL_WRITTEN_BYTES + k] * unit_j[state, _LEVEL_WRITE + k]
        energies[p, MAC_J], energies[p, SRAM_J] = mac, sram
        energies[p, DRAM_J] = moved[demand, DRAM_BYTES] * unit_j[state, _DRAM]
        energies[p, DSP_J] = demands[demand, LANE_CYCLES] * unit_j[state, _LANE]
