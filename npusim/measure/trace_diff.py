"""Two traces side by side, layer by layer: the measured run and the simulated one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part
from npusim.errors import FileError
from npusim.measure.traces import ENGINES, LAUNCH, LAYER, Event, read_trace

_SUFFIX = re.compile(r"(\?t_\w+.*|/cluster_\d+|/_?fused.*|/convert_\w+| (read|write|copy))$")
_NOISE = re.compile(r"[^a-z0-9]+")


def layer_key(name: str) -> str:
    """Return a layer's name, or that of its task, without what compilers add and without punctuation."""
    return _NOISE.sub("", _SUFFIX.sub("", name.lower()))


class LayerPair(Part):
    """A layer in both traces."""

    measured: str
    """Its name in the first trace."""
    simulated: str
    """Its name in the second."""
    measured_s: float
    """From its begin to its end in the first trace, in s."""
    simulated_s: float
    """In the second."""
    measured_start_s: float
    """Begin, from the begin of the first trace's first layer."""
    simulated_start_s: float
    """The same in the second."""

    @property
    def difference_s(self) -> float:
        """How much longer it takes in the second trace."""
        return self.simulated_s - self.measured_s


class LoneLayer(Part):
    """A layer in one of the traces alone."""

    trace: Literal["first", "second"]
    """The trace that has it."""
    name: str
    """Its name."""
    latency_s: float
    """From its begin to its end, in s."""
    start_s: float
    """Begin, from the begin of that trace's first layer."""


class TraceDiff(Document):
    """What two traces say about the same network, or about two forms of it."""

    schema_: Literal["npusim.trace-diff/1"] = Field("npusim.trace-diff/1", alias="schema")
    """Version of this document."""
    first: str = ""
    """What the first trace is of: network, machine and techniques; where it does not tell, its file."""
    second: str = ""
    """The same of the second."""
    measured_s: float
    """Length of the first trace, first layer's begin to last layer's end, in s."""
    simulated_s: float
    """Length of the second."""
    measured_launch_s: float = 0.0
    """Time before the first layer of the first trace in which the runtime is called, in s; 0 where the trace
    does not tell."""
    simulated_launch_s: float = 0.0
    """The same of the second."""
    layers: list[LayerPair]
    """Layers found in both, in the order of the first."""
    only_measured: list[str]
    """Layers without a counterpart in the second trace."""
    only_simulated: list[str]
    """Layers without a counterpart in the first."""
    alone: list[LoneLayer] = Field(default_factory=list)
    """Those of both with their times, the longest first."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a trace; times in s."""

    name: str
    type: str
    start_s: float
    end_s: float

    @property
    def key(self) -> str:
        """The name without what compilers add to it, and without punctuation."""
        return layer_key(self.name)


def read_layers(path: Path) -> list[Layer]:
    """Return the layers of a Chrome trace by begin; without layers, tasks of one name make one.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read or is no trace.
    """
    return layers_of(read_trace(path).events)


def layers_of(events: Sequence[Event]) -> list[Layer]:
    """Return layers by begin from a trace's events; of several inferences the first counts."""
    layers = [event for event in events if event.category == LAYER]
    tasks = [event for event in events if event.category in ENGINES]
    found: dict[str, Layer] = {}
    for event in sorted(layers or tasks, key=lambda event: event.start_s):
        key = event.name if layers else _SUFFIX.sub("", event.name)
        old = found.get(key)
        if old is None:
            found[key] = Layer(key, str(event.args.get("Layer type", "")), event.start_s, event.end_s)
        elif not layers:
            found[key] = Layer(key, old.type, old.start_s, max(old.end_s, event.end_s))
    return list(found.values())


def diff_traces(measured: Path, simulated: Path) -> TraceDiff:
    """Align two traces by layer.

    Layers of the same normalised name are matched first, in order; between two matches, what is left over on
    both sides is matched in order where the types agree.
    """
    traces = read_trace(measured), read_trace(simulated)
    left, right = (layers_of(trace.events) for trace in traces)
    for path, layers in ((measured, left), (simulated, right)):
        if not layers:
            raise FileError(str(path), "has no layers and no tasks of DPU, SW or DMA")
    pairs = _align(left, right)
    begin_left, begin_right = left[0].start_s, right[0].start_s
    taken_left, taken_right = {i for i, _ in pairs}, {j for _, j in pairs}
    lone_left = [x for i, x in enumerate(left) if i not in taken_left]
    lone_right = [x for j, x in enumerate(right) if j not in taken_right]
    alone = _alone("first", lone_left, begin_left) + _alone("second", lone_right, begin_right)
    launches = [
        _launch_s(trace.events, layers[0]) for trace, layers in zip(traces, (left, right), strict=True)
    ]
    return TraceDiff(
        first=traces[0].title or measured.name,
        second=traces[1].title or simulated.name,
        measured_launch_s=launches[0],
        simulated_launch_s=launches[1],
        measured_s=max(x.end_s for x in left) - begin_left,
        simulated_s=max(x.end_s for x in right) - begin_right,
        layers=[
            LayerPair(
                measured=left[i].name, simulated=right[j].name, measured_s=left[i].end_s - left[i].start_s,
                simulated_s=right[j].end_s - right[j].start_s, measured_start_s=left[i].start_s - begin_left,
                simulated_start_s=right[j].start_s - begin_right,
            )
            for i, j in pairs
        ],
        only_measured=[x.name for x in lone_left],
        only_simulated=[x.name for x in lone_right],
        alone=sorted(alone, key=lambda x: -x.latency_s),
    )  # fmt: skip


def _alone(trace: Literal["first", "second"], layers: Sequence[Layer], begin_s: float) -> list[LoneLayer]:
    return [
        LoneLayer(trace=trace, name=x.name, latency_s=x.end_s - x.start_s, start_s=x.start_s - begin_s)
        for x in layers
    ]


def _launch_s(events: Sequence[Event], first: Layer) -> float:
    """Return the time before the first layer from the begin of the first call of a runtime."""
    begins = [event.start_s for event in events if event.category == LAUNCH]
    return max(0.0, first.start_s - min(begins)) if begins else 0.0


def _align(left: list[Layer], right: list[Layer]) -> list[tuple[int, int]]:
    at = {layer.key: j for j, layer in reversed(list(enumerate(right)))}
    named = {i: at[layer.key] for i, layer in enumerate(left) if layer.key in at}
    free_left = [i for i in range(len(left)) if i not in named]
    taken = set(named.values())
    free_right = [j for j in range(len(right)) if j not in taken]
    # What has no namesake is matched by its type, keeping the order.
    kinds = ([left[i].type for i in free_left], [right[j].type for j in free_right])
    for a, b, size in SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        for k in range(size):
            if left[free_left[a + k]].type:
                named[free_left[a + k]] = free_right[b + k]
    return sorted(named.items())
