"""Power of devices and package: what a data sheet rates, and at which clock and voltage it holds.

Idle power is what a gated device draws. Beyond it leakage goes with the voltage, and dynamic power with the
square of the voltage and with the clock. A sheet gives their sum at a rated point: the clock and voltage that
it states itself, unless `rated_at` says another one. A setting of the clock leaves the rated point alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from npusim.config import Section
from npusim.units import Fraction, Frequency, PositiveFraction, Power, Quantity, Voltage

RATED_HERE = "absent: the clock and voltage of the sheet"
"""Source of a rated point that nobody stated."""


class SharePerHint(Section):
    """A share by OpenVINO's performance hint."""

    latency: PositiveFraction
    """With `--hint latency`."""
    throughput: PositiveFraction
    """With `--hint throughput`."""


class RatedPoint(Section):
    """Clock and voltage at which the powers of a data sheet hold."""

    clock: Frequency
    """Clock: of an NPU that of DSPs, SRAM and DMA."""
    voltage: Voltage
    """Supply voltage."""


class RatedCores(RatedPoint):
    """Clock and voltage of cores at which the powers of a data sheet hold."""

    sustained_clock_share: SharePerHint | None = None
    """Share of the clock that is sustained at that power, by performance hint. None: all."""


class DevicePower(Section):
    """Power a device draws by what it does."""

    idle: Power
    """Power drawn while the device is powered and has nothing to do."""
    busy: Power
    """Power drawn at full use, idle power and the memory traffic it causes included."""
    leakage_share: Fraction = Quantity(0.0, source="absent")
    """Part of the power beyond idle that leaks while the device works: it goes with the voltage alone."""
    waiting_share: Fraction = Quantity(1.0, source="absent")
    """Part of the dynamic power that is drawn while cores wait, for memory or to be called; 1: all of it."""
    rated_at: RatedCores = Field(default=None)  # type: ignore[assignment]  # a validator fills it
    """Clock and voltage at which `busy` holds. Absent: those of the data sheet."""


class NpuPower(Section):
    """Power that does not depend on the work done; the work itself is priced by the technology."""

    idle: Power
    """Power drawn while the NPU has nothing to do and is gated, what still leaks included."""
    active: Power
    """Power of fabric, controller and clock tree while it works on an inference; leakage comes on top."""
    rated_at: RatedPoint = Field(default=None)  # type: ignore[assignment]  # a validator fills it
    """Clock and voltage at which `active` holds. Absent: those of the data sheet."""


class Package(Section):
    """Power limit of the whole package: of what HWINFO and RAPL read."""

    power_limit: Power
    """Mean power that the package sustains."""
    throttle: bool = False
    """Whether an inference is stretched until its mean power is within `power_limit`."""


def rated_power(power: Any, clock: Any, voltage: Any, share: Any = None) -> Any:
    """Return the data of a power, rated at the clock and voltage given if nothing else is said.

    Parameters
    ----------
    share : optional
        Share of the clock that is sustained, by performance hint.
    """
    if not isinstance(power, Mapping) or power.get("rated_at") is not None:
        return power
    point = rated_point(clock, voltage)
    if point is not None and share is not None:
        point["sustained_clock_share"] = share
    return power if point is None else {**power, "rated_at": point}


def rated_point(clock: Any, voltage: Any) -> dict[str, Any] | None:
    """Return the clock and voltage that a data sheet states as a rated point; None where one is missing."""
    if clock is None or voltage is None:
        return None
    return {"clock": _stated(clock), "voltage": _stated(voltage)}


def _stated(number: Any) -> dict[str, Any]:
    """Return a number of a data sheet as the number of a rated point."""
    value = number.get("value") if isinstance(number, Mapping) else number
    return {"value": value, "source": RATED_HERE}


def keep_rated_points(data: Any, base: Any) -> None:
    """Write the rated points of a SoC into its file's data, so that settings of clocks leave them.

    Parameters
    ----------
    base : Soc
        The file's data alone, validated.
    """
    held = [(data["devices"][name]["power"], device.power) for name, device in base.devices.items()]
    for raw, section in [*held, (data["dram"], base.dram)]:
        if section.rated_at is not None:
            raw.setdefault("rated_at", section.rated_at.model_dump(mode="json"))
