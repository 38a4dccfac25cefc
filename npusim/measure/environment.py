"""Conditions of a measurement: chip, driver, clock and settings of the device.

Only what is listed here is asked for, so that nothing private (serial numbers, names, identifiers of a
device) is kept.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from npusim.measure.devices import kind_of, load_openvino
from npusim.measure.document import Device

_SETTINGS = (
    "INFERENCE_PRECISION_HINT",
    "EXECUTION_MODE_HINT",
    "ENABLE_CPU_PINNING",
    "ENABLE_HYPER_THREADING",
    "SCHEDULING_CORE_TYPE",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE",
    "CPU_DENORMALS_OPTIMIZATION",
    "NPU_COMPILER_TYPE",
    "NPU_COMPILER_VERSION",
    "NPU_COMPILATION_MODE_PARAMS",
    "NPU_TILES",
    "NPU_TURBO",
)
"""Settings of a compiled network that are read back."""

_FACTS = ("DEVICE_ARCHITECTURE", "OPTIMIZATION_CAPABILITIES")
"""Facts about a device that go into the settings."""

_DRIVERS = ("NPU_DRIVER_VERSION", "GPU_DRIVER_VERSION")

_MHZ, _KHZ = 1e6, 1e3


def properties_of(owner: Any, device: str = "") -> dict[str, Any]:
    """Return the properties that a device or a compiled network tells."""
    place = (device,) if device else ()
    supported = set(owner.get_property(*place, "SUPPORTED_PROPERTIES"))
    wanted = (
        "FULL_DEVICE_NAME", "INFERENCE_NUM_THREADS", "GPU_EXECUTION_UNITS_COUNT", "NPU_MAX_TILES",
        "OPTIMAL_NUMBER_OF_INFER_REQUESTS", *_SETTINGS, *_FACTS, *_DRIVERS,
    )  # fmt: skip
    found = {}
    for name in wanted:
        if name in supported:
            with suppress(Exception):  # a driver may list what it then does not tell
                found[name] = owner.get_property(*place, name)
    return found


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
    """Return what was measured and how it was set.

    Parameters
    ----------
    compiled : openvino.CompiledModel
        One of the networks that were measured.

    Returns
    -------
    Device
        None stands for what neither OpenVINO nor the operating system tells.
    """
    facts = properties_of(core, device)
    facts |= properties_of(compiled)
    kind = kind_of(device)
    counts = {"cpu": "INFERENCE_NUM_THREADS", "gpu": "GPU_EXECUTION_UNITS_COUNT"}
    settings = {name: written(facts[name]) for name in (*_SETTINGS, *_FACTS) if name in facts}
    cores = _count(facts.get(counts.get(kind, "")))
    return Device(
        kind=kind,
        name=str(facts.get("FULL_DEVICE_NAME") or "unknown").strip(),
        driver=next((str(facts[name]) for name in _DRIVERS if name in facts), None),
        openvino=_openvino_version(),
        os=platform.system() or None,
        cores=cores,
        tiles=_count(facts.get("NPU_MAX_TILES")) if kind == "npu" else None,
        clock_hz=highest_clock_hz(kind, root),
        cache_bytes=cache_bytes(cores or 1, root) if kind == "cpu" else (),
        turbo=written(facts["NPU_TURBO"]).upper() in ("YES", "TRUE") if "NPU_TURBO" in facts else None,
        settings={name: text for name, text in settings.items() if text},
    )


def processor_name(root: Path = Path("/")) -> str:
    """Return the processor's commercial name as the operating system tells it, or "unknown"."""
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", (root / "proc" / "cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or "unknown"


def highest_clock_hz(kind: str, root: Path = Path("/")) -> float | None:
    """Return the highest clock of a class of device (Hz); None where the operating system does not tell."""
    sys = root / "sys"
    if kind == "npu":
        driver = sys / "bus" / "pci" / "drivers" / "intel_vpu"
        names = ("npu_max_frequency_mhz", "freq/hw_max_freq")
        return _highest((path for name in names for path in driver.glob(f"*/{name}")), _MHZ)
    if kind == "gpu":
        cards = sys / "class" / "drm"
        return _highest((*cards.glob("card*/gt_RP0_freq_mhz"), *cards.glob("card*/gt_max_freq_mhz")), _MHZ)
    cores = (sys / "devices" / "system" / "cpu").glob("cpu*/cpufreq/cpuinfo_max_freq")
    return _highest(cores, _KHZ) or _clock_now(root / "proc" / "cpuinfo")


def cache_bytes(cores: int, root: Path = Path("/")) -> tuple[int, ...]:
    """Return the data caches of so many cores, the nearest first (B); empty where Linux does not tell.

    A cache that some cores share counts once for these.
    """
    found: dict[int, int] = {}
    for place in (root / "sys" / "devices" / "system" / "cpu" / "cpu0" / "cache").glob("index*"):
        with suppress(OSError, ValueError):
            level, kind, size, shared = (
                (place / name).read_text().strip() for name in ("level", "type", "size", "shared_cpu_list")
            )
            if kind != "Instruction" and size.endswith("K"):
                found[int(level)] = int(size[:-1]) * 1024 * -(-cores // _listed(shared))
    return tuple(found[level] for level in sorted(found))


def _listed(cpus: str) -> int:
    """Return how many processors a list such as 0-3,8 names."""
    ends = [part.partition("-") for part in cpus.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _highest(files: Iterable[Path], unit_hz: float) -> float | None:
    """Return the largest number that stands in any of the files."""
    numbers = []
    for path in files:
        with suppress(OSError, ValueError):
            numbers.append(float(path.read_text()) * unit_hz)
    return max((number for number in numbers if number > 0), default=None)


def _clock_now(cpuinfo: Path) -> float | None:
    """Return the clock of the fastest core at this moment: what a virtual machine shows."""
    with suppress(OSError):
        found = re.findall(r"^cpu MHz\s*:\s*([0-9.]+)$", cpuinfo.read_text(), re.MULTILINE)
        return max((float(text) * _MHZ for text in found if float(text) > 0), default=None)
    return None


def _openvino_version() -> str:
    """Return OpenVINO's version and build, without the name of the branch."""
    return "-".join(str(load_openvino().get_version()).split("-")[:2])


def _count(value: Any) -> int | None:
    try:
        return int(value) if int(value) > 0 else None
    except (TypeError, ValueError):
        return None
