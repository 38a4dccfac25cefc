"""Power, energy and area: what a data sheet states, at which clock and voltage, and the process node.

A gated device draws idle power. Leakage beyond it is proportional to the voltage, and dynamic power to the
clock and the square of the voltage. A sheet states their sum at a rated point: its own clock and voltage,
unless `rated_at` states others. A setting of the clock leaves the rated point unchanged. Energies of the
process node hold at its nominal voltage.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from npusim import units
from npusim.arch.silicon import mac_costs
from npusim.config import Section
from npusim.ops.formats import FormatName

RATED_HERE = "absent: the clock and voltage of the sheet"
"""Source of a rated point that the sheet does not state."""


class SharePerHint(Section):
    """A share by OpenVINO's performance hint."""

    latency: units.PositiveFraction
    """With `--hint latency`."""
    throughput: units.PositiveFraction
    """With `--hint throughput`."""


class RatedPoint(Section):
    """Clock and voltage at which the powers of a data sheet hold."""

    clock: units.Frequency
    """Clock; of an NPU, that of DSPs, SRAM and DMA."""
    voltage: units.Voltage
    """Supply voltage."""


class RatedCores(RatedPoint):
    """Clock and voltage of CPU or GPU cores at which the powers of a data sheet hold."""

    sustained_clock_share: SharePerHint | None = None
    """Share of the clock that is sustained at that power, by performance hint. None: all."""


class DevicePower(Section):
    """Power of a device by activity."""

    idle: units.Power
    """Power of the powered device without work."""
    busy: units.Power
    """Power at full use, including idle power and the memory traffic that it causes."""
    leakage_share: units.Fraction = units.Quantity(0.0, source="absent")
    """Share of leakage in the power beyond idle: it is proportional to the voltage alone."""
    waiting_share: units.Fraction = units.Quantity(1.0, source="absent")
    """Share of the dynamic power while cores wait for memory or calls."""
    rated_at: RatedCores = Field(default=None)  # type: ignore[assignment]  # a validator fills it
    """Clock and voltage of `busy`. Absent: those of the data sheet."""


class NpuPower(Section):
    """Power that does not depend on the work; the technology has the energy of work."""

    idle: units.Power
    """Power of the gated NPU, including leakage."""
    active: units.Power
    """Power of fabric, controller and clock tree during an inference, without leakage."""
    rated_at: RatedPoint = Field(default=None)  # type: ignore[assignment]  # a validator fills it
    """Clock and voltage of `active`. Absent: those of the data sheet."""


class HeatPart(Section):
    """A part of a machine that takes up heat and passes it on."""

    resistance: units.HeatResistance
    """Resistance to what it passes its heat to."""
    capacity: units.HeatCapacity
    """Heat that warms it by a kelvin."""
    most_rise: units.TemperatureRise
    """Highest temperature, above that of the room."""


class Thermal(Section):
    """Heat of a package: from the die, with its heat sink, to the skin, and from the skin to the room."""

    die: HeatPart
    """Die with its heat sink."""
    skin: HeatPart
    """What hands touch."""


class Package(Section):
    """Limits of the whole package, in power as HWINFO and RAPL read it, and in heat."""

    power_limit: units.Power
    """Mean power that the package sustains (Intel's PL1)."""
    burst_limit: units.Power = units.Quantity(1e6, "W", source="absent")
    """Highest power of a burst (Intel's PL2)."""
    averaging_time: units.PositiveDuration = units.Quantity(28.0, "s", source="Intel's usual tau")
    """Time constant of the running mean that `power_limit` holds for (Intel's tau)."""
    thermal: Thermal | None = None
    """Heat. None: it limits nothing."""
    throttle: bool = False
    """Whether an inference is stretched until its mean power is within `power_limit`."""


def rated_power(power: Any, clock: Any, voltage: Any, share: Any = None) -> Any:
    """Return the data of a power with a rated point; default: clock, voltage and sustained share."""
    if not isinstance(power, Mapping) or power.get("rated_at") is not None:
        return power
    point = rated_point(clock, voltage)
    if point is not None and share is not None:
        point["sustained_clock_share"] = share
    return power if point is None else {**power, "rated_at": point}


def rated_point(clock: Any, voltage: Any) -> dict[str, Any] | None:
    """Return the clock and voltage of a data sheet as a rated point; None if one is missing."""
    if clock is None or voltage is None:
        return None
    numbers = {"clock": clock, "voltage": voltage}
    values = {k: n.get("value") if isinstance(n, Mapping) else n for k, n in numbers.items()}
    return {key: {"value": value, "source": RATED_HERE} for key, value in values.items()}


def keep_rated_points(data: Any, base: Any) -> None:
    """Write the rated points of a SoC, `base`, into the data of its file: settings of clocks leave them."""
    powers = [(data["devices"][name]["power"], device.power) for name, device in base.devices.items()]
    for raw, section in [*powers, (data["dram"], base.dram)]:
        if section.rated_at is not None:
            raw.setdefault("rated_at", section.rated_at.model_dump(mode="json"))


_USUAL_RISE = units.Quantity(40.0, "K", source="absent: a die at work")


class EnergyCosts(Section):
    """Energy per event at the nominal voltage."""

    mac: dict[FormatName, units.EnergyPerMac]
    """A multiply-accumulate of a convolution with register files and control, by format."""
    sram: units.EnergyPerByte
    """A byte read from, or written to, the SRAM of a tile."""
    dram: units.EnergyPerByte
    """A byte read from, or written to, DRAM: device, interface and controller."""
    dsp_op: units.EnergyPerOp = units.Quantity(0.0, "J/op", source="absent")
    """An operation of a lane of a DSP with instruction fetch; a SoC with DSPs needs it."""


class AreaCosts(Section):
    """Area of the building blocks of an NPU."""

    mac: dict[FormatName, units.AreaPerMac]
    """Hardware for a multiply-accumulate per cycle, by format; the areas of formats add up."""
    sram: units.AreaPerByte
    """SRAM macros with periphery."""
    dsp: units.Area
    """One DSP with its local memory, at the lanes of the data sheet."""
    dma_engine: units.Area
    """One DMA engine, at the width of the data sheet."""
    fixed: units.Area
    """Control processor, fabric and interface of an NPU."""


class Technology(Section):
    """A process node."""

    node: str
    """Name of the process node; `configs/technology/processes.yaml` has the nodes that are known."""
    nominal_voltage: units.Voltage
    """Voltage at which the energies and the leakage hold."""
    energy: EnergyCosts
    """Energy per event."""
    leakage: units.PowerPerArea
    """Leakage of the NPU per area, at the nominal voltage, while it works."""
    leakage_rise: units.DieRise = _USUAL_RISE
    """Temperature of the die above the room at which that leakage holds."""
    rise: units.DieRise = _USUAL_RISE
    """Temperature of the die above the room while it works."""
    area: AreaCosts
    """Area per building block."""

    @property
    def mac_energy(self) -> Mapping[str, float]:
        """Energy of a multiply-accumulate by format (J), also of formats that are not stated."""
        return mac_costs(tuple(self.energy.mac.items()), "energy")

    @property
    def mac_area(self) -> Mapping[str, float]:
        """Area for a multiply-accumulate per cycle by format (m2), also of formats that are not stated."""
        return mac_costs(tuple(self.area.mac.items()), "area")
