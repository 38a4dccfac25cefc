"""The SoC: the devices on one chip, the memory that they share, and the silicon that they are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator

from npusim.arch.array import OUTER_LEVELS, LevelName, OuterLevel
from npusim.arch.device import Cpu, DeviceName, Gpu, refuse_circle
from npusim.arch.dsp import library_generation, library_generations
from npusim.arch.npu import ALL_TILES, Accelerator, Npu
from npusim.arch.silicon import (
    Package,
    RatedPoint,
    Technology,
    keep_rated_points,
    parts,
    process_named,
    rated_point,
)
from npusim.config import SET_BY_STUDY, SET_BY_YOU, Override, Section, one_line
from npusim.errors import ConfigError, UnknownNameError, nearest, shown
from npusim.units import (
    Bandwidth,
    Bytes,
    Duration,
    Frequency,
    Informative,
    Power,
    Voltage,
    format_quantity,
    refuse,
    require,
)


class DramPower(Section):
    """Power of main memory without that of moved bytes, which the technology counts."""

    idle: Power
    """Power without traffic (refresh, clock), proportional to the clock and the square of the voltage."""


class DramPoint(Section):
    """A clock and voltage of main memory."""

    clock: Frequency
    """Clock of the interface; all bandwidths are proportional to it."""
    voltage: Voltage
    """Supply voltage; the energy of a byte is proportional to its square."""


class Dram(Section):
    """Main memory with its controller."""

    title: str
    """Type of memory, its rate and width."""
    capacity: Bytes
    """Size of main memory."""
    peak_bandwidth: Bandwidth | None = None
    """Transfer rate times bus width, the limit of every device's bandwidth. None: not known."""
    bandwidth: Bandwidth
    """Bandwidth that the NPU sustains over all its DMA engines, at the rated clock."""
    latency: Duration
    """Time of one dependent read that misses every cache."""
    clock: Frequency | None = None
    """Clock of the interface. None: not known; it cannot be changed."""
    voltage: Voltage | None = None
    """Supply voltage at that clock. None: not known."""
    operating_points: dict[DeviceName, DramPoint] = Field(default_factory=dict)
    """Named pairs of clock and voltage; `dram.operating_point=NAME` sets both."""
    rated_at: RatedPoint | None = None
    """Clock and voltage at which bandwidths, energy of a byte and idle power hold. None: those above."""
    power: DramPower | None = None
    """Power without that of moved bytes. None: none, or counted with the devices."""

    @model_validator(mode="before")
    @classmethod
    def _is_rated_at_its_clock(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("rated_at") is not None:
            return data
        return data | {"rated_at": rated_point(data.get("clock"), data.get("voltage"))}

    @model_validator(mode="after")
    def _clock_and_voltage_go_together(self) -> Dram:
        if (self.clock is None) != (self.voltage is None):
            missing = "clock" if self.clock is None else "voltage"
            refuse("nothing", f"a {missing} too: clock and voltage go together", at=missing)
        if self.operating_points and self.rated_at is None:
            refuse("nothing", "the clock at which the bandwidths hold; operating points need it", at="clock")
        return self

    @property
    def clock_ratio(self) -> float:
        """Clock relative to that at which the bandwidths hold."""
        return 1.0 if self.clock is None or self.rated_at is None else self.clock / self.rated_at.clock

    @property
    def voltage_ratio(self) -> float:
        """Voltage relative to that at which the energy of a byte holds."""
        return 1.0 if self.voltage is None or self.rated_at is None else self.voltage / self.rated_at.voltage

    @property
    def idle_w(self) -> float:
        """Power without traffic at the clock and voltage (W)."""
        rated_w = 0.0 if self.power is None else float(self.power.idle)
        return rated_w * self.clock_ratio * self.voltage_ratio**2


OTHER_OPERATORS = "other"
"""Key of `model_error` for operators that were not measured."""

_Share = Annotated[float, Field(ge=0.0, lt=100.0)]
_Correlation = Annotated[float, Field(ge=-1.0, le=1.0)]


class Calibration(Section):
    """How a data sheet was fitted to measurements; written by `npusim calibrate`."""

    device: Literal["npu", "cpu", "gpu"]
    """Class of device that was measured."""
    chip: str
    """Name of the chip that was measured."""
    date: str
    """Day of the measurement; "unknown" where it did not say."""
    rows: Annotated[int, Field(ge=1)]
    """Rows of the fit."""
    noise: _Share
    """Relative standard deviation of a row's median."""
    model_error: dict[str, _Share]
    """Relative standard deviation of operator times in held-out rows; `other`: not measured operators."""
    parameters: list[str] = Field(default_factory=list)
    """Paths of the numbers whose errors are correlated."""
    correlation: list[list[_Correlation]] = Field(default_factory=list)
    """Correlation of the errors of their logarithms: a row per parameter, up to its own column."""

    @model_validator(mode="after")
    def _is_a_triangle(self) -> Calibration:
        for i, row in enumerate(self.correlation):
            if len(row) != i + 1 or row[-1] != 1.0:
                allowed = f"{i + 1} numbers, the last of them 1"
                refuse(f"row {i + 1} of {len(row)} numbers", allowed, at="correlation")
        if len(self.correlation) != len(self.parameters):
            allowed = f"{len(self.parameters)}, a row a parameter"
            refuse(f"{len(self.correlation)} rows", allowed, at="correlation")
        if OTHER_OPERATORS not in self.model_error:
            refuse("no `other`", "a share for operators that were not measured", at="model_error")
        return self


SHEET_PATHS = (
    *("voltage", "dpu.clock", "vpu_clock", "sram.per_tile", "sram.reserved", "sram.word", "sram.read_ports"),
    *("dsp.lanes.fp16", "dma.width", "tiles", "dpu.grid.vpe", "dpu.grid.mpe", "dpu.grid.stages"),
)
"""Numbers of an array device at which energies and areas hold."""

Device = Annotated[Npu | Cpu | Gpu | Accelerator, Field(discriminator="kind")]

_LONGEST_PATTERN = 200
_SURE = 1.1  # clocks of the Intel NPUs lie within 10 % of the law
_DeviceT = TypeVar("_DeviceT", Npu, Cpu, Gpu, Accelerator)


class Soc(Section):
    """A system on a chip, as one data sheet."""

    schema_name: Literal["npusim.soc/1"] = Field(alias="schema")
    """Version of this file format: npusim.soc/1."""
    extends: Annotated[Annotated[str, Field(min_length=1)] | None, Informative("read with the file")] = None
    """Data sheet (name or YAML file) that states what this file leaves out, except name and title."""
    name: Annotated[str, Field(min_length=1), AfterValidator(one_line)]
    """Short name, as in `--soc NAME`."""
    title: str
    """Commercial name."""
    chips: dict[Literal["npu", "cpu", "gpu"], list[str]] = Field(default_factory=dict)
    """Regular expressions for names of chips that drivers report, by class of device. Absent class: any."""
    sources: dict[str, str]
    """References behind the short keys, such as [VPUNN], that the `source` of a number uses."""
    dram: Dram
    """Main memory."""
    technology: Technology | None = None
    """Process node; a SoC with an NPU needs it."""
    levels: dict[LevelName, OuterLevel] = Field(default_factory=dict)
    """Memory levels that several devices may use: those that name one as their `shared_level`."""
    devices: dict[DeviceName, Device] = Field(min_length=1)
    """Devices by name; paths of settings begin with that name: `npu.sram.per_tile`."""
    default_device: DeviceName | None = None
    """Device that runs operators without a placement. None: the first NPU, else the first CPU or GPU."""
    operating_points: dict[DeviceName, dict[DeviceName, str]] = Field(default_factory=dict)
    """Operating points of several devices, and of `dram`, by one name; `operating_point=NAME` sets all."""
    package: Package | None = None
    """Power limit of the package. None: no limit is known."""
    calibration: Calibration | None = None
    """How the numbers were fitted to measurements. None: they were not."""
    sheet: Annotated[dict[str, dict[str, float]], Informative("settings keep the file's numbers")] = Field(
        default_factory=dict
    )
    """Numbers of the file (SI units, by section) at which energies and areas hold. Absent: present ones."""

    def with_copies(self, copies: Mapping[str, str]) -> Soc:
        """Return the machine with further devices, by name, each like one that it has.

        Raises
        ------
        UnknownNameError, ConfigError
            For a device that it lacks, or a name that is taken.
        """
        for name, like in copies.items():
            if like not in self.devices:
                raise UnknownNameError("device", like, self.devices)
            if name in self.devices:
                raise ConfigError(f"a second device `{name}`", file=self.name, allowed="another name")
        further = {name: self.devices[like] for name, like in copies.items()}
        return self.model_copy(update={"devices": {**self.devices, **further}}) if further else self

    @model_validator(mode="after")
    def _is_consistent(self) -> Soc:
        self._check_chips()
        reserved = {"schema", "operating_point", *type(self).model_fields}
        name = next((name for name in self.devices if name in reserved), None)
        if name is not None:
            allowed = f"a name that is none of {', '.join(sorted(reserved))}"
            refuse(f"a device named `{name}`", allowed, at="devices")
        if self.array_devices and self.technology is None:
            refuse("nothing", "the process node of the NPU", at="technology")
        self._check_bandwidths()
        if self.default_device is not None:
            require(self.default_device, self.devices, "device", at="default_device")
        _refuse_wrong_fallbacks({name: device.fallback for name, device in self.devices.items()})
        _refuse_wrong_levels(self.levels, self.array_devices)
        _refuse_unknown_points(self.operating_points, {**self.devices, "dram": self.dram})
        if self.package is not None and self.package.throttle and self.package.power_limit <= self.idle_w:
            allowed = f"more than all devices draw idle, {self.idle_w:.3g} W"
            refuse(self.package.power_limit.text, allowed, at="package.power_limit")
        if self.technology is not None:
            self._check_costs(self.technology)
            self._check_clocks(self.technology)
        if self.sheet == self._numbers():
            self.sheet.clear()  # no setting changed any of them
        return self

    def _check_chips(self) -> None:
        for kind, patterns in self.chips.items():
            for pattern in patterns:
                if len(pattern) > _LONGEST_PATTERN:
                    refuse(shown(pattern), f"at most {_LONGEST_PATTERN} characters", at=f"chips.{kind}")
                try:
                    re.compile(pattern)
                except (re.error, RecursionError, OverflowError) as error:
                    refuse(shown(pattern), f"a regular expression ({error})", at=f"chips.{kind}")

    def _check_bandwidths(self) -> None:
        peak = self.dram.peak_bandwidth
        used = {"dram.bandwidth": self.dram.bandwidth}
        used |= {f"devices.{name}.dram_bandwidth": host.dram_bandwidth for name, host in self.hosts.items()}
        for path, bandwidth in used.items():
            # A study may assume a faster memory.
            if peak is not None and bandwidth > peak and bandwidth.source != SET_BY_STUDY:
                refuse(bandwidth.text, f"at most dram.peak_bandwidth, {peak.text}; raise that too", at=path)

    @property
    def idle_w(self) -> float:
        """Power of the package while all devices are idle (W)."""
        return self.dram.idle_w + sum(float(device.power.idle) for device in self.devices.values())

    def _check_costs(self, technology: Technology) -> None:
        for name, array in self.array_devices.items():
            if array.has_vector_units and technology.energy.dsp_op.source == "absent":
                refuse("nothing", f"what {name}'s vector units take", at="technology.energy.dsp_op")
        dtypes = [dtype for array in self.array_devices.values() for dtype in array.dpu.macs_per_mpe]
        known = (
            ("energy", technology.energy, technology.mac_energy),
            ("area", technology.area, technology.mac_area),
        )
        for part, stated, costs in known:
            missing = next((dtype for dtype in dtypes if dtype not in costs), None)
            if missing is not None:
                allowed = f"every format of dpu.macs_per_mpe; {missing} is missing"
                refuse(", ".join(stated.mac) or "none", allowed, at=f"technology.{part}.mac")

    def sheet_numbers(self, section: str) -> dict[str, float]:
        """Return the numbers at which energies and areas hold, in SI units.

        Parameters
        ----------
        section : str
            An array device, `dram`, or a memory level by its path, such as "levels.l2".
        """
        return self.sheet[section] if self.sheet else self._numbers()[section]

    def _numbers(self) -> dict[str, dict[str, float]]:
        """Return the present numbers that energies and areas depend on, by section."""
        levels = {f"levels.{level}": memory for level, memory in self.levels.items()}
        for name, array in self.array_devices.items():
            levels |= {f"{name}.levels.{level}": memory for level, memory in array.levels.items()}
        sizes = ("capacity", "bandwidth", "banks")
        numbers = {path: {key: float(getattr(level, key)) for key in sizes} for path, level in levels.items()}
        numbers["dram"] = {"bandwidth": float(self.dram.bandwidth)}
        for name, array in self.array_devices.items():
            for level, memory in array.dpu.array_levels.items():
                numbers[f"{name}.array.{level}"] = memory.sizes
            numbers[name] = {path: float(attrgetter(path)(array)) for path in SHEET_PATHS}
        return numbers

    def highest_clocks(self, name: str) -> dict[str, float]:
        """Return the clocks (Hz) of an array device at the highest voltage of the process, by path."""
        return {} if self.technology is None else self._clocks_at(name, self.technology, None)

    def _clocks_at(self, name: str, technology: Technology, voltage: float | None) -> dict[str, float]:
        """Return the clocks (Hz) that a voltage supports, by path; None: the highest of process and sheet."""
        sheet, process, speed = self.sheet_numbers(name), process_named(technology.node), parts().stage_speed
        highest = max(float(process.highest_voltage), sheet["voltage"])
        ratio = process.clock_ratio(highest if voltage is None else voltage, sheet["voltage"])
        stages = speed(float(self.array_devices[name].dpu.grid.stages)) / speed(sheet["dpu.grid.stages"])
        return {"dpu.clock": sheet["dpu.clock"] * ratio * stages, "vpu_clock": sheet["vpu_clock"] * ratio}

    def _check_clocks(self, technology: Technology) -> None:
        """Refuse a setting of a clock, or of a voltage, that the process does not support."""
        process = process_named(technology.node)
        for name, array in self.array_devices.items() if self.sheet else ():
            key, clocks = f"devices.{name}", {"dpu.clock": array.dpu.clock, "vpu_clock": array.vpu_clock}
            highest_v = f"{process.highest_voltage.text} in {process.name}"
            for path, highest_hz in self.highest_clocks(name).items():
                if clocks[path] > highest_hz:
                    highest = format_quantity(highest_hz // 1e6 * 1e6, "Hz")
                    refuse(clocks[path].text, f"at most {highest}, at {highest_v}", at=f"{key}.{path}")
            sheet_v = self.sheet_numbers(name)["voltage"]
            points = [(at.dpu_clock, at.vpu_clock, at.voltage) for at in array.operating_points.values()]
            if array.voltage == sheet_v or (array.dpu.clock, array.vpu_clock, array.voltage) in points:
                continue
            if array.voltage > max(process.highest_voltage, sheet_v):
                refuse(array.voltage.text, f"at most {highest_v}", at=f"{key}.voltage")
            for path, hz in self._clocks_at(name, technology, float(array.voltage)).items():
                if clocks[path] > _SURE * hz:
                    allowed = f"enough for {path}, {clocks[path].text}"
                    refuse(array.voltage.text, allowed, at=f"{key}.voltage")

    @property
    def array_devices(self) -> dict[str, Npu]:
        """Devices with a MAC array and its own memory by name, in the order of the data sheet."""
        return {name: device for name, device in self.devices.items() if isinstance(device, Npu)}

    @property
    def hosts(self) -> dict[str, Cpu | Gpu]:
        """CPUs and GPUs by name, in the order of the data sheet."""
        return {name: device for name, device in self.devices.items() if isinstance(device, Cpu | Gpu)}

    @property
    def main_device(self) -> str:
        """Name of the device that runs operators without a placement."""
        if self.default_device is not None:
            return self.default_device
        names = filter(None, map(self.named, ("npu", "cpu", "gpu")))
        return next(names, next(iter(self.devices)))

    def named(self, wanted: str) -> str | None:
        """Return the name of a device by its name or kind (the first of that kind); None if there is none."""
        if wanted in self.devices:
            return wanted
        return next((name for name, device in self.devices.items() if device.kind == wanted), None)

    @property
    def npu(self) -> Npu:
        """The first NPU; raises an `UnknownNameError` where the SoC has none."""
        return self._first(Npu, "NPU")

    @property
    def cpu(self) -> Cpu:
        """The first CPU; raises an `UnknownNameError` where the SoC has none."""
        return self._first(Cpu, "CPU")

    @property
    def gpu(self) -> Gpu:
        """The first GPU; raises an `UnknownNameError` where the SoC has none."""
        return self._first(Gpu, "GPU")

    def has(self, kind: str) -> bool:
        """Return whether the SoC has a device of a kind: npu, cpu, gpu or accelerator."""
        return any(device.kind == kind for device in self.devices.values())

    def is_chip(self, kind: str, name: str) -> bool:
        """Return whether a chip, by the name that its driver gives, belongs to this SoC."""
        patterns = next((patterns for of, patterns in self.chips.items() if of == kind), None)
        if patterns is None:
            return True
        import pyarrow as pa  # its engine, RE2, runs in linear time, whatever the pattern
        from pyarrow.compute import match_substring_regex

        for pattern in patterns:
            try:
                if match_substring_regex(pa.array([name]), pattern, ignore_case=True)[0].as_py():
                    return True
            except pa.ArrowInvalid as error:
                problem, allowed = f"{shown(pattern)} ({error})", "a regular expression of RE2"
                raise ConfigError(problem, key=f"chips.{kind}", allowed=allowed) from None
        return False

    def device(self, name: str) -> Npu | Cpu | Gpu | Accelerator:
        """Return a device by its name; an `UnknownNameError` lists the names."""
        if name not in self.devices:
            raise UnknownNameError(f"device of {self.name}", name, self.devices)
        return self.devices[name]

    def _first(self, kind: type[_DeviceT], word: str) -> _DeviceT:
        for device in self.devices.values():
            if isinstance(device, kind):
                return device
        raise UnknownNameError(f"device of {self.name}", word, self.devices, "choose a SoC that has one")

    @classmethod
    def short_path(cls, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path as users write it: that of a device begins with its name."""
        return path[1:] if path[0] == "devices" and len(path) > 1 else path

    @classmethod
    def prepare(cls, data: Any, overrides: list[Override], base: Any) -> tuple[list[Override], Any]:
        """Return operating points first; write rated points and changed DSP kernels into `data`.

        A setting of `tiles` without `tiles_for` replaces that of the file: all tiles are used.
        """
        paths = [_full_path(override.path, base) for override in overrides]
        keep_rated_points(data, base)
        data["sheet"] = base.sheet or base._numbers()
        for path, override in zip(paths, overrides, strict=True):
            is_study = override.source == SET_BY_STUDY
            for name in base.array_devices:
                own = path[:2] == ("devices", name) and path[2:] in (("operating_point",), ("voltage",))
                if path == ("operating_point",) or (own and not (is_study and path[-1] == "voltage")):
                    data["devices"][name]["voltage_follows_clock"] = False
        with_tiles_for = {path[:2] for path in paths if path[2:3] == ("tiles_for",)}
        model = base
        for path in paths:
            npu = base.devices.get(path[1]) if len(path) > 2 else None
            if not isinstance(npu, Npu):
                continue
            if path[2:] in _TILES and path[:2] not in with_tiles_for:
                _forget_tiles_for(data["devices"][path[1]], path[2])
            of_kernel = len(path) > 4 and path[2:4] == ("dsp", "kernels")
            if of_kernel and path[4] in library_generations(npu.dsp.library):
                kernels = data["devices"][path[1]]["dsp"]["kernels"]
                generation = library_generation(npu.dsp.library, path[4])
                dumped = generation.model_dump(mode="json", exclude={"schema_name"}, exclude_unset=True)
                kernels.setdefault(path[4], dumped)
                model = cls.model_validate(data)
        return sorted(overrides, key=lambda override: "operating_points" not in override.path), model

    @classmethod
    def expand_override(cls, override: Override, base: Any, data: Any) -> Sequence[Override]:
        """Return a setting with its full path; an operating point becomes clocks and voltage."""
        path = _full_path(override.path, base)
        if path == ("operating_point",):
            points = _known_point(override, data.get("operating_points") or {}, base.name)
            settings = []
            for device, point in points.items():
                section = ("dram",) if device == "dram" else ("devices", device)
                settings += _set_operating_point(override.at((), point), section, data)
            return settings
        sections = [("dram",), *(("devices", name) for name in base.devices)]
        if path[-1] == "operating_point" and path[:-1] in sections:
            return _set_operating_point(override, path[:-1], data)
        return [override.at(path, override.value)]


def _full_path(path: tuple[str, ...], base: Any) -> tuple[str, ...]:
    return ("devices", *path) if path[0] in base.devices else path


_TILES = (("tiles",), ("contexts",))  # settings that change `tiles_for` unless it is set too


def _forget_tiles_for(npu: dict[str, Any], changed: str) -> None:
    """Remove `tiles_for` if it is about other tiles or follows from them."""
    numbers = (npu.get("tiles_for") or {}).values()
    sources = {number.get("source") for number in numbers if isinstance(number, Mapping)}
    if sources <= {ALL_TILES} if changed == "contexts" else not sources & {SET_BY_YOU, SET_BY_STUDY}:
        npu.pop("tiles_for", None)


def outer_levels(device: Npu, shared: Mapping[str, OuterLevel]) -> dict[str, OuterLevel]:
    """Return the levels of a device, the nearest first; the level that it shares is the outermost."""
    levels = dict(device.levels)
    if device.shared_level is not None:
        levels[device.shared_level] = shared[device.shared_level]
    return levels


def _refuse_wrong_levels(shared: Mapping[str, OuterLevel], devices: Mapping[str, Npu]) -> None:
    """Refuse a shared level that does not exist, that no device reads, or that is one too many."""
    for name, device in devices.items():
        wanted, at = device.shared_level, f"devices.{name}.shared_level"
        if wanted is None:
            continue
        if wanted not in shared:
            known = ", ".join(shared) or "none: the SoC has no `levels`"
            refuse(f"the level `{wanted}`", known, nearest(wanted, shared), at=at)
        if wanted in device.levels:
            refuse(f"`{wanted}`, a level of its own, too", "another name for one of them", at=at)
        if len(device.levels) >= OUTER_LEVELS:
            refuse(f"{len(device.levels) + 1} levels", f"at most {OUTER_LEVELS}, this one included", at=at)
    read = {device.shared_level for device in devices.values()}
    for name in shared:
        if name not in read:
            able = f"of {', '.join(devices)}" if devices else "no NPU or accelerator is there"
            allowed = f"one that a device names as its `shared_level` ({able})"
            refuse("a level that nobody reads", allowed, at=f"levels.{name}")


def _refuse_wrong_fallbacks(fallbacks: Mapping[str, str | None]) -> None:
    """Refuse a fallback that is no device, or fallbacks that form a cycle."""
    for name, wanted in fallbacks.items():
        at = f"devices.{name}.fallback"
        if wanted is not None:
            require(wanted, fallbacks, "device", at)
        if wanted == name:
            others = ", ".join(other for other in fallbacks if other != name) or "no fallback"
            refuse(f"`{wanted}`, the device itself", f"another device: {others}", at=at)
    for name in fallbacks:
        refuse_circle(name, fallbacks, f"devices.{name}.fallback")


def _refuse_unknown_points(points: Mapping[str, Mapping[str, str]], sections: Mapping[str, Any]) -> None:
    """Refuse a named setting of operating points (by device, or DRAM) that some device lacks."""
    for name, chosen in points.items():
        for device, point in chosen.items():
            at = f"operating_points.{name}.{device}"
            require(device, sections, "device", at)
            known = sections[device].operating_points
            if point not in known:
                has = ", ".join(known) or f"none: {device} has no operating points"
                refuse(f"the operating point `{point}`, which {device} lacks", has, nearest(point, known), at)


def _known_point(override: Override, points: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return what the operating point that an override names sets."""
    if override.value not in points:
        found, meant = f"the unknown operating point `{override.value}`", nearest(str(override.value), points)
        allowed = ", ".join(points) or f"none: {owner} has no operating points"
        raise ConfigError(found, file=override.origin, allowed=allowed, suggestion=meant)
    return dict(points[override.value])


def _set_operating_point(override: Override, path: tuple[str, ...], data: Any) -> list[Override]:
    """Return the settings of an operating point of the device, or DRAM, at `path`."""
    section = data[path[0]] if len(path) == 1 else data[path[0]][path[1]]
    owner = "DRAM" if path == ("dram",) else "the device"
    point = _known_point(override, section.get("operating_points") or {}, owner)
    # An NPU has two clocks; every other device has one. A point may state the cores that work, too.
    places = {"dpu_clock": ("dpu", "clock"), "cores": ("cores_for", "latency")}
    settings = [
        override.at((*path, *places.get(name, (name,))), value)
        for name, value in point.items()
        if value is not None
    ]
    if section.get("sustained_clock_share") is not None:
        settings.append(override.at((*path, "sustained_clock_share"), None))
    return settings
