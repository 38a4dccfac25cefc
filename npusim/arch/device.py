"""CPUs and GPUs by their roofline, and what all devices share: names, hints, states, packed weights."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from npusim import units
from npusim.arch.silicon import DevicePower, SharePerHint, rated_power
from npusim.config import SET_BY_STUDY, SET_BY_YOU, Section
from npusim.errors import UnknownNameError, nearest
from npusim.ops import OPERATORS
from npusim.ops.formats import FormatName
from npusim.units import refuse

DtypeName = Literal["fp64", "fp32", "fp16", "bf16", "int16", "int8", "int4"]
"""Formats of products on a CPU or GPU; signed and unsigned integers run alike."""

DeviceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a device: the beginning of its paths in `--set` and design spaces."""


def is_operator(name: str) -> bool:
    """Return whether a data sheet may use a name for an operator type, or for a kernel that runs one.

    Names are types in lower case; a type of another package may have further names.
    """
    if name in {own.lower() for own in OPERATORS.own_names()}:
        return True
    names = ("listed_as", "dsp_kernel")
    return any(
        name in (op.name.lower(), *(getattr(op.execution, key, "") for key in names))
        for op in OPERATORS.values()
    )


def _known_operator(name: str) -> str:
    if not is_operator(name):
        meant = nearest(name, {operator.lower() for operator in OPERATORS})
        refuse(f"the unknown operator type `{name}`", "an operator type in lower case, such as add", meant)
    return name


def _rides_along(name: str) -> str:
    own = [OPERATORS[known] for known in OPERATORS.own_names()]
    # A type of another package is loaded only for a name that is not ours.
    named = [op for op in own if op.name.lower() == name]
    named = named or [op for op in OPERATORS.values() if op.name.lower() == name]
    if named and not named[-1].rides_along:
        known = ", ".join(sorted(op.name.lower() for op in OPERATORS.values() if op.rides_along))
        refuse(f"`{name}`, which no unit applies element by element to another's result", f"some of: {known}")
    return name


OpName = Annotated[str, AfterValidator(_known_operator)]
"""An operator type of the OpenVINO operation sets in lower case: add, relu, fakequantize."""

FusedOpName = Annotated[OpName, AfterValidator(_rides_along)]
"""An operator type that another operator can apply to each element of its result."""

ElementKind = Literal[
    "arithmetic",  # a step or two of a vector unit; comparisons and copies too
    "division",
    "exponential",
    "sigmoid",  # all activations with an exponential
    "logarithm",
    "power",
    "boolean",  # an element of a Boolean input or output
    "softmax",
    "reduction",  # across rows; along a row it is arithmetic
    "pooling",  # a read element of a window
    "relayout",  # elements in another order
    "gather",
    "scatter",
    "scatter_reduce",  # combined by maximum, minimum, product or mean
    "sort",  # a comparison while edges are sorted
    "row_relayout",  # contiguous rows of at least a cache line
    "page",  # a newly allocated page of memory, which the operating system clears
    "narrow_gather",  # of rows of at most 16 elements
    "wide_gather",  # of longer rows, which are copied whole
    "softmax_across",  # along another axis than the last
    "spread",  # an element repeated along the last axis
]

RowKind = Literal["softmax", "reduction", "gather", "aggregate", "reduction_across", "vector"]
"""Kinds of work with a fixed time per row; `aggregate`: a row fetched for a non-zero in compressed rows;
`vector`: a row that a reduction across rows adds; `reduction_across`: a result of one, by default as
`reduction` where a sheet states no `vector`."""

ELEMENT_KINDS: tuple[ElementKind, ...] = get_args(ElementKind)
ROW_KINDS: tuple[RowKind, ...] = get_args(RowKind)
CACHE_LEVELS = 4


SET_SOURCES = frozenset({SET_BY_YOU, SET_BY_STUDY})
"""Sources of numbers that a user or a study set."""


class PerHint(Section):
    """A number by OpenVINO's performance hint."""

    latency: units.PositiveCount
    """With `--hint latency`."""
    throughput: units.PositiveCount
    """With `--hint throughput`."""


def check_at_most(wanted: PerHint, available: units.Count, unit: str, at: str, limit: str) -> None:
    """Refuse a number by hint above that of the chip, unless only the chip's number was set."""
    for hint in PerHint.model_fields:
        number = getattr(wanted, hint)
        if number > available and (available.source not in SET_SOURCES or number.source in SET_SOURCES):
            refuse(f"{number} {unit} of {available}", f"at most {available}, {limit}", at=f"{at}.{hint}")


def refuse_circle(name: str, fallbacks: Mapping[str, str | None], at: str) -> None:
    """Refuse fallbacks, by the name that they replace, that form a cycle from a name on."""
    chain = [name]
    while (wanted := fallbacks.get(chain[-1])) is not None:
        if wanted in chain:
            refuse(" -> ".join([*chain, wanted]), "fallbacks that end", at=at)
        chain.append(wanted)


NETWORK_ERROR = "intervals of whole networks read it"
"""Why no estimate reads `network_error` and `governor`."""
_ROUNDED = 0.01
"""By how much shares of operating points may exceed 1."""


def check_governor(governor: Mapping[str, float], points: Collection[str]) -> None:
    """Refuse shares above 1 together, and operating points that the device lacks."""
    total = sum(map(float, governor.values()))
    if total > 1.0 + _ROUNDED:
        refuse(f"shares of {total:.3g} together", "at most 1 together", at="governor")
    for name in governor:
        if name not in points:
            refuse(f"the unknown operating point `{name}`", ", ".join(points), at=f"governor.{name}")


class DevicePoint(Section):
    """Clock and voltage of a device."""

    clock: units.Frequency
    """Clock that all cores sustain; `sustained_clock_share` does not apply."""
    voltage: units.Voltage
    """Supply voltage at this point."""
    cores: Annotated[units.PositiveCount | None, units.Informative(NETWORK_ERROR)] = None
    """Cores that run a network for latency where the governor chose this point. None: `cores_for`."""


class Cache(Section):
    """One level of a cache hierarchy."""

    size: units.Bytes
    """Capacity for all cores together."""
    bandwidth: units.Bandwidth
    """Sequential read bandwidth of all cores together."""
    latency: units.Duration
    """Time of a dependent read that hits this level."""


class StateHandling(Section):
    """How a runtime treats states, which survive an inference."""

    copied_on_read: bool = False
    """Whether an inference copies each state that it reads."""
    copied_on_write: bool = False
    """Whether a write to a state is a copy."""
    converted: bool = False
    """Whether states are stored in the model file's format and converted; otherwise in the computation's."""


Unpacking = Literal["ahead", "int8", "kernel", "product"]
"""Where packed weights are unpacked: by the compiler, by the compiler to 8 bits with their scales kept, by a
kernel at each inference, or in the product."""


class PlanarLayout(Section):
    """What keeps a network's tensors in floating point by channel, where others have blocks of channels."""

    ops: list[OpName] = Field(min_length=1)
    """Operator types of which one keeps the whole network so."""
    rate: units.PositiveFraction
    """Rate of its products in floating point, relative to blocks of channels."""


class DeviceSheet(Section):
    """What a data sheet says of every device."""

    title: str
    """Commercial name of the part."""
    like: Annotated[DeviceName | None, units.Informative("read with the file")] = None
    """Device of this SoC that this one starts from: it states what is left out here."""
    ops: list[OpName] | None = Field(default=None, min_length=1)
    """Operator types that it runs. None: all."""
    fallback: DeviceName | None = None
    """Device that runs what this one cannot; results pass through DRAM. None: such networks are refused."""
    voltage: units.Voltage
    """Supply voltage at its clocks; dynamic power is proportional to its square, leakage to itself."""
    launch_overhead: units.Duration
    """Fixed time of an inference: runtime, driver, wake-up; of an NPU hidden if several are in flight."""
    dispatch_overhead: units.Duration
    """Fixed time of an operator; of an NPU, of each operator of DSPs or DMA alone, and never hidden."""
    states: StateHandling = StateHandling()
    """How its runtime stores states."""
    packed_weights: dict[FormatName, Unpacking] = Field(default_factory=dict)
    """Where it unpacks weights of a format with scales for floating-point products. Absent: `product`."""
    governor: Annotated[dict[DeviceName, units.Fraction], units.Informative(NETWORK_ERROR)] = Field(
        default_factory=dict
    )
    """Share of machines and runs that are seen at each operating point; the others run as the sheet says."""
    network_error: Annotated[units.Ratio | None, units.Informative(NETWORK_ERROR)] = None
    """Standard deviation of log(measured / predicted) of networks of classes that no fit saw."""


class RooflineDevice(DeviceSheet):
    """A device by its roofline: peak rate, bandwidth and launch cost."""

    cores: units.PositiveCount
    """Cores that share an operator."""
    cores_for: PerHint | None = None
    """Cores that work, by performance hint; at most `cores`. None: all."""
    clock: units.Frequency
    """Clock that all cores sustain; with `sustained_clock_share` their turbo clock."""
    sustained_clock_share: SharePerHint | None = None
    """Share of `clock` that `cores_for` sustain under the power limit, by performance hint. None: all."""
    operating_points: dict[DeviceName, DevicePoint] = Field(default_factory=dict)
    """Named pairs of clock and voltage; `DEVICE.operating_point=NAME` sets both."""
    macs_per_cycle: dict[DtypeName, units.MacsPerCycle]
    """Multiply-accumulates that a core starts in a cycle, by format."""
    dense_efficiency: units.Fraction
    """Share of the peak in matrix products and convolutions of ordinary size."""
    busy_outputs: units.PositiveRatio | None = None
    """Results of a product that occupy a core; smaller products take as long. None: any number."""
    product_lanes: units.PositiveRatio | None = None
    """Columns of a product that a core computes in parallel, rounded up to a multiple. None: not rounded."""
    product_overhead: units.Duration | None = None
    """Fixed time of a product beyond `dispatch_overhead`: reordering, filling, draining. None: none."""
    result_macs: units.Ratio | None = None
    """Time to start and store a result of a product, in multiply-accumulates. None: none."""
    element_cycles: dict[ElementKind, units.CyclesPerElement] = Field(default_factory=dict)
    """Cycles of a core per element, by kind of work. Absent kinds count as related ones, or arithmetic."""
    row_cycles: dict[RowKind, units.Cycles] = Field(default_factory=dict)
    """Further cycles of a core per row, by kind of work. Absent: none."""
    element_rate: units.PositiveRatio | None = None
    """Rate of elements and rows relative to the cycles above, if measured on another core. None: the same."""
    fused_ops: list[FusedOpName] = Field(default_factory=list)
    """Operator types that are fused with the operator whose result they read: no traffic and no dispatch."""
    planar: PlanarLayout | None = None
    """Networks whose runtime does not block channels. None: all networks are alike."""
    in_place_ops: list[Literal["concat"]] = Field(default_factory=list)
    """Operators without a copy if the device computes all operands: producers write to the joined tensor."""
    caches: dict[str, Cache] = Field(default_factory=dict, max_length=CACHE_LEVELS)
    """Cache levels by name, nearest to the core first."""
    write_cost: units.PositiveRatio | None = None
    """Time of a written byte relative to a read one. None: equal."""
    cache_line: units.Bytes | None = None
    """Bytes that an access to a random address fetches. None: without `caches`, single bytes."""
    outstanding_misses: units.PositiveCount
    """Random reads in flight per core; with the latency they give the rate of Gather."""
    scatter_cost: units.PositiveRatio
    """Time of a scattered read-modify-write relative to a gathered read."""
    scatter_columns: units.PositiveRatio | None = None
    """Fewest columns of a scatter per core: cores divide columns, not rows. None: all cores work."""
    dram_bandwidth: units.Bandwidth
    """DRAM bandwidth of this device alone."""
    core_bandwidth: units.Bandwidth | None = None
    """DRAM bandwidth of a core. None: all of `dram_bandwidth`."""
    power: DevicePower
    """Power by activity."""

    @model_validator(mode="before")
    @classmethod
    def _is_rated_at_its_clock(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "power" not in data:
            return data
        clock, voltage, share = (data.get(key) for key in ("clock", "voltage", "sustained_clock_share"))
        return data | {"power": rated_power(data["power"], clock, voltage, share)}

    @model_validator(mode="after")
    def _cores_and_cache_lines_exist(self) -> Self:
        check_governor(self.governor, self.operating_points)
        if self.cores_for is not None:
            check_at_most(self.cores_for, self.cores, "cores", "cores_for", "the device's `cores`")
        if self.caches and not self.cache_line:
            raise ValueError("`caches` without a `cache_line` above 0, the bytes fetched at a time")
        return self

    def cores_used(self, hint: str) -> int:
        """Return the cores that work under a performance hint."""
        wanted = self.cores if self.cores_for is None else getattr(self.cores_for, hint)
        return min(int(wanted), int(self.cores))

    def clock_used(self, hint: str) -> float:
        """Return the clock under a performance hint (Hz)."""
        share = self.sustained_clock_share
        return float(self.clock) * (1.0 if share is None else float(getattr(share, hint)))

    def peak_macs_per_s(self, dtype: str) -> float:
        """Return the multiply-accumulates per second of all cores in a format."""
        for name, rate in self.macs_per_cycle.items():
            if name == dtype:
                return self.cores * rate * self.clock
        raise UnknownNameError(f"MAC format of {self.title}", dtype, self.macs_per_cycle)


class Cpu(RooflineDevice):
    """A multi-core processor, by its roofline."""

    kind: Literal["cpu"]
    """Kind of device: cpu."""


class Gpu(RooflineDevice):
    """A GPU, by its roofline; a core is an Xe core or an SM."""

    kind: Literal["gpu"]
    """Kind of device: gpu."""
