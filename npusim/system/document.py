"""The document of a mix: response times of its streams, and the use of what they share."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.system.statistics import Interval


class StreamAnswer(Part):
    """Response times of a stream, from arrival to answer, after the warm-up; intervals are of 95 %."""

    name: str
    """Name of the stream."""
    network: str
    """Its network."""
    devices: list[str]
    """Devices that serve it."""
    answers: int
    """Requests that were answered."""
    throughput_per_s: float
    """Answers a second."""
    mean_s: float
    """Mean response time, in s."""
    p50_s: float
    """Median, in s."""
    p90_s: float
    """90th percentile, in s."""
    p99_s: float
    """99th percentile, in s."""
    p999_s: float
    """99.9th percentile, in s."""
    intervals_s: dict[str, Interval | None]
    """95 % interval of each of these figures, in s; null: too few answers for one."""
    alone_s: float
    """Response time of a request on an idle SoC, in s."""
    mean_of_stream_alone_s: float | None
    """Mean response time where the other streams are absent, in s; null in a mix of one stream."""
    slowdown: float | None
    """Mean response time relative to that; null in a mix of one stream."""
    deadline_s: float | None
    """Deadline, in s; null without one."""
    missed_share: float | None
    """Share of the answers after the deadline; null without one."""
    mean_waiting: float
    """Mean number of requests that wait for service to begin."""
    mean_in_system: float
    """Mean number of requests that wait or are served."""
    energy_j: float
    """Energy of a request without idle power, in J."""
    highest_rate_per_s: float | None
    """Requests a second from which on its queue grows without end; null for closed loops and traces."""


class ResourceUse(Part):
    """Use of a device or of DRAM."""

    name: str
    """Its name."""
    is_device: bool
    """Whether it is a device, which serves requests; the others are shared by them."""
    utilisation: float
    """Busy share of the time of its contexts; of DRAM, share of its bandwidth, of power, share of what the
    limits of the package sustain beyond idle power, which a burst exceeds."""
    contexts: int
    """Requests that it serves at a time."""
    preemption: str
    """Where its scheduler can interrupt a request."""


class Relief(Part):
    """What more of the contended resource gives a stream, from the same arrivals."""

    stream: str
    """Name of the stream."""
    mean_s: float
    """Mean response time with it, in s."""
    change: Interval | None
    """95 % interval of the relative change of the mean; null: too few answers."""


class FoundRate(Part):
    """Largest rate of a stream at which its 99th percentile keeps the deadline."""

    stream: str
    """Name of the stream."""
    rate_per_s: float
    """Requests a second; 0 where no rate keeps the deadline."""
    p99_s: float
    """99th percentile at that rate, in s."""


class ServiceSpan(Part):
    """A time in which a device serves a request."""

    device: str
    """Name of the device."""
    stream: str
    """Name of the stream."""
    number: int
    """Number of the request or batch, in order of arrival over all streams."""
    begin_s: float
    """Begin, in s."""
    end_s: float
    """End, in s."""


class _OfMix(Document):
    """What all documents of a mix state; of several designs, for the first."""

    title: str
    """What the mix is about."""
    soc: str
    """Name of the SoC."""
    scheduler: str
    """Scheduler of the devices."""
    seed: int
    """Seed of the random numbers, the same for all designs."""
    simulated_s: float
    """Simulated time of each design, in s."""
    notes: list[str]
    """What one should know before believing a figure."""


class MixResult(_OfMix):
    """A simulated mix of networks on a SoC."""

    schema_: Literal["npusim.mix-result/1"] = Field("npusim.mix-result/1", alias="schema")
    streams: list[StreamAnswer]
    """The streams, in the order of the mix."""
    resources: list[ResourceUse]
    """Devices that serve streams, and DRAM."""
    contended: str
    """The resource with the greatest utilisation."""
    relief: list[Relief]
    """What more of it gives: a second device, or 1.5 times as much of a shared resource."""
    energy_j: float
    """Energy of the package, with idle power, in J."""
    power_w: float
    """Mean power of the package, in W."""
    converged: bool
    """Whether the intervals of mean and 99th percentile of every stream are within 5 %."""
    found_rate: FoundRate | None
    """Largest rate of a stream under its deadline; null where none was asked for."""
    spans: list[ServiceSpan]
    """The first times of service; later ones are left out."""
    conclusion: str
    """One sentence: deadlines and the contended resource."""


class DesignRow(Part):
    """A design of a study of a mix."""

    name: str
    """What differs from the mix as it is."""
    at: dict[str, str]
    """Values that differ, by path; empty: the mix as it is."""
    refused: str | None = None
    """Why it cannot be simulated, such as a load above its capacity; null: it can."""
    soc: str = ""
    """Name of the SoC."""
    simulated_s: float = 0.0
    """Simulated time, in s."""
    streams: list[StreamAnswer] = Field(default_factory=list)
    """The streams, in the order of the mix."""
    change: tuple[float, float] | None = None
    """95 % interval of the relative change of the judged stream's mean response time; both runs answer the
    same requests. Null: the mix as it is, or too few answers."""
    replications: int = 0
    """Runs with a seed each behind that interval; 0: the design is refused."""
    contended: str = ""
    """The resource with the greatest utilisation."""
    utilisation: float | None = None
    """Its busy share."""
    energy_j: float | None = None
    """Energy of the package for a request, with idle power, in J."""
    power_w: float | None = None
    """Mean power of the package, in W."""
    area_mm2: float | None = None
    """Area of the NPUs, in mm2."""
    on_front: bool = False
    """Whether no other design is better in one objective and no worse in the others."""


class MixStudy(_OfMix):
    """A mix of networks on many designs."""

    MAIN_TABLE: ClassVar[str] = "rows"
    schema_: Literal["npusim.mix-study/1"] = Field("npusim.mix-study/1", alias="schema")
    stream: str
    """Stream whose response times are judged."""
    minimise: list[str]
    """Objectives of the front."""
    rows: list[DesignRow]
    """The mix as it is, then the designs."""
    conclusion: str
    """One sentence: the design that answers the judged stream soonest."""
