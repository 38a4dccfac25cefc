"""The data sheet of a SoC as one design point of the architecture table.

One buffer holds the numbers of a point: the columns that devices share, a record for each array device, a
record for each host, in the order of the data sheet. Records of a kind have the same columns on every SoC, so
compiled code serves every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from npusim.arch import Npu, Soc, outer_levels
from npusim.arch.dpu import DpuModel
from npusim.arch.npu import MAPPING_OBJECTIVES
from npusim.arch.silicon import Technology, interface_of, parts, process_named, sram_laws
from npusim.compiling.records import Floats, Ints, dtype_of, fill_at
from npusim.cost.machine import architecture
from npusim.cost.machine.architecture import ARCH_DTYPE, MAC_FORMATS, SHARED_DTYPE, Archs
from npusim.cost.machine.hosts import HOST_DTYPE, HOST_PRIMITIVES, fill_host
from npusim.cost.machine.silicon import law_column, sram_law
from npusim.cost.machine.spatial_array import fill_tile_array
from npusim.ops.formats import FORMATS

SHARED_SIZE, ARRAY_SIZE, HOST_SIZE = (d.itemsize // 8 for d in (SHARED_DTYPE, ARCH_DTYPE, HOST_DTYPE))
"""Numbers of what devices share, of an array device, of a host."""


def _offsets(dtype: Any, names: Collection[str]) -> tuple[int, ...]:
    """Return the places of some columns in the float64 view of a record."""
    fields = [dtype.fields[name][:2] for name in names]
    return tuple(o // 8 + i for column, o in fields for i in range(column.itemsize // 8))


def column_in(dtype: Any, name: str) -> int:
    """Return the place of a column in the float64 view of a record."""
    return _offsets(dtype, (name,))[0]


SRAM_COLUMN = column_in(ARCH_DTYPE, "sram_tile_bytes")
"""Place of SRAM of a tile in the record of an array device."""
_SHARED_PRIMITIVES = _offsets(SHARED_DTYPE, dtype_of(architecture.SharedPrimitives).names)
_HOST_PRIMITIVES = _offsets(HOST_DTYPE, HOST_PRIMITIVES)
_PRIMITIVES, _SEARCHED, _RATED = (
    _offsets(ARCH_DTYPE, dtype_of(columns).names)
    for columns in (architecture.PrimitiveColumns, architecture.SearchedColumns, architecture.RatedColumns)
)


@dataclass(frozen=True)
class ArchRow:
    """One design point of a machine; `row["npu"]` is the record of the device of that name."""

    numbers: Floats
    """All numbers; the records below are views of it."""
    arrays: tuple[str, ...]
    """Names of the array devices, in the order of the data sheet."""
    hosts: tuple[str, ...]
    """Names of CPUs and GPUs, in that order."""

    @cached_property
    def archs(self) -> Archs:
        """The point as compiled code takes it."""
        shared, arrays, hosts = np.split(
            self.numbers, (SHARED_SIZE, SHARED_SIZE + len(self.arrays) * ARRAY_SIZE)
        )
        return Archs(shared.view(SHARED_DTYPE), arrays.view(ARCH_DTYPE), hosts.view(HOST_DTYPE))

    @property
    def shared(self) -> Any:
        """Record of the columns that all devices share."""
        return self.archs.shared[0]

    def __getitem__(self, device: str) -> Any:
        if device in self.arrays:
            return self.archs.arrays[self.arrays.index(device)]
        return self.archs.hosts[self.hosts.index(device)]

    def place_of(self, device: str) -> int:
        """Return the place of a device among the array devices, or among the hosts."""
        return (self.arrays if device in self.arrays else self.hosts).index(device)

    def derive(self) -> None:
        """Fill the derived columns."""
        architecture.derive(self.archs, True)

    def copy(self) -> ArchRow:
        """Return an independent point with the same numbers."""
        return ArchRow(self.numbers.copy(), self.arrays, self.hosts)

    @cached_property
    def primitives(self) -> tuple[int, ...]:
        """Places of all columns that hold a number of the data sheet."""
        first = SHARED_SIZE + len(self.arrays) * ARRAY_SIZE
        of_hosts = (first + h * HOST_SIZE + i for h in range(len(self.hosts)) for i in _HOST_PRIMITIVES)
        return tuple(sorted((*_SHARED_PRIMITIVES, *self._of_arrays(_PRIMITIVES), *of_hosts)))

    @cached_property
    def searched(self) -> frozenset[int]:
        """Places of the columns that the tiling search reads."""
        return self._of_arrays(_SEARCHED)

    @cached_property
    def rated(self) -> frozenset[int]:
        """Places of the columns that rates of array devices depend on, except those of DSPs."""
        return self._of_arrays(_RATED) | {column_in(SHARED_DTYPE, "dram_bytes_per_s")}

    @cached_property
    def sram(self) -> frozenset[int]:
        """Places of SRAM of a tile; a search serves a range of its sizes."""
        return self._of_arrays((SRAM_COLUMN,))

    def _of_arrays(self, offsets: tuple[int, ...]) -> frozenset[int]:
        return frozenset(SHARED_SIZE + d * ARRAY_SIZE + i for d in range(len(self.arrays)) for i in offsets)

    def places_in(self, other: ArchRow, columns: Ints) -> Ints:
        """Return the places of columns of this machine in another; -1 where that lacks the device."""
        if (self.arrays, self.hosts) == (other.arrays, other.hosts):
            return columns
        there = {column: i for i, column in enumerate(other._columns())}
        here = self._columns()
        return np.array([there.get(here[column], -1) for column in columns], np.int64)

    def _columns(self) -> list[tuple[str, int]]:
        """Return device and place in its record of each number."""
        arrays, hosts = (
            ((name, ARRAY_SIZE) for name in self.arrays),
            ((name, HOST_SIZE) for name in self.hosts),
        )
        return [(name, i) for name, size in (("", SHARED_SIZE), *arrays, *hosts) for i in range(size)]


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
        if soc.technology is not None:
            area, rates = soc.technology.mac_area, npu.dpu.macs_per_mpe
            own = [name for name in rates if name not in MAC_FORMATS]
            row[name]["own_formats_m2"] = sum(rates[form] * area[form] for form in own)
        _fill_levels(row[name], npu, soc)
        _fill_sheet(row[name], npu, soc.sheet_numbers(name))
    _fill_level_sheets(row, soc)
    _fill_array_memories(row, soc)
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
    record["sheet_dram_bytes_per_s"] = soc.sheet_numbers("dram")["bandwidth"]
    interface = interface_of(dram.title)
    record["interface_m2_s_per_byte"] = interface.m2_s_per_byte
    record["interface_w_s_per_byte"] = interface.w_s_per_byte
    if package is not None and package.throttle:
        record["limit_w"] = package.power_limit


def computed_in(form: str, formats: Collection[str]) -> str:
    """Return the format in which a grid computes; a format that it lacks counts as any that it has."""
    by_width = (name for name in formats if name in MAC_FORMATS)
    wider = (name for name in FORMATS[form].computed_in if name in formats)
    return form if form in formats else next(wider, next(by_width))


def _fill_npu(record: Any, npu: Npu) -> None:
    fill_at(record, architecture.NPU_COLUMNS, npu)
    dpu, rates, modes = npu.dpu, dict(npu.dpu.macs_per_mpe), list(npu.dpu.modes.values())
    for i, form in enumerate(MAC_FORMATS):
        record["dpu_mac_bytes_per_cycle"][i] = rates[computed_in(form, rates)] * FORMATS[form].bits / 8
        record[f"mpe_macs_{form}"] = rates.get(form, 0.0)
    fill_tile_array(record["array"], dpu)
    record["objective"] = MAPPING_OBJECTIVES.index(npu.schedule.objective)
    for i in range(architecture.MODES):  # a grid with fewer modes repeats its last one
        mode = modes[min(i, len(modes) - 1)]
        record["dpu_mode_w"][i], record["dpu_mode_h"][i] = mode.groups_w, mode.groups_h
        record["dpu_mode_c"][i] = mode.groups_c
    fitted: DpuModel | None = dpu.model
    if fitted is None:  # partial sums pass through the ports of SRAM
        record["dpu_write_ports"] = npu.sram.read_ports
        record["dpu_drain_bytes_per_port_cycle"] = npu.sram.word


def _fill_levels(record: Any, npu: Npu, soc: Soc) -> None:
    levels = outer_levels(npu, soc.levels)
    for k, level in enumerate(levels.values()):
        record["level_bytes"][k], record["level_bytes_per_s"][k] = level.capacity, level.bytes_per_s
        record["level_latency_s"][k] = level.latency
        record["level_operands"][k] = sum(architecture.BIT_OF[operand] for operand in level.operands)
        record["level_is_cache"][k] = float(level.managed_by == "cache")
        record["level_read_j"][k], record["level_write_j"][k] = level.read_energy, level.write_j_per_byte
        record["level_banks"][k] = level.banks
    if npu.shared_level is not None:
        record["shared_place"] = len(levels)
        record["shared_level"] = 1 + list(soc.levels).index(npu.shared_level)


def _fill_sheet(record: Any, npu: Npu, sheet: Mapping[str, float]) -> None:
    """Fill the numbers of the data sheet that settings leave (`Soc.sheet_numbers`)."""
    for column, path in architecture.SHEET_COLUMNS.items():
        record[column] = sheet[path]
    record["voltage_follows"] = float(npu.voltage_follows_clock)


def _fill_level_sheets(row: ArchRow, soc: Soc) -> None:
    """Fill the data sheet's sizes of memory levels; the area of a shared level counts for one device."""
    counted = set()
    for name, npu in soc.array_devices.items():
        record = row[name]
        for k, (level_name, level) in enumerate(outer_levels(npu, soc.levels).items()):
            is_shared = level_name == npu.shared_level
            owner = "" if is_shared else f"{name}."
            sheet = soc.sheet_numbers(f"{owner}levels.{level_name}")
            capacity, banks = sheet["capacity"], sheet["banks"]
            bytes_per_s = sheet["bandwidth"] * banks
            record["sheet_level_word"][k] = max(1.0, bytes_per_s / banks / record["sheet_vpu_clock_hz"])
            record["sheet_level_banks"][k] = banks
            record["level_rated_bytes"][k] = capacity if level.energy_at is None else level.energy_at
            record["level_counts"][k] = float(not is_shared or level_name not in counted)
            if level.area is not None:
                record["level_stated_m2"][k], record["level_stated_bytes"][k] = level.area, capacity
            counted |= {level_name} if is_shared else set()


def _fill_array_memories(row: ArchRow, soc: Soc) -> None:
    """Fill what the memories of MAC arrays take beyond those of the data sheet."""
    law = law_column(sram_laws().area.single_port)
    for name, npu in soc.array_devices.items():
        if (array := npu.dpu.array) is None:
            continue
        for level, memory in array.levels.items():
            sizes = (memory.sizes, soc.sheet_numbers(f"{name}.array.{level}"))
            own_m2, sheet_m2 = (sram_law(law, *own.values()) if own["capacity"] else 0.0 for own in sizes)
            row[name]["array_law_m2"] += array.instances(level) * (own_m2 - sheet_m2)


def _fill_technology(record: Any, technology: Technology) -> None:
    process, laws, shares = process_named(technology.node), sram_laws(), parts()
    record["threshold_voltage"], record["clock_exponent"] = process.threshold, process.alpha
    record["least_voltage"] = process.least_voltage
    for share in architecture.PART_COLUMNS:
        record[share] = getattr(shares, share)
    for column in ("read", "write"):
        record[f"{column}_law"] = law_column(getattr(laws, f"{column}_energy").single_port)
    record["area_law"] = law_column(laws.area.single_port)
    fill_at(record, architecture.TECHNOLOGY_COLUMNS, technology)
    energy, area = technology.mac_energy, technology.mac_area
    for form in MAC_FORMATS:
        record[f"tech_mac_j_{form}"], record[f"mac_m2_{form}"] = energy.get(form, 0.0), area.get(form, 0.0)
