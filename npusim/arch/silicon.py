"""Silicon: costs of memories and other parts by size, and clocks by voltage (`configs/technology`).

A data sheet states energies and areas at its own sizes, clock and voltage. The laws here say how these change
away from there (`npusim.cost.machine.silicon`), so an unmodified sheet keeps its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from math import exp, log
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from npusim import units
from npusim.config import Section, load_model
from npusim.locate import resource
from npusim.ops.formats import FORMATS, FormatName

MOST_TERMS = 24
"""Most terms of a law."""
Term = Annotated[list[float], Field(min_length=4, max_length=4)]
"""Factor, then the exponents of capacity (B), of the word (B) and of the banks."""


class SramLaw(Section):
    """One quantity of an SRAM: a sum of terms, factor x capacity^a x word^b x banks^c, times a scale.

    No factor and no exponent of capacity or word is negative: a larger capacity or word never costs less.
    """

    single_port: list[Term] = Field(max_length=MOST_TERMS)
    """Terms of arrays with one shared port."""
    dual_port: list[Term] = Field(max_length=MOST_TERMS)
    """Terms of arrays with a read and a write port."""
    scale: dict[str, float]
    """Scale by process node and cell, such as "22 lop"."""


class SramLaws(Section):
    """Laws of plain SRAM arrays, in SI units (area in m2), fitted to rows of CACTI."""

    schema_name: Literal["npusim.sram/1"] = Field(alias="schema")
    """Version of this file format: npusim.sram/1."""
    source: str
    """Where the laws come from, and their error."""
    read_energy: SramLaw
    """Energy to read a word (J)."""
    write_energy: SramLaw
    """Energy to write a word (J)."""
    area: SramLaw
    """Area of all banks (m2)."""
    leakage: SramLaw
    """Leakage of all banks (W)."""
    access_time: SramLaw
    """Time of an access (s)."""


class Process(Section):
    """A process node."""

    name: str
    """Name of the node."""
    match: str
    """Regular expression for `technology.node` of a data sheet."""
    bit_cell: units.Area
    """Area of a high-density SRAM cell of six transistors."""
    logic_density: units.Ratio
    """Million transistors per mm2 of standard cells."""
    threshold: units.Voltage
    """Threshold of the alpha-power law: the clock is proportional to (V - threshold)^alpha / V."""
    alpha: units.Ratio
    """Exponent of that law."""
    least_voltage: units.Voltage
    """Lowest supply voltage."""
    highest_voltage: units.Voltage
    """Highest supply voltage."""

    def clock_ratio(self, voltage: float, rated_voltage: float) -> float:
        """Return the clock at a voltage over that at the rated one."""
        here, rated = (max(0.0, v - self.threshold) ** self.alpha / v for v in (voltage, rated_voltage))
        return float(here / rated)


class Processes(Section):
    """The process nodes."""

    schema_name: Literal["npusim.processes/1"] = Field(alias="schema")
    """Version of this file format: npusim.processes/1."""
    sources: dict[str, str]
    """References behind the short keys."""
    cacti_cell: units.Ratio
    """Area of an SRAM cell in CACTI, in squares of the feature size."""
    processes: list[Process]
    """The nodes; the last one fits every name."""


class Interface(Section):
    """A channel of a DRAM interface on the chip: PHY and controller."""

    name: str
    """Name of the memories."""
    match: str
    """Regular expression for `dram.title` of a data sheet."""
    bandwidth: units.Bandwidth
    """Peak bandwidth of the channel."""
    area: units.Area
    """Area on the chip."""
    power: units.Power
    """Power without traffic."""

    @property
    def m2_s_per_byte(self) -> float:
        """Area per bandwidth (m2 s/B)."""
        return float(self.area / self.bandwidth)

    @property
    def w_s_per_byte(self) -> float:
        """Power without traffic per bandwidth (W s/B)."""
        return float(self.power / self.bandwidth)


class Mac(Section):
    """A multiply-accumulate per cycle, without wires."""

    area: units.Area
    """Multiplier and adder."""
    energy: units.Energy
    """A multiplication and an addition."""
    register_bits: units.Ratio
    """Bits of both operands and of the sum."""


class Parts(Section):
    """Parts of an NPU besides memories."""

    schema_name: Literal["npusim.parts/1"] = Field(alias="schema")
    """Version of this file format: npusim.parts/1."""
    sources: dict[str, str]
    """References behind the short keys."""
    mac_node: str
    """Process node of `macs` and `register_area`."""
    macs: dict[FormatName, Mac]
    """Multiply-accumulates by format."""
    register_area: units.Area
    """A bit of a register."""
    utilisation: units.Fraction
    """Share of a layout that synthesised cells and memories fill; the rest is room for wires."""
    stage_area: units.Ratio
    """Area of a further pipeline stage, over that of a multiply-accumulate with one."""
    stage_energy: units.Ratio
    """Energy of a further stage, over that of a multiply-accumulate with one."""
    stage_delay: units.Fraction
    """Share of registers in the cycle of a multiply-accumulate with one stage; the rest divides by stages."""
    leakage_doubling: units.TemperatureRise
    """Rise of the temperature that doubles the leakage."""
    sequencer_share: units.Fraction
    """Share of an NPU's fixed area, and of its active power, that is proportional to its tiles."""
    fabric_share: units.Fraction
    """Share of both that is proportional to the tiles and to the side of all tiles: wires and repeaters."""
    wire: units.EnergyPerByte
    """Energy to move a byte over a metre, at the nominal voltage."""
    dsp_lane_share: units.Fraction
    """Share of a DSP's area that is proportional to its lanes."""
    dma_width_share: units.Fraction
    """Share of a DMA engine's area that is proportional to its width."""
    interface_share: units.Fraction
    """Share of an NPU's fixed area, and of the idle power, that is proportional to the bandwidth of DRAM."""
    interfaces: list[Interface]
    """DRAM interfaces; the last one fits every title."""

    def stage_speed(self, stages: float) -> float:
        """Return the clock of a multiply-accumulate in several stages over that of one, at equal voltage."""
        return 1.0 / ((1.0 - self.stage_delay) / stages + self.stage_delay)


_Matched = TypeVar("_Matched", Process, Interface)


def _first_match(entries: Sequence[_Matched], text: str) -> _Matched:
    return next(entry for entry in entries if re.search(entry.match, text))


@cache
def sram_laws() -> SramLaws:
    """Return the laws of SRAM arrays."""
    return load_model(resource("configs", "technology", "sram.yaml"), SramLaws)


@cache
def parts() -> Parts:
    """Return the parts besides memories."""
    return load_model(resource("configs", "technology", "parts.yaml"), Parts)


@lru_cache(maxsize=64)
def mac_costs(
    stated: tuple[tuple[str, float], ...], quantity: Literal["area", "energy"]
) -> Mapping[str, float]:
    """Return costs of a multiply-accumulate by format: as stated, others by their ratios to these."""
    bit_m2 = parts().register_area if quantity == "area" else 0.0
    given, macs = dict(stated), parts().macs
    costs = {form: getattr(mac, quantity) + mac.register_bits * bit_m2 for form, mac in macs.items()}
    known = {form: log(costs[form]) for form in given if form in costs}
    for form, cost in costs.items() if known else ():
        kind = FORMATS[form].kind  # one of the same kind where there is any
        nearest = min(known, key=lambda n: (FORMATS[n].kind != kind, abs(known[n] - log(cost))))
        costs[form] = given[nearest] * cost / exp(known[nearest])
    return costs | given if known else given


@cache
def processes() -> Processes:
    """Return the process nodes."""
    return load_model(resource("configs", "technology", "processes.yaml"), Processes)


@cache
def process_named(node: str) -> Process:
    """Return the process of a data sheet's `technology.node`."""
    return _first_match(processes().processes, node)


@cache
def interface_of(title: str) -> Interface:
    """Return the DRAM interface of a data sheet's `dram.title`."""
    return _first_match(parts().interfaces, title)


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
