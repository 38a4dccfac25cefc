"""A mix: streams of requests to a SoC, from a scenario file (`npusim.mix/1`) or from inline texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from npusim.arch import Soc, load_soc
from npusim.arch.device import DeviceName
from npusim.config import Section, load_model, validate_data
from npusim.config.overrides import as_overrides
from npusim.config.reading import plain_scalar
from npusim.config.tables import Number, read_table
from npusim.errors import ConfigError, shown
from npusim.files import OPEN_PIPES, read_text
from npusim.locate import DEFAULT_SOC
from npusim.ops.formats import FormatName
from npusim.units import Duration, RequestRate

_SCHEMA = "npusim.mix/1"
_YAML = (".yaml", ".yml")
_HEAD = 2000
"""Characters of a file in which its schema stands."""


def _per_second(raw: Any) -> Any:
    """Return `30/s` as a frequency."""
    return f"{raw.strip()[:-2]} Hz" if isinstance(raw, str) and raw.strip().endswith("/s") else raw


Rate = Annotated[RequestRate, BeforeValidator(_per_second)]
"""Requests a second: `30/s` or `30 Hz`."""
Whole = Annotated[int, Field(ge=1, le=1_000_000)]
Crowd = Annotated[int, Field(ge=1, le=1_000)]
"""Requests at one time."""


class Periodic(Section):
    """A request in every period, each later by a random part of the jitter."""

    kind: Literal["periodic"]
    rate: Rate
    """Requests a second."""
    jitter: Duration | None = None
    """Greatest delay of a request, uniformly distributed, at most the period. None: no delay."""

    @model_validator(mode="after")
    def _keeps_the_order(self) -> Periodic:
        if self.jitter is not None and self.jitter * self.rate > 1.0:
            raise ValueError(f"jitter {self.jitter.text} is longer than the period {1.0 / self.rate:.4g} s")
        return self


class Poisson(Section):
    """Independent requests: times between them are exponentially distributed."""

    kind: Literal["poisson"]
    rate: Rate
    """Requests a second."""


class Bursts(Section):
    """Several requests at once, at exponentially distributed intervals."""

    kind: Literal["bursts"]
    rate: Rate
    """Bursts a second."""
    size: Crowd
    """Requests of a burst."""


class Closed(Section):
    """Clients that each wait for the answer, think, and ask again."""

    kind: Literal["closed"]
    clients: Crowd = 1
    """Requests in the system, or being thought of, at any time."""
    think: Duration | None = None
    """Mean of the time from an answer to the next request, exponentially distributed. None: no time."""


class Trace(Section):
    """Recorded times of arrival; the stream ends with them."""

    kind: Literal["trace"]
    file: Path
    """CSV with the column `time_s`, which does not fall. A scenario file names it relative to itself."""

    def times_s(self) -> list[float]:
        """Return the times; a `ConfigError` names the line of one that goes backwards."""
        table = read_table(self.file, [Number("time_s", above=False)])
        times = [float(time) for time in table.columns["time_s"]]
        for line, before, time in zip(table.lines[1:], times, times[1:], strict=False):
            if time < before:
                allowed = f"times that do not go backwards, so {before:g} or more"
                raise ConfigError(f"`{time:g}`", file=table.file, line=line, key="time_s", allowed=allowed)
        return times


Arrivals = Annotated[Periodic | Poisson | Bursts | Closed | Trace, Field(discriminator="kind")]


class Batch(Section):
    """Requests of a stream that one call of the device serves."""

    most: Whole
    """Requests of a batch at most."""
    within: Duration
    """Longest time that the first request of a batch waits for others."""


class StreamSpec(Section):
    """A stream of requests for one network."""

    name: str = ""
    """Name in tables; empty: that of the network."""
    network: str
    """Name of a workload, or its file."""
    techniques: str = "none"
    """Technique stack."""
    hint: Literal["latency", "throughput"] = "latency"
    """Performance hint that the network is compiled for; `throughput`: several requests overlap."""
    device: str = "auto"
    """Device that serves it, as in `npusim estimate`; `npu,npu2` or `any`: the one that is done first."""
    arrivals: Arrivals
    """When requests come."""
    inferences: Annotated[float, Field(ge=1.0, le=1e6)] = 1.0
    """Inferences of a request, one after the other, such as tokens of an answer."""
    spread: Literal["none", "exponential"] = "none"
    """Distribution of the inferences around that number."""
    deadline: Duration | None = None
    """Time in which a request should be answered. None: no limit."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """For the scheduler `priority`: lower numbers are served first."""
    share: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
    """For the scheduler `fair`: part of a device's time, relative to the other streams."""
    batch: Batch | None = None
    """Batch policy. None: each request alone."""
    sram: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the SRAM of each device that is its own, and keeps its resident weights. None: what the shares
    of other streams leave, in which networks evict each other's weights."""
    io: FormatName | None = None
    """Format of inputs and outputs in the application: the CPU converts them, before and after. None: they
    come and go as the network takes them."""

    @model_validator(mode="after")
    def _batches_wait_for_others(self) -> StreamSpec:
        closed = self.arrivals if isinstance(self.arrivals, Closed) else None
        if closed is not None and self.batch is not None and closed.clients < self.batch.most:
            raise ValueError(f"a batch of {self.batch.most}, but only {closed.clients} requests at a time")
        return self

    @property
    def title(self) -> str:
        """Name in tables."""
        network = Path(self.network)
        return self.name or (network.stem if network.suffix in (*_YAML, ".xml", ".onnx") else network.name)


class DeviceSpec(Section):
    """How a device is shared; no data sheet says so, hence the mix does."""

    contexts: Whole | None = None
    """Requests that it serves at a time. None: the fewest contexts that its networks are compiled for."""
    preemption: Literal["none", "inference", "layer", "instruction"] = "none"
    """Where a more urgent request can interrupt it: nowhere, after an inference, after a layer, anywhere."""
    switch_cost: Duration | None = None
    """Time to resume an interrupted request. None: no time."""


class Mix(Section):
    """Streams that share a SoC."""

    schema_name: Literal["npusim.mix/1"] = Field(alias="schema")
    """Version of this file format: npusim.mix/1."""
    title: str = ""
    """What the mix is about."""
    soc: str = DEFAULT_SOC
    """Machine: a name or the path of a YAML file."""
    copies: dict[DeviceName, DeviceName] = Field(default_factory=dict)
    """Further devices of the machine, each with the device that it is like: `npu2: npu`."""
    settings: dict[str, bool | int | float | str] = Field(default_factory=dict, alias="set")
    """Settings of the machine, as `--set` takes them."""
    scheduler: str = "fifo"
    """Scheduler of every device: fifo, priority, edf, fair, or one that a package adds."""
    devices: dict[DeviceName, DeviceSpec] = Field(default_factory=dict)
    """How devices are shared, by name."""
    duration: Duration | None = None
    """Simulated time. None: until the intervals are narrow enough."""
    requests: Annotated[int, Field(ge=100, le=100_000_000)] | None = None
    """Most requests that are simulated. None: 200,000, or those of the duration."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of all random numbers; each stream has numbers of its own."""
    streams: Annotated[list[StreamSpec], Field(min_length=1, max_length=100)]
    """The streams."""

    @model_validator(mode="after")
    def _is_possible(self) -> Mix:
        if self.duration is not None and self.duration <= 0.0:
            raise ValueError(f"duration {self.duration.text}; give a time above 0, such as 60 s")
        titles = [stream.title for stream in self.streams]
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise ValueError(f"two streams named `{twice}`; give them different `name`s")
        return self


def is_mix(file: object) -> bool:
    """Return whether something is the name of a scenario file of a mix."""
    path = Path(str(file)) if isinstance(file, str | Path) else Path()
    is_file = (path.suffix in _YAML and path.is_file()) or str(path).startswith(OPEN_PIPES)
    return is_file and _SCHEMA in read_text(path)[:_HEAD]


def machine_of(mix: Mix) -> Soc:
    """Return the machine of a mix, with its further devices."""
    return load_soc(mix.soc, as_overrides(mix.settings)).with_copies(mix.copies)


_GRAMMAR = (
    "NETWORK:ARRIVALS[,KEY=VALUE...] with arrivals 30/s, poisson=5/s, bursts=8@2/s, closed or trace=FILE, "
    "such as yolov8n:30/s,deadline=33ms"
)
_OF_ARRIVALS = ("jitter", "clients", "think")


def parse_stream(text: str) -> dict[str, Any]:
    """Return an inline stream as a scenario file holds it; a `ConfigError` says what is allowed."""
    network, _, rest = text.partition(":")
    first, *pairs = [part.strip() for part in rest.split(",")]
    word, _, value = first.partition("=")
    arrivals: dict[str, Any] = {"kind": word}
    if word == "poisson":
        arrivals |= {"rate": value}
    elif word == "bursts":
        size, _, rate = value.partition("@")
        arrivals |= {"size": plain_scalar(size), "rate": rate}
    elif word == "trace":
        arrivals |= {"file": value}
    elif first.endswith(("/s", "Hz")):
        arrivals = {"kind": "periodic", "rate": first}
    elif first != "closed":
        raise ConfigError(shown(text), file="STREAM", allowed=_GRAMMAR)
    stream: dict[str, Any] = {"network": network, "arrivals": arrivals}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if not key or not value:
            raise ConfigError(f"{shown(pair)} in {shown(text)}", file="STREAM", allowed=_GRAMMAR)
        if key in _OF_ARRIVALS:
            arrivals[key] = plain_scalar(value)
        elif key == "batch":
            most, _, within = value.partition("@")
            stream[key] = {"most": plain_scalar(most), "within": within}
        else:
            stream[key] = plain_scalar(value)
    return stream


def load_mix(streams: Sequence[str | Path | Mix], **changes: Any) -> Mix:
    """Return a mix from the one scenario file among texts, or from inline streams.

    Parameters
    ----------
    streams : sequence of str, Path or Mix
        One mix, one YAML file, or inline streams (`parse_stream`).
    **changes
        Fields of `Mix` that differ, as a file writes them; None: as the file says.

    Raises
    ------
    FileError, ConfigError
        Where a file cannot be read, or what it says is not allowed.
    """
    asked = {key: value for key, value in changes.items() if value is not None}
    only = streams[0] if len(streams) == 1 else None
    if isinstance(only, Mix):
        data = only.model_dump(mode="json", by_alias=True)
    elif only is not None and (str(only).endswith(_YAML) or is_mix(only)):
        data = load_model(str(only), Mix).model_dump(mode="json", by_alias=True)
        for stream in data["streams"]:
            if stream["arrivals"]["kind"] == "trace":
                stream["arrivals"]["file"] = str(Path(str(only)).parent / stream["arrivals"]["file"])
    else:
        data = {"schema": _SCHEMA, "streams": [parse_stream(str(text)) for text in streams]}
    settings = {**data.get("set", {}), **asked.pop("set", {})}
    return validate_data(data | asked | {"set": settings}, Mix)
