"""The document of a placement: where each group of operators runs, what others would cost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Part
from npusim.studies.document_head import RunConditions, UnderStack


class DeviceCost(Part):
    """A group of operators on one device, by itself."""

    latency_s: float | None
    """Time, in s; null where the device cannot run it."""
    energy_j: float | None
    """Dynamic energy, in J; null where the device cannot run it."""
    measured: bool = False
    """Whether the time is from a profile, not from the model."""


class PlacedGroup(Part):
    """Operators that run as one, and where."""

    name: str
    """Main operator."""
    region: str
    """Part of the network it belongs to."""
    block: str = ""
    """Block of the network that it belongs to."""
    device: str
    """Device that runs it."""
    costs: dict[str, DeviceCost]
    """What it costs on each device."""


class Alone(Part):
    """The whole network on one device."""

    device: str
    """The device."""
    latency_s: float | None
    """Time of an inference, in s; null where the device cannot run all of it."""
    throughput_per_s: float | None
    """Inferences per second; null where the device cannot run all of it."""
    energy_j: float | None
    """Energy of an inference, in J; null where the device cannot run all of it."""


class Cut(Part):
    """The network cut in two at one place of its order of execution."""

    after: str
    """Last operator of the first part."""
    first: str
    """Device of the first part."""
    rest: str
    """Device of the second part."""
    latency_s: float | None
    """Time of an inference, in s; null where a device cannot run its part."""
    throughput_per_s: float | None
    """Inferences per second."""
    energy_j: float | None
    """Energy of an inference, in J."""
    transfer_bytes: float
    """Bytes that cross from one device to the other."""


class Profiled(Part):
    """Measured times of operators that the placement rests on."""

    device: str
    """Device that was measured."""
    chip: str
    """Its name."""
    row: str
    """Row of the measurement."""
    groups: int
    """Groups whose time on this device is measured."""
    used_s: float
    """Measured time of these groups, in s."""
    unused_s: float
    """Measured time of what is no operator of the network, in s: not counted."""


class Placement(RunConditions, UnderStack):
    """The best placement of a network over the devices of a SoC; SI units throughout."""

    schema_: Literal["npusim.map/1"] = Field("npusim.map/1", alias="schema")
    minimise: Literal["latency", "energy"]
    """What the placement minimises; latency with several in flight: the time between two inferences."""
    devices: list[str]
    """Devices to choose from."""
    granularity: Literal["operator", "layer", "block"] = "operator"
    """What is placed as one: operators that run as one, those of one module, or of one block."""
    units: int = 0
    """Number of these."""
    kinds: dict[str, str] = Field(default_factory=dict)
    """Kind of each device: npu, cpu, gpu, accelerator."""
    method: str
    """How the placement was found, and on what it is exact."""
    exact: bool
    """Whether the costs allow nothing better in this order of execution."""
    value: float
    """By the costs alone, the value of the placement found: s between two inferences, or J of one."""
    bound: float
    """Lower bound of `value` by the costs; the engine may end up below, as it plans SRAM again."""
    latency_s: float
    """Time of an inference, in s, as `npusim estimate` has it."""
    throughput_per_s: float
    """Inferences per second."""
    energy_j: float
    """Energy of an inference, in J."""
    dram_bytes: float
    """Bytes moved to and from DRAM."""
    transfer_bytes: float
    """Bytes that pass from one device to another."""
    switches: int
    """How often work passes to another device."""
    groups: list[PlacedGroup]
    """Where everything runs, in the order in which it was costed; views cost nothing and are left out."""
    alone: list[Alone]
    """Each device by itself."""
    cuts: list[Cut]
    """Every cut in two, by the costs: for each pair of devices and each place."""
    profiles: list[Profiled] = Field(default_factory=list)
    """Measured times that replace the model's; with any, all figures follow from the costs alone."""
