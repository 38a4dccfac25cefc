"""Formats and operating points of devices; CPU, GPU and accelerators by their roofline."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from npusim.arch.power import DevicePower, SharePerHint, rated_power
from npusim.config import SET_BY_STUDY, SET_BY_YOU, Section
from npusim.errors import UnknownNameError, nearest
from npusim.ops import OPERATORS
from npusim.units import (
    Bandwidth,
    Bytes,
    Count,
    Cycles,
    CyclesPerElement,
    Duration,
    Fraction,
    Frequency,
    Informative,
    MacsPerCycle,
    PositiveCount,
    PositiveRatio,
    Ratio,
    Voltage,
    refuse,
)

DtypeName = Literal["fp64", "fp32", "fp16", "bf16", "int16", "int8", "int4"]
"""Formats a CPU or GPU may multiply in; signed and unsigned integers run alike."""

DeviceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a device: it opens the paths of `--set` and of design spaces."""

OpName = Annotated[str, AfterValidator(lambda name: _known_operator(name))]
"""An operator type of the OpenVINO operation sets in lower case: add, relu, fakequantize."""


def is_operator(name: str) -> bool:
    """Tell whether a data sheet may call an operator type, or a kernel that runs one, so.

    Names are types in lower case; a type of another package may bring names of its own.
    """
    own = {one.lower() for one in OPERATORS.own_names()}
    return name in own or any(
        name in (one.name.lower(), *(getattr(one.execution, key, "") for key in ("listed_as", "dsp_kernel")))
        for one in OPERATORS.values()
    )


def _known_operator(name: str) -> str:
    if not is_operator(name):
        meant = nearest(name, {one.lower() for one in OPERATORS})
        refuse(f"the unknown operator type `{name}`", "an operator type in lower case, such as add", meant)
    return name


FusedOpName = Annotated[OpName, AfterValidator(lambda name: _rides_along(name))]
"""An operator type that can be applied to each element of another operator's result on its way out."""


def _rides_along(name: str) -> str:
    named = [one for one in OPERATORS.values() if one.name.lower() == name]
    if named and not named[-1].rides_along:
        known = ", ".join(sorted(one.name.lower() for one in OPERATORS.values() if one.rides_along))
        refuse(f"`{name}`, which no unit applies element by element to another's result", f"some of: {known}")
    return name


ElementKind = Literal[
    "arithmetic", "division", "exponential", "sigmoid", "logarithm", "power", "boolean", "softmax",
    "reduction", "pooling", "relayout", "gather", "scatter", "scatter_reduce", "sort", "row_relayout",
    "page",
]  # fmt: skip
"""Kinds of work on an element: `arithmetic` is all that vector units do in a step or two, comparisons and
copies included; `sigmoid` stands for activations built on an exponential; `boolean` is an element of a
Boolean input or output of the network, whatever is done with it; `reduction` goes across rows, one along a
row is arithmetic; `sort` is a comparison while edges are sorted; `pooling` takes an element of a window;
`relayout` writes elements in another order than it reads them, `row_relayout` rows of a cache line or more in
one piece; `scatter_reduce` is a scatter that combines by maximum, minimum, product or mean; `page` is a page
of memory that a program takes anew, which the operating system clears."""

RowKind = Literal["softmax", "reduction", "gather", "aggregate"]
"""Kinds of work that take a while for each row, however short it is; `aggregate`: a row that is fetched for a
non-zero of a matrix in compressed rows."""

ELEMENT_KINDS: tuple[ElementKind, ...] = get_args(ElementKind)
ROW_KINDS: tuple[RowKind, ...] = get_args(RowKind)
CACHE_LEVELS = 4
"""Most levels that a cache hierarchy may have."""


_SET = frozenset({SET_BY_YOU, SET_BY_STUDY})


class PerHint(Section):
    """A number by OpenVINO's performance hint."""

    latency: PositiveCount
    """With `--hint latency`."""
    throughput: PositiveCount
    """With `--hint throughput`."""


def check_at_most(wanted: PerHint, available: Count, unit: str, at: str, limit: str) -> None:
    """Refuse a number by hint above what the chip has, unless a setting took away from the chip only."""
    for hint in PerHint.model_fields:
        one = getattr(wanted, hint)
        if one > available and (available.source not in _SET or one.source in _SET):
            refuse(f"{one} {unit} of {available}", f"at most {available}, {limit}", at=f"{at}.{hint}")


class DevicePoint(Section):
    """A pair of clock and voltage a device can run at."""

    clock: Frequency
    """Clock that all cores sustain at this point: `sustained_clock_share` does not apply to it."""
    voltage: Voltage
    """Supply voltage at this point."""


class Cache(Section):
    """One level of a cache hierarchy."""

    size: Bytes
    """Capacity that all cores together can use."""
    bandwidth: Bandwidth
    """Bytes per second that all cores together read from it in order."""
    latency: Duration
    """Time of one dependent read that hits this level."""


class StateHandling(Section):
    """What a device's runtime does with states, which networks keep from one inference to the next."""

    copied_on_read: bool = False
    """Whether an inference works on a copy of each state that it reads."""
    copied_on_write: bool = False
    """Whether what is written to a state is copied there."""
    converted: bool = False
    """Whether states keep the format of the model file and are converted where the device computes in
    another; otherwise they are kept in the format it computes in."""


Unpacking = Literal["ahead", "kernel", "product"]
"""Where packed weights become numbers again: `ahead`, by the compiler, which stores and moves them unpacked;
`kernel`, by operators of their own at each inference; `product`, as the product takes them."""


class PackedWeights(Section):
    """Where weights of few bits, with scales, are unpacked for products with floating-point activations."""

    int8: Unpacking = "product"
    """Weights of 8 bits."""
    int4: Unpacking = "product"
    """Weights of 4 bits."""


class RooflineDevice(Section):
    """A device known by its roofline: so much arithmetic, so many bytes, a price for starting an operator."""

    title: str
    """Commercial name of the part."""
    cores: PositiveCount
    """Cores that share one operator."""
    cores_for: PerHint | None = None
    """Cores that work at all, by performance hint; never more than `cores`. None: all."""
    clock: Frequency
    """Clock all cores sustain together; with `sustained_clock_share` the clock that they turbo to."""
    sustained_clock_share: SharePerHint | None = None
    """Share of `clock` that the cores of `cores_for` sustain under the package's power limit, by performance
    hint. None: all."""
    voltage: Voltage
    """Supply voltage at that clock; dynamic power goes with its square, leakage with itself."""
    operating_points: dict[DeviceName, DevicePoint] = Field(default_factory=dict)
    """Named pairs of clock and voltage; `DEVICE.operating_point=NAME` sets both."""
    macs_per_cycle: dict[DtypeName, MacsPerCycle]
    """Multiply-accumulates a core starts in a cycle, by format."""
    dense_efficiency: Fraction
    """Part of the peak that matrix products and convolutions of ordinary size reach."""
    busy_outputs: PositiveRatio | None = None
    """Results of a product that a core needs to be kept busy; a product of fewer takes as long as one of so
    many. None: products of any size keep it busy."""
    product_lanes: PositiveRatio | None = None
    """Columns of a product that a core works out side by side; a product of fewer, or of a few more, takes as
    long as one of the next multiple. None: columns are not rounded up."""
    product_overhead: Duration | None = None
    """Fixed time of a product or convolution beside `dispatch_overhead`: operands are laid out anew for its
    kernel, which fills and drains. None: none."""
    result_macs: Ratio | None = None
    """Multiply-accumulates that starting and storing a result of a product takes the time of. None: none."""
    element_cycles: dict[ElementKind, CyclesPerElement] = Field(default_factory=dict)
    """Cycles of a core for each element, by the kind of work. A kind that is not listed is done as fast as
    arithmetic (`scatter_reduce` as `scatter`, `row_relayout` as `relayout`), and arithmetic that is not
    listed as one multiply-accumulate."""
    row_cycles: dict[RowKind, Cycles] = Field(default_factory=dict)
    """Cycles of a core for each row on top; none where a kind is not listed."""
    element_rate: PositiveRatio | None = None
    """Rate of the work on elements and rows over that of `element_cycles` and `row_cycles`, where those were
    measured on another core. None: the same."""
    like: Annotated[DeviceName | None, Informative("read with the file")] = None
    """Device of this SoC that this one starts from: what is left out here stands there."""
    ops: list[OpName] | None = Field(default=None, min_length=1)
    """Operator types it runs. None: all."""
    fallback: DeviceName | None = None
    """Device that runs what this one cannot: results pass from one to the other through DRAM. None: there is
    none, and a network that needs one is refused."""
    fused_ops: list[FusedOpName] = Field(default_factory=list)
    """Operator types that are done together with the operator whose result they read: what lies between them
    is neither written nor read, and nothing is dispatched again."""
    in_place_ops: list[Literal["concat"]] = Field(default_factory=list)
    """Operators that move nothing where the device itself makes all that is joined: producers write into the
    joined tensor."""
    caches: dict[str, Cache] = Field(default_factory=dict, max_length=CACHE_LEVELS)
    """Cache levels by name, nearest to the core first."""
    write_cost: PositiveRatio | None = None
    """Time of a byte that is written over that of one that is read. None: they take the same."""
    cache_line: Bytes | None = None
    """Bytes fetched at a time from a random address. None: it has no `caches`, and each byte is fetched."""
    outstanding_misses: PositiveCount
    """Random reads that a core keeps in flight; with the latency it gives the rate of Gather."""
    scatter_cost: PositiveRatio
    """Time of a scattered read-modify-write over that of a gathered read."""
    scatter_columns: PositiveRatio | None = None
    """Columns of a scatter that a core takes at least: cores share the columns of the rows, not the rows.
    None: all cores work on any scatter."""
    dram_bandwidth: Bandwidth
    """Bandwidth this device sustains from DRAM when it is alone."""
    core_bandwidth: Bandwidth | None = None
    """Bandwidth that one core sustains from DRAM. None: one core has all of `dram_bandwidth`."""
    states: StateHandling = StateHandling()
    """How it keeps states."""
    packed_weights: PackedWeights = PackedWeights()
    """Where it unpacks weights."""
    launch_overhead: Duration
    """Fixed time of one inference: calling the runtime, waking the device."""
    dispatch_overhead: Duration
    """Fixed time of one operator."""
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
    def _cores_exist(self) -> Self:
        if self.cores_for is not None:
            check_at_most(self.cores_for, self.cores, "cores", "cores_for", "the device's `cores`")
        return self

    @model_validator(mode="after")
    def _caches_have_lines(self) -> Self:
        if self.caches and not self.cache_line:
            raise ValueError("`caches` without a `cache_line` above 0, the bytes fetched at a time")
        return self

    def cores_used(self, hint: str) -> int:
        """Return the cores that work under a performance hint."""
        wanted = self.cores if self.cores_for is None else getattr(self.cores_for, hint)
        return min(int(wanted), int(self.cores))

    def clock_used(self, hint: str) -> float:
        """Return the clock of those cores (Hz)."""
        share = self.sustained_clock_share
        return float(self.clock) * (1.0 if share is None else float(getattr(share, hint)))

    def peak_macs_per_s(self, dtype: str) -> float:
        """Return the multiply-accumulates a second of all cores in a format."""
        for name, rate in self.macs_per_cycle.items():
            if name == dtype:
                return self.cores * rate * self.clock
        raise UnknownNameError(f"MAC format of {self.title}", dtype, self.macs_per_cycle)


class Cpu(RooflineDevice):
    """A multi-core processor, by its roofline."""

    kind: Literal["cpu"]
    """Kind of device: cpu."""


class Gpu(RooflineDevice):
    """An integrated GPU, by its roofline; a core is an Xe core, an SM or their like."""

    kind: Literal["gpu"]
    """Kind of device: gpu."""
