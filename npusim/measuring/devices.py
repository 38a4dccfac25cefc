"""OpenVINO devices: selection, compile settings, and a description without private data.

Only the properties listed here are read, so that no serial number, name or identifier of a machine is kept.
"""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

from npusim.config.reading import read_yaml
from npusim.errors import ConfigError, NpusimError
from npusim.frontends.openvino_ir import openvino
from npusim.locate import resource
from npusim.measuring.document import Device

DEVICES = ("NPU", "GPU", "CPU")
"""Classes of device, as OpenVINO writes them."""

_REMEDIES = {
    "NPU": "install the NPU driver (Linux: intel/linux-npu-driver; Windows: Intel NPU Driver) and see that "
    "you may use the device",
    "GPU": "install Intel's GPU driver with its OpenCL runtime",
}


_TILES, _THREADS = "NPU_TILES", "INFERENCE_NUM_THREADS"


class DeviceMissingError(NpusimError):
    """A device that OpenVINO does not find."""

    def __init__(self, wanted: str, found: tuple[str, ...]) -> None:
        self.wanted, self.found = wanted, found
        remedy = _REMEDIES.get(kind_of(wanted).upper())
        super().__init__(
            f"OpenVINO finds no device {wanted} here. Devices found: {'; '.join(found) or 'none'}"
            + (f". For {kind_of(wanted).upper()}: {remedy}" if remedy else "")
        )


def load_openvino() -> Any:
    """Return the module openvino, or say how to install it."""
    return openvino("devices are measured with it")


def kind_of(device: str) -> Literal["npu", "gpu", "cpu"]:
    """Return the class of a device: gpu for GPU.1."""
    return cast('Literal["npu", "gpu", "cpu"]', device.partition(".")[0].lower())


def find_device(core: Any, wanted: str) -> str:
    """Return OpenVINO's name of a device: NPU, GPU or CPU in any case, or one of several, such as GPU.1.

    Raises
    ------
    DeviceMissingError
        Where the device is missing; the message lists the available ones.
    """
    available, name = [str(device) for device in core.available_devices], wanted.upper()
    exact = [device for device in available if device in (name, f"{name}.0")]
    of_class = [device for device in available if device.partition(".")[0] == name and name in DEVICES]
    if not exact and not of_class:
        raise DeviceMissingError(name, devices_found(core))
    return (exact or of_class)[0]


def devices_found(core: Any) -> tuple[str, ...]:
    """Return the devices that OpenVINO finds, each with its full name."""
    return tuple(f"{name} ({core.get_property(name, 'FULL_DEVICE_NAME')})" for name in core.available_devices)


@dataclass(frozen=True)
class Setting:
    """Compile settings of all networks of a measurement.

    The format is always set: a CPU with bf16 computes an fp32 model in bf16 by default.
    """

    device: str
    precision: str
    tiles: int | None  # tiles of an NPU; None: the compiler's choice
    supported: frozenset[str]  # properties that the device accepts
    one_thread: bool = False

    @classmethod
    def of(
        cls, core: Any, device: str, precision: str | None, tiles: int | None, one_thread: bool = False
    ) -> Setting:
        """Return the setting for a device; default precision: f32 on a CPU, f16 elsewhere.

        Raises
        ------
        ConfigError
            For tiles on a device without tiles, or one thread on a device that is no CPU.
        """
        supported = frozenset(core.get_property(device, "SUPPORTED_PROPERTIES"))
        if tiles is not None and _TILES not in supported:
            allowed = f"tiles of an NPU; {device} has none that can be chosen"
            raise ConfigError(f"`{tiles}`", file="--tiles", allowed=allowed)
        if one_thread and kind_of(device) != "cpu":
            allowed = "with --device CPU: no other device works in processor time"
            raise ConfigError(f"device {device}", file="--processor-time", allowed=allowed)
        chosen = precision or ("f32" if kind_of(device) == "cpu" else "f16")
        return cls(device, chosen, tiles, supported, one_thread)

    @property
    def kind(self) -> str:
        """Class of device: npu, gpu, cpu."""
        return kind_of(self.device)

    def properties(self, hint: str, requests: int | None, profiling: bool) -> dict[str, str]:
        """Return OpenVINO's properties for a compilation; `requests` None leaves them to the device."""
        properties = {"PERFORMANCE_HINT": hint.upper(), "PERF_COUNT": "YES" if profiling else "NO"}
        if "INFERENCE_PRECISION_HINT" in self.supported:
            properties["INFERENCE_PRECISION_HINT"] = self.precision
        if requests is not None and "PERFORMANCE_HINT_NUM_REQUESTS" in self.supported:
            properties["PERFORMANCE_HINT_NUM_REQUESTS"] = str(requests)
        if self.tiles is not None:
            properties[_TILES] = str(self.tiles)
        if self.one_thread:
            properties[_THREADS] = "1"
        return properties


_PROPERTIES = read_yaml(resource("configs", "importers", "openvino.yaml")).data


_MHZ = 1e6


def properties_of(owner: Any, device: str = "") -> dict[str, Any]:
    """Return the available properties of a device or a compiled network."""
    place = (device,) if device else ()
    supported = set(owner.get_property(*place, "SUPPORTED_PROPERTIES"))
    values = {}
    for name in chain(*(_PROPERTIES[group] for group in ("counts", "settings", "facts", "drivers"))):
        if name in supported:
            with suppress(Exception):  # a driver may list a property and then refuse it
                values[name] = owner.get_property(*place, name)
    return values


def written(value: Any) -> str:
    """Return a property's value as OpenVINO writes it in its own files: f32, PERFORMANCE, YES."""
    if hasattr(value, "to_string"):
        return str(value.to_string())
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, list | tuple | set | frozenset):
        return " ".join(sorted(map(str, value)))
    return str(getattr(value, "name", value))


def describe(core: Any, device: str, compiled: Any, root: Path = Path("/")) -> Device:
    """Return the description of a device and of its settings for a compiled network."""
    facts = properties_of(core, device)
    facts |= properties_of(compiled)
    kind = kind_of(device)
    counts = {"cpu": "INFERENCE_NUM_THREADS", "gpu": "GPU_EXECUTION_UNITS_COUNT"}
    settings = {
        name: written(facts[name])
        for name in (*_PROPERTIES["settings"], *_PROPERTIES["facts"])
        if name in facts
    }
    cores = _count(facts.get(counts.get(kind, "")))
    return Device(
        kind=kind,
        name=str(facts.get("FULL_DEVICE_NAME") or "unknown").strip(),
        driver=next((str(facts[name]) for name in _PROPERTIES["drivers"] if name in facts), None),
        openvino="-".join(str(load_openvino().get_version()).split("-")[:2]),
        os=platform.system() or None,
        cores=cores,
        tiles=_count(facts.get("NPU_MAX_TILES")) if kind == "npu" else None,
        clock_hz=highest_clock_hz(kind, root),
        cache_bytes=cache_bytes(cores or 1, root) if kind == "cpu" else (),
        turbo=written(facts["NPU_TURBO"]).upper() in ("YES", "TRUE") if "NPU_TURBO" in facts else None,
        settings={name: text for name, text in settings.items() if text},
    )


def processor_name(root: Path = Path("/")) -> str:
    """Return the processor's commercial name, or "unknown"."""
    names = _in_cpuinfo("model name", root)
    return names[0].strip() if names else platform.processor() or "unknown"


def _in_cpuinfo(key: str, root: Path) -> list[str]:
    """Return the values of a key of Linux's /proc/cpuinfo, one per processor."""
    with suppress(OSError):
        text = (root / "proc" / "cpuinfo").read_text()
        return re.findall(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return []


def highest_clock_hz(kind: str, root: Path = Path("/")) -> float | None:
    """Return the highest clock of a class of device (Hz); None where it is unknown."""
    clocks = []
    for pattern, unit_hz in _PROPERTIES["clocks"][kind].items():
        for file in root.glob(pattern):
            with suppress(OSError, ValueError):
                clocks.append(float(file.read_text()) * unit_hz)
    if kind == "cpu" and not any(clock > 0 for clock in clocks):
        # The present clock of the fastest core is all that a virtual machine shows.
        for text in _in_cpuinfo("cpu MHz", root):
            with suppress(ValueError):
                clocks.append(float(text) * _MHZ)
    return max((clock for clock in clocks if clock > 0), default=None)


def cache_bytes(cores: int, root: Path = Path("/")) -> tuple[int, ...]:
    """Return the data caches of a number of cores, the nearest first (B); empty where they are unknown.

    A shared cache counts once for its cores.
    """
    levels: dict[int, int] = {}
    for place in (root / "sys" / "devices" / "system" / "cpu" / "cpu0" / "cache").glob("index*"):
        with suppress(OSError, ValueError):
            level, kind, size, shared = (
                (place / name).read_text().strip() for name in ("level", "type", "size", "shared_cpu_list")
            )
            if kind != "Instruction" and size.endswith("K"):
                levels[int(level)] = int(size[:-1]) * 1024 * -(-cores // _listed(shared))
    return tuple(levels[level] for level in sorted(levels))


def _listed(cpus: str) -> int:
    """Return the number of processors in a list such as 0-3,8."""
    ends = [part.partition("-") for part in cpus.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _count(value: Any) -> int | None:
    try:
        return int(value) if int(value) > 0 else None
    except (TypeError, ValueError):
        return None
