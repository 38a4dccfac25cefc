"""A SoC's data sheet as one design point of the architecture table.

The numbers of a point lie in one buffer: the columns that devices share, a record for each array device, a
record for each host, both in the order of the data sheet. Records of a kind are alike whatever the SoC, so
compiled code serves every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from npusim.arch import Npu, Soc, outer_levels
from npusim.arch.dpu import DpuModel, EnergyFactors
from npusim.arch.npu import DmaModel
from npusim.arch.power import Technology
from npusim.cost.architecture import (
    ARCH_DTYPE,
    MAC_FORMATS,
    MODES,
    SHARED_DTYPE,
    Archs,
    PrimitiveColumns,
    RatedColumns,
    SearchedColumns,
    SharedPrimitives,
    derive,
)
from npusim.cost.arrays.nest import fill_tile_array
from npusim.cost.hosts import HOST_DTYPE, HOST_PRIMITIVES, fill_host
from npusim.cost.levels import BIT_OF
from npusim.cost.records import dtype_of

SHARED_SIZE, ARRAY_SIZE, HOST_SIZE = (d.itemsize // 8 for d in (SHARED_DTYPE, ARCH_DTYPE, HOST_DTYPE))
"""Numbers of what devices share, of an array device, of a host."""


def _offsets(dtype: Any, names: Collection[str]) -> tuple[int, ...]:
    """Return the places of some columns in the float64 view of a record."""
    places: list[int] = []
    for name in names:
        column, offset = dtype.fields[name][:2]
        places += range(offset // 8, (offset + column.itemsize) // 8)
    return tuple(places)


def column_in(dtype: Any, name: str) -> int:
    """Return the place of a column in the float64 view of a record."""
    return _offsets(dtype, (name,))[0]


_SHARED_PRIMITIVES = _offsets(SHARED_DTYPE, dtype_of(SharedPrimitives).names)
_ARRAY_PRIMITIVES = _offsets(ARCH_DTYPE, dtype_of(PrimitiveColumns).names)
_HOST_PRIMITIVES = _offsets(HOST_DTYPE, HOST_PRIMITIVES)
SRAM_COLUMN = column_in(ARCH_DTYPE, "sram_tile_bytes")
"""Place of a tile's SRAM in the record of an array device."""
_SEARCHED = _offsets(ARCH_DTYPE, dtype_of(SearchedColumns).names)
_RATED = _offsets(ARCH_DTYPE, dtype_of(RatedColumns).names)


@dataclass(frozen=True)
class ArchRow:
    """One design point of a machine; `row["npu"]` is the record of the device of that name."""

    numbers: Any
    """All numbers, float64 array, shape (columns,); the records below are views of it."""
    arrays: tuple[str, ...]
    """Names of the array devices, in the order of the data sheet."""
    hosts: tuple[str, ...]
    """Names of CPUs and GPUs, in that order."""

    @cached_property
    def archs(self) -> Archs:
        """The point as compiled code takes it: a table of one point."""
        hosts = SHARED_SIZE + len(self.arrays) * ARRAY_SIZE
        return Archs(
            self.numbers[:SHARED_SIZE].view(SHARED_DTYPE).reshape(1, 1),
            self.numbers[SHARED_SIZE:hosts].view(ARCH_DTYPE).reshape(1, -1),
            self.numbers[hosts:].view(HOST_DTYPE).reshape(1, -1),
        )

    @property
    def shared(self) -> Any:
        """Record of what all devices share."""
        return self.archs.shared[0, 0]

    def __getitem__(self, device: str) -> Any:
        if device in self.arrays:
            return self.archs.arrays[0, self.arrays.index(device)]
        return self.archs.hosts[0, self.hosts.index(device)]

    def place_of(self, device: str) -> int:
        """Return the place of a device among the array devices, or among the hosts."""
        return (self.arrays if device in self.arrays else self.hosts).index(device)

    def derive(self) -> None:
        """Fill the derived columns."""
        points: Any = np.int64(1)  # a literal would make a second specialisation
        derive(self.archs, points)

    def copy(self) -> ArchRow:
        """Return a point of its own with the same numbers."""
        return ArchRow(self.numbers.copy(), self.arrays, self.hosts)

    @property
    def primitives(self) -> tuple[int, ...]:
        """Places of all columns that are one number of the data sheet each; none depends on another."""
        return _primitives(len(self.arrays), len(self.hosts))

    @property
    def searched(self) -> frozenset[int]:
        """Places of what the tiling search looks at."""
        return _of_arrays(len(self.arrays), _SEARCHED)

    @property
    def rated(self) -> frozenset[int]:
        """Places of the numbers that rates of array devices depend on, without DSPs."""
        return _of_arrays(len(self.arrays), _RATED).union((column_in(SHARED_DTYPE, "dram_bytes_per_s"),))

    @property
    def sram(self) -> frozenset[int]:
        """Those of the SRAM of a tile: a search serves a range of its sizes."""
        return _of_arrays(len(self.arrays), (SRAM_COLUMN,))

    def places_in(self, other: ArchRow, columns: Any) -> Any:
        """Return the places of columns of this machine in another; -1 where that lacks the device.

        Parameters
        ----------
        columns : array of int64
            Places among this machine's `numbers`.
        """
        if (self.arrays, self.hosts) == (other.arrays, other.hosts):
            return columns
        there = {column: i for i, column in enumerate(other._columns())}
        here = list(self._columns())
        return np.array([there.get(here[column], -1) for column in columns], np.int64)

    def _columns(self) -> Iterator[tuple[str, int]]:
        """Yield device and place in its record of each number."""
        parts = [
            ("", SHARED_SIZE),
            *((n, ARRAY_SIZE) for n in self.arrays),
            *((n, HOST_SIZE) for n in self.hosts),
        ]
        for name, size in parts:
            yield from ((name, i) for i in range(size))


@cache
def _primitives(arrays: int, hosts: int) -> tuple[int, ...]:
    first = SHARED_SIZE + arrays * ARRAY_SIZE
    of_arrays = (SHARED_SIZE + d * ARRAY_SIZE + i for d in range(arrays) for i in _ARRAY_PRIMITIVES)
    of_hosts = (first + h * HOST_SIZE + i for h in range(hosts) for i in _HOST_PRIMITIVES)
    return tuple(sorted((*_SHARED_PRIMITIVES, *of_arrays, *of_hosts)))


@cache
def _of_arrays(arrays: int, offsets: tuple[int, ...]) -> frozenset[int]:
    return frozenset(SHARED_SIZE + d * ARRAY_SIZE + i for d in range(arrays) for i in offsets)


def arch_row(soc: Soc, tiles: float | Mapping[str, float], requests: float, hint: str) -> ArchRow:
    """Return one design point.

    Parameters
    ----------
    tiles : float or mapping of str to float
        Tiles of each NPU that an inference uses, at most those of the chip; infinite for all. A mapping has
        a number for each NPU by its name.
    requests : float
        Inferences in flight.
    hint : {"latency", "throughput"}
        Performance hint, on which the cores and clocks of CPU and GPU depend.
    """
    arrays, hosts = soc.array_devices, soc.hosts
    size = SHARED_SIZE + len(arrays) * ARRAY_SIZE + len(hosts) * HOST_SIZE
    row = ArchRow(np.zeros(size), tuple(arrays), tuple(hosts))
    shared = row.shared
    shared["requests"], shared["nominal_voltage"] = requests, 1.0
    _fill_dram(shared, soc)
    if soc.technology is not None:
        _fill_technology(shared, soc.technology)
        shared["dram_j_per_byte"] *= soc.dram.voltage_ratio**2
    for name, npu in arrays.items():
        row[name]["wanted_tiles"] = tiles[name] if isinstance(tiles, Mapping) else tiles
        _fill_npu(row[name], npu)
        _fill_levels(row[name], npu, soc)
    for name, host in hosts.items():
        fill_host(row[name], host, hint)
        row[name]["bytes_per_s"] *= soc.dram.clock_ratio
    row.derive()
    return row


def _fill_dram(record: Any, soc: Soc) -> None:
    dram, package = soc.dram, soc.package
    record["dram_bytes_per_s"], record["dram_latency_s"] = dram.bandwidth * dram.clock_ratio, dram.latency
    record["dram_clock_ratio"], record["dram_voltage_ratio"] = dram.clock_ratio, dram.voltage_ratio
    record["dram_idle_w"] = dram.idle_w
    if package is not None and package.throttle:
        record["limit_w"] = package.power_limit


_BYTES = {"int4": 0.5, "int8": 1.0, "fp16": 2.0, "fp32": 4.0}
_WIDER = {"int4": ("int4", "int8"), "int8": ("int8",), "fp16": ("fp16", "fp32"), "fp32": ("fp32", "fp16")}
"""Formats that a grid may compute in what it is given in, the first that it has."""


def _computed_in(form: str, formats: Collection[Any]) -> Any:
    """Return the format that a grid computes in; one that it never computes counts as any that it has."""
    return next((one for one in _WIDER[form] if one in formats), next(iter(formats)))


def _fill_npu(record: Any, npu: Npu) -> None:
    dpu, grid = npu.dpu, npu.dpu.grid
    record["npu_tiles"], record["launch_s"] = npu.tiles, npu.launch_overhead
    record["dispatch_s"] = npu.dispatch_overhead
    record["most_contexts"] = npu.contexts
    record["dpu_clock_hz"], record["vpu_clock_hz"], record["voltage"] = dpu.clock, npu.vpu_clock, npu.voltage
    record["dpu_vpe"], record["dpu_mpe"], record["dpu_sum_bytes"] = grid.vpe, grid.mpe, grid.accumulator
    rates = dict(dpu.macs_per_mpe)
    for i, form in enumerate(MAC_FORMATS):
        record["dpu_mac_bytes_per_cycle"][i] = rates[_computed_in(form, rates)] * _BYTES[form]
    for dtype, rate in rates.items():
        record[f"mpe_macs_{dtype}"] = rate
    fill_tile_array(record["array"], dpu)
    modes = list(dpu.modes.values())
    for i in range(MODES):  # a grid with fewer modes has its last one more than once
        mode = modes[min(i, len(modes) - 1)]
        record["dpu_mode_w"][i], record["dpu_mode_h"][i] = mode.groups_w, mode.groups_h
        record["dpu_mode_c"][i] = mode.groups_c
    record["dpu_read_ports"], record["dpu_sram_word_bytes"] = npu.sram.read_ports, npu.sram.word
    fitted: DpuModel | None = dpu.model
    for name in DpuModel.model_fields if fitted is not None else ():
        record[f"dpu_{name}"] = getattr(fitted, name)
    if fitted is None:  # partial sums pass through the ports of SRAM
        record["dpu_write_ports"], record["dpu_drain_bytes_per_port_cycle"] = (
            npu.sram.read_ports,
            npu.sram.word,
        )
    for name in EnergyFactors.model_fields:
        if f"energy_{name}" in ARCH_DTYPE.names:
            record[f"energy_{name}"] = getattr(dpu.energy_factors, name)
    record["stream_pieces"] = npu.schedule.stream_pieces
    record["sram_tile_bytes"], record["sram_reserved_bytes"] = npu.sram.per_tile, npu.sram.reserved
    record["dma_engines"], record["dma_engine_bytes_per_cycle"] = npu.dma.engines, npu.dma.width
    for name in DmaModel.model_fields:
        record[f"dma_{name}"] = getattr(npu.dma.model, name)
    record["symg_transposed_rate"], record["active_w"] = npu.symg.transposed_read_rate, npu.power.active
    record["npu_idle_w"], rated = npu.power.idle, npu.power.rated_at
    record["rated_clock_hz"], record["rated_voltage"] = rated.clock, rated.voltage
    record["dsps_per_tile"], record["dsp_lanes"] = npu.dsp.per_tile, npu.dsp.lanes.fp16


def _fill_levels(record: Any, npu: Npu, soc: Soc) -> None:
    levels = outer_levels(npu, soc.levels)
    for k, level in enumerate(levels.values()):
        record["level_bytes"][k], record["level_bytes_per_s"][k] = level.capacity, level.bytes_per_s
        record["level_latency_s"][k] = level.latency
        record["level_operands"][k] = sum(BIT_OF[operand] for operand in level.operands)
        record["level_is_cache"][k] = float(level.managed_by == "cache")
        record["level_read_j"][k], record["level_write_j"][k] = level.read_energy, level.write_j_per_byte
    if npu.shared_level is not None:
        record["shared_place"] = len(levels)
        record["shared_level"] = 1 + list(soc.levels).index(npu.shared_level)


def _fill_technology(record: Any, technology: Technology) -> None:
    energy, area = technology.energy, technology.area
    record["nominal_voltage"], record["leakage_w_per_m2"] = technology.nominal_voltage, technology.leakage
    for dtype, joules in energy.mac.items():
        record[f"tech_mac_j_{dtype}"] = joules
    record["tech_sram_j_per_byte"], record["tech_dsp_j_per_lane_op"] = energy.sram, energy.dsp_op
    record["dram_j_per_byte"] = energy.dram
    for name, m2 in area.mac.items():
        record[f"mac_m2_{name}"] = m2
    record["sram_m2_per_byte"], record["dsp_m2"] = area.sram, area.dsp
    record["dma_engine_m2"], record["fixed_m2"] = area.dma_engine, area.fixed
