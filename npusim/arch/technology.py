"""A process node: energy per event, leakage, and area per building block of an NPU.

All energies hold at the nominal voltage; dynamic energy goes with the square of the voltage.
"""

from npusim.arch.device import GridFormat
from npusim.config import Section
from npusim.units import (
    Area,
    AreaPerByte,
    AreaPerMac,
    EnergyPerByte,
    EnergyPerMac,
    EnergyPerOp,
    PowerPerArea,
    Quantity,
    Voltage,
)


class EnergyCosts(Section):
    """Energy per event at the nominal voltage."""

    mac: dict[GridFormat, EnergyPerMac]
    """One multiply-accumulate of a convolution, register files and control included, by format."""
    sram: EnergyPerByte
    """One byte read from, or written to, a tile's SRAM."""
    dram: EnergyPerByte
    """One byte read from, or written to, DRAM: device, interface and controller."""
    dsp_op: EnergyPerOp = Quantity(0.0, "J/op", source="absent")
    """One operation of one lane of a DSP, instruction fetch included; a SoC with such units needs it."""


class AreaCosts(Section):
    """Area of the building blocks of an NPU."""

    mac: dict[GridFormat, AreaPerMac]
    """Hardware for one multiply-accumulate a cycle, by format; the areas of two formats add up."""
    sram: AreaPerByte
    """SRAM macros, periphery included."""
    dsp: Area
    """One DSP with its local memory."""
    dma_engine: Area
    """One DMA engine."""
    fixed: Area
    """What an NPU has once: control processor, fabric, interface."""


class Technology(Section):
    """A process node, as far as the model needs it."""

    node: str
    """Name of the process node."""
    nominal_voltage: Voltage
    """Voltage at which the energies and the leakage hold."""
    energy: EnergyCosts
    """Energy per event."""
    leakage: PowerPerArea
    """Leakage of the NPU per area, at the nominal voltage, while it works."""
    area: AreaCosts
    """Area per building block."""
