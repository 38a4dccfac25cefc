"""Silicon: costs of memories and other parts by size, and clocks by voltage (`configs/technology`).

A data sheet states energies and areas at its own sizes, clock and voltage. The laws here say how these change
away from there (`npusim.cost.machine.silicon`), so an unmodified sheet keeps its numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from math import exp, log
from typing import Annotated, Literal, TypeVar

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
