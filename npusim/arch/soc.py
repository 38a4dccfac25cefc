"""The SoC: the devices on one chip, the DRAM they share and the silicon they are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator

from npusim.arch.accelerator import Accelerator
from npusim.arch.calibration import Calibration
from npusim.arch.device import Cpu, DeviceName, Gpu, RooflineDevice
from npusim.arch.dram import Dram
from npusim.arch.dsp import library_generation, library_generations
from npusim.arch.fallback import refuse_wrong_fallbacks
from npusim.arch.levels import LevelName, OuterLevel
from npusim.arch.npu import ALL_TILES, Npu
from npusim.arch.operating_points import known_point, refuse_unknown_points, set_operating_point
from npusim.arch.power import Package, keep_rated_points
from npusim.arch.shared_levels import refuse_wrong_levels
from npusim.arch.technology import Technology
from npusim.config import SET_BY_STUDY, SET_BY_YOU, Override, Section, one_line
from npusim.errors import ConfigError, UnknownNameError, nearest, shown
from npusim.units import Informative, refuse

Device = Annotated[Npu | Cpu | Gpu | Accelerator, Field(discriminator="kind")]
"""Any device, told apart by its `kind`."""

_LONGEST_PATTERN = 200
_DeviceT = TypeVar("_DeviceT", Npu, Cpu, Gpu, Accelerator)


class Soc(Section):
    """A system on a chip, as one data sheet."""

    schema_name: Literal["npusim.soc/1"] = Field(alias="schema")
    """Version of this file format: npusim.soc/1."""
    extends: Annotated[Annotated[str, Field(min_length=1)] | None, Informative("read with the file")] = None
    """Data sheet that this one starts from: a shipped name, or a YAML file by its path from this one. What
    this file leaves out stands there; name and title are its own."""
    name: Annotated[str, Field(min_length=1), AfterValidator(one_line)]
    """Short name, as in `--soc NAME`."""
    title: str
    """Commercial name."""
    chips: dict[Literal["npu", "cpu", "gpu"], list[str]] = Field(default_factory=dict)
    """Regular expressions, by class of device, for the names that drivers give to its own chips, such as
    `Ultra [579] 1[0-9]{2}H`: a measurement of another chip is not taken for one of this SoC. A class without
    entry stands for any chip of that class."""
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
    """Device that runs what nobody placed. None: the first NPU, or else the first CPU, or else the first GPU.
    """
    operating_points: dict[DeviceName, dict[DeviceName, str]] = Field(default_factory=dict)
    """Operating points of several devices, and of `dram`, by one name; `operating_point=NAME` sets all."""
    package: Package | None = None
    """Power limit of the package. None: no limit is known."""
    calibration: Calibration | None = None
    """How the numbers were fitted to measurements; nothing where they were not."""

    @model_validator(mode="after")
    def _chips_are_expressions(self) -> Soc:
        for kind, patterns in self.chips.items():
            for pattern in patterns:
                if len(pattern) > _LONGEST_PATTERN:
                    refuse(shown(pattern), f"at most {_LONGEST_PATTERN} characters", at=f"chips.{kind}")
                try:
                    re.compile(pattern)
                except (re.error, RecursionError, OverflowError) as error:
                    refuse(shown(pattern), f"a regular expression ({error})", at=f"chips.{kind}")
        return self

    @model_validator(mode="after")
    def _device_names_are_free(self) -> Soc:
        taken = {"schema", "operating_point", *type(self).model_fields}
        for name in self.devices:
            if name in taken:
                refuse(
                    f"a device named `{name}`",
                    f"a name that is none of {', '.join(sorted(taken))}",
                    at="devices",
                )
        return self

    @model_validator(mode="after")
    def _an_npu_needs_its_silicon(self) -> Soc:
        if self.array_devices and self.technology is None:
            refuse("nothing", "the process node of the NPU", at="technology")
        return self

    @model_validator(mode="after")
    def _no_bandwidth_beats_the_memory(self) -> Soc:
        peak = self.dram.peak_bandwidth
        used = {"dram.bandwidth": self.dram.bandwidth}
        for name, device in self.devices.items():
            if isinstance(device, RooflineDevice):
                used[f"devices.{name}.dram_bandwidth"] = device.dram_bandwidth
        for path, bandwidth in used.items():
            # A study may ask for a memory that is not there.
            if peak is not None and bandwidth > peak and bandwidth.source != SET_BY_STUDY:
                refuse(bandwidth.text, f"at most dram.peak_bandwidth, {peak.text}; raise that too", at=path)
        return self

    @model_validator(mode="after")
    def _named_devices_exist(self) -> Soc:
        if self.default_device is not None and self.default_device not in self.devices:
            meant = nearest(self.default_device, self.devices)
            refuse(f"the device `{self.default_device}`", ", ".join(self.devices), meant, at="default_device")
        refuse_wrong_fallbacks({name: device.fallback for name, device in self.devices.items()})
        return self

    @model_validator(mode="after")
    def _shared_levels_exist(self) -> Soc:
        refuse_wrong_levels(self.levels, self.array_devices)
        return self

    @model_validator(mode="after")
    def _operating_points_exist(self) -> Soc:
        refuse_unknown_points(self.operating_points, {**self.devices, "dram": self.dram})
        return self

    @model_validator(mode="after")
    def _the_package_has_room_to_work(self) -> Soc:
        if self.package is not None and self.package.throttle and self.package.power_limit <= self.idle_w:
            refuse(
                self.package.power_limit.text,
                f"more than all devices draw idle, {self.idle_w:.3g} W",
                at="package.power_limit",
            )
        return self

    @property
    def idle_w(self) -> float:
        """Power of the package while everything idles (W)."""
        return self.dram.idle_w + sum(float(device.power.idle) for device in self.devices.values())

    @model_validator(mode="after")
    def _formats_have_their_costs(self) -> Soc:
        if self.technology is None:
            return self
        energy, area = self.technology.energy.mac, self.technology.area.mac
        for name, array in self.array_devices.items():
            has_lanes = not isinstance(array, Accelerator) or array.has_vector_units
            if has_lanes and self.technology.energy.dsp_op.source == "absent":
                refuse("nothing", f"what {name}'s vector units take", at="technology.energy.dsp_op")
        for device in self.devices.values():
            for dtype in device.dpu.macs_per_mpe if isinstance(device, Npu) else ():
                for costs, at in ((energy, "technology.energy.mac"), (area, "technology.area.mac")):
                    if dtype not in costs:
                        known = ", ".join(costs) or "none"
                        refuse(f"{known}", f"every format of dpu.macs_per_mpe; {dtype} is missing", at=at)
        return self

    @property
    def array_devices(self) -> dict[str, Npu]:
        """Devices with a MAC array and memory of its own, by name in the order of the data sheet."""
        return {name: device for name, device in self.devices.items() if isinstance(device, Npu)}

    @property
    def hosts(self) -> dict[str, Cpu | Gpu]:
        """CPUs and GPUs by name, in the order of the data sheet."""
        return {name: device for name, device in self.devices.items() if isinstance(device, Cpu | Gpu)}

    @property
    def main_device(self) -> str:
        """Name of the device that runs what nobody placed."""
        if self.default_device is not None:
            return self.default_device
        found = filter(None, map(self.named, ("npu", "cpu", "gpu")))
        return next(found, next(iter(self.devices)))

    def named(self, wanted: str) -> str | None:
        """Return the name of a device by its name, or by its kind for the first of that; None: none."""
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
        """Tell whether the SoC has a device of a kind: npu, cpu, gpu or accelerator."""
        return any(device.kind == kind for device in self.devices.values())

    def is_chip(self, kind: str, name: str) -> bool:
        """Tell whether a chip, by the name that its driver gives, is one of this SoC's."""
        patterns = next((found for of, found in self.chips.items() if of == kind), None)
        if patterns is None:
            return True
        import pyarrow as pa  # its engine, RE2, never tries twice: a sheet of a stranger cannot keep it busy
        from pyarrow.compute import match_substring_regex

        for pattern in patterns:
            try:
                if match_substring_regex(pa.array([name]), pattern, ignore_case=True)[0].as_py():
                    return True
            except pa.ArrowInvalid as error:
                allowed = "a regular expression of RE2"
                raise ConfigError(
                    f"{shown(pattern)} ({error})", key=f"chips.{kind}", allowed=allowed
                ) from None
        return False

    def device(self, name: str) -> Npu | Cpu | Gpu | Accelerator:
        """Return a device by its name.

        Raises
        ------
        UnknownNameError
            Where there is none of that name.
        """
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
        """Return a path as users write it: a device's begins with its name."""
        return path[1:] if path[0] == "devices" and len(path) > 1 else path

    @classmethod
    def prepare(cls, data: Any, overrides: list[Override], base: Any) -> tuple[list[Override], Any]:
        """Return operating points first; write changed DSP kernels of the library into `data` and model.

        Where `tiles` is set and `tiles_for` is not, that of the file no longer holds: all tiles are used.
        """
        paths = [_full_path(override.path, base) for override in overrides]
        keep_rated_points(data, base)
        told = {path[:2] for path in paths if path[2:3] == ("tiles_for",)}
        model = base
        for path in paths:
            if path[2:] in _TILES and path[:2] not in told and isinstance(base.devices.get(path[1]), Npu):
                _forget_tiles_for(data["devices"][path[1]], path[2])
            npu = base.devices.get(path[1]) if len(path) > 4 and path[2:4] == ("dsp", "kernels") else None
            if isinstance(npu, Npu) and path[4] in library_generations(npu.dsp.library):
                kernels = data["devices"][path[1]]["dsp"]["kernels"]
                found = library_generation(npu.dsp.library, path[4])
                kernels.setdefault(
                    path[4], found.model_dump(mode="json", exclude={"schema_name"}, exclude_unset=True)
                )
                model = cls.model_validate(data)
        return sorted(overrides, key=lambda one: "operating_points" not in one.path), model

    @classmethod
    def expand_override(cls, override: Override, base: Any, data: Any) -> Sequence[Override]:
        """Return what a setting stands for: a device's path in full, a point as clocks and voltage."""
        path = _full_path(override.path, base)
        if path == ("operating_point",):
            points = known_point(override, data.get("operating_points") or {}, base.name)
            found = []
            for device, point in points.items():
                section = ("dram",) if device == "dram" else ("devices", device)
                found += set_operating_point(override.at((), point), section, data)
            return found
        if path[-1] == "operating_point" and (
            path[:-1] == ("dram",) or path[1:-1] in [(d,) for d in base.devices]
        ):
            return set_operating_point(override, path[:-1], data)
        return [override.at(path, override.value)]


def _full_path(path: tuple[str, ...], base: Any) -> tuple[str, ...]:
    return ("devices", *path) if path[0] in base.devices else path


_TILES = (("tiles",), ("contexts",))
"""Paths that `tiles_for` follows where nobody says otherwise."""


def _forget_tiles_for(npu: dict[str, Any], changed: str) -> None:
    """Leave out how many tiles are used, where that was said of other tiles or followed from them."""
    numbers = (npu.get("tiles_for") or {}).values()
    sources = {number.get("source") for number in numbers if isinstance(number, Mapping)}
    if sources <= {ALL_TILES} if changed == "contexts" else not sources & {SET_BY_YOU, SET_BY_STUDY}:
        npu.pop("tiles_for", None)
