"""Main memory: capacity, bandwidth, clock and power."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from npusim.arch.device import DeviceName
from npusim.arch.power import RatedPoint, rated_point
from npusim.config import Section
from npusim.units import Bandwidth, Bytes, Duration, Frequency, Power, Voltage, refuse


class DramPower(Section):
    """Power of main memory beside that of the bytes that are moved, which the technology prices."""

    idle: Power
    """Power of memory, interface and controller while nothing is moved: refresh and clock. It goes with clock
    and square of the voltage."""


class DramPoint(Section):
    """A clock and voltage that main memory can run at."""

    clock: Frequency
    """Clock of the interface; all bandwidths go with it."""
    voltage: Voltage
    """Supply voltage; the energy of a byte goes with its square."""


class Dram(Section):
    """Main memory with its controller."""

    title: str
    """Type of memory, its rate and width."""
    capacity: Bytes
    """Size of main memory."""
    peak_bandwidth: Bandwidth | None = None
    """Transfer rate times bus width: no device's bandwidth may lie above. None: not known."""
    bandwidth: Bandwidth
    """Bandwidth that the NPU sustains over all its DMA engines, at the rated clock."""
    latency: Duration
    """Time of one dependent read that misses every cache."""
    clock: Frequency | None = None
    """Clock of the interface. None: not known, and not to be changed."""
    voltage: Voltage | None = None
    """Supply voltage at that clock. None: not known."""
    operating_points: dict[DeviceName, DramPoint] = Field(default_factory=dict)
    """Named pairs of clock and voltage; `dram.operating_point=NAME` sets both."""
    rated_at: RatedPoint | None = None
    """Clock and voltage at which bandwidths, energy of a byte and idle power hold. None: those of the data
    sheet."""
    power: DramPower | None = None
    """Power beside that of the bytes that are moved. None: none, or counted with the devices."""

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
        """The clock over the one at which the bandwidths hold."""
        return 1.0 if self.clock is None or self.rated_at is None else self.clock / self.rated_at.clock

    @property
    def voltage_ratio(self) -> float:
        """The voltage over the one at which the energy of a byte holds."""
        return 1.0 if self.voltage is None or self.rated_at is None else self.voltage / self.rated_at.voltage

    @property
    def idle_w(self) -> float:
        """Power while nothing is moved, at the clock and voltage (W)."""
        rated_w = 0.0 if self.power is None else float(self.power.idle)
        return rated_w * self.clock_ratio * self.voltage_ratio**2
