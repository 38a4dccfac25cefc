"""Parts that several documents share: network, machine, stack, run conditions, intervals.

JSON keeps the order of the fields: those of base classes first, the last base class before the others.
"""

from typing import Annotated, Any

from pydantic import Field

from npusim.documents import Document, Part

Interval = tuple[float, float]
"""A 90 % interval that follows from the uncertainties of the data sheet."""

Techniques = Annotated[str, Field(description="Canonical technique stack.")]
Latency = Annotated[float, Field(description="Time of an inference, in s.")]
LatencyInterval = Annotated[Interval | None, Field(description="90 % interval of the latency, in s.")]
Throughput = Annotated[float, Field(description="Inferences per second in steady state.")]
Energy = Annotated[float, Field(description="Energy of an inference, in J.")]
EnergyInterval = Annotated[Interval | None, Field(description="90 % interval of the energy, in J.")]
PackageEnergy = Annotated[float, Field(description="Energy of the package for one inference, in J.")]
DramBytes = Annotated[float, Field(description="Bytes moved to and from DRAM.")]
Bound = Annotated[str, Field(description="Unit that is busy the largest share of the time.")]
Notes = Annotated[list[str], Field(description="What one should know before believing a row.")]


class RestsOn(Part):
    """The uncertain number that determines more than half of a time."""

    number: str
    """Its path in the data sheet."""
    value: str
    """Its value with unit."""
    uncertainty: float
    """Its relative standard deviation."""
    source: str
    """Where it comes from."""
    share: float
    """Relative change of the time for that of the number, without sign: 0.5 to about 1."""


class OnMachine(Document):
    """A network on a SoC."""

    workload: str
    """Name of the network."""
    soc: str
    """Name of the SoC."""


class UnderStack(OnMachine):
    """A network on a SoC under a technique stack."""

    techniques: Techniques


class ByEngine(UnderStack):
    """A network under a technique stack, as an engine costs it."""

    engine: str
    """Engine that made the estimate."""


class RunConditions(Part):
    """How the network runs."""

    hint: str
    """Performance hint: latency or throughput."""
    requests: int
    """Inferences in flight."""
    tiles: int
    """NPU tiles that an inference uses; 0 where it runs elsewhere."""
    npu_tiles: int
    """Tiles of the NPU; 0 without one."""
    contexts: int
    """Inferences that the NPU runs in parallel, each on its own tiles."""


def head_of(document: Any) -> dict[str, Any]:
    """Return network, SoC and run conditions of a document that has them, such as an estimate."""
    return {name: getattr(document, name) for name in ("workload", "soc", *RunConditions.model_fields)}
