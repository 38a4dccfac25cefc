"""The documents of placements: the best one, and those that are Pareto-optimal in latency and energy."""

from typing import Literal

from pydantic import Field

from npusim.documents import Part
from npusim.engines.document_head import DramBytes, Energy, Latency, PackageEnergy, RunConditions, UnderStack
from npusim.engines.estimate import Divided
from npusim.mapping import Granularity


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


class _Figures(Part):
    latency_s: float | None
    """Time of an inference, in s; null where a device cannot run its part."""
    throughput_per_s: float | None
    """Inferences per second; null where a device cannot run its part."""
    energy_j: float | None
    """Energy of an inference, in J; null where a device cannot run its part."""


class _Whole(Part):
    device: str
    """The device."""


class _Parts(Part):
    after: str
    """Last operator of the first part."""
    first: str
    """Device of the first part."""
    rest: str
    """Device of the second part."""


class Alone(_Figures, _Whole):
    """The whole network on one device."""


class Cut(_Figures, _Parts):
    """The network cut in two at one place of its order of execution."""

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
    energy_j: Energy
    dram_bytes: DramBytes
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
    divided: Divided | None = None
    """The network over several devices of a kind; null unless requested."""


class PlacedChain(Part):
    """One placement of all blocks."""

    mapping: str
    """A letter a block, in order; of a Vision GNN stem, graphers, FFNs and head, separated by `/`."""
    latency_s: Latency
    energy_j: PackageEnergy
    power_w: float
    """Mean power of the package, in W."""
    transitions: int
    """How often work passes to another device."""
    shares: dict[str, float]
    """Share of the blocks that each device runs."""
    operating_points: dict[str, str]
    """Operating point of each device that has been set."""


class AloneOn(_Whole):
    """All blocks on one device."""

    latency_s: Latency
    energy_j: PackageEnergy


class MapFront(UnderStack):
    """Every placement of a chain of blocks that no other beats in latency and energy."""

    MAIN_TABLE = "points"

    schema_: Literal["npusim.map-front/1"] = Field("npusim.map-front/1", alias="schema")
    devices: dict[str, str]
    """Letter of each device in mappings."""
    blocks: list[str]
    """Blocks, in order of execution."""
    placements: float
    """Placements that there are: devices to the power of blocks, times settings of operating points."""
    settings: int
    """Settings of operating points tried; 1: those of the data sheet."""
    limits: dict[str, float]
    """Limits that all placements keep, by name, in SI units."""
    alone: list[AloneOn]
    """All blocks on one device, at the operating points of the data sheet."""
    points: list[PlacedChain]
    """The front, by rising latency."""
    granularity: Granularity = "block"
    """What a letter stands for: a block, a layer or an operator."""
    method: Literal["exact", "nsga2", "random"] = "exact"
    """How placements were found."""
    evaluations: int | None = None
    """Placements that were costed; null where the front is exact."""
    hypervolume_share: float | None = None
    """Area that a searched front dominates over that of the exact front; null where there is no such pair."""
    chosen: int
    """Point of the front with the least product of energy and latency, relative to the best device alone."""
    exponents: tuple[float, float]
    """Exponents of energy and latency in that product (MaGNAS, Eq. 13)."""
    given: PlacedChain | None
    """The placement asked for, at the operating points of the data sheet; null where none was."""
    given_points: list[PlacedChain] = Field(default_factory=list)
    """The placement asked for at every setting of operating points that was tried."""
    given_chosen: int | None = None
    """Point of `given_points` with the least product (MaGNAS, Eq. 14); null where there are none."""
