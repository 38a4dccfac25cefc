"""Parts that several documents share: network, machine, stack, run conditions, intervals.

JSON keeps the order of the fields: those of base classes first, the last base class before the others.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from npusim.documents import Document, Part

Interval = tuple[float, float]
"""A 90 % interval that follows from the uncertainties of the data sheet."""


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

    schema_: str = Field("", alias="schema")
    """Version of this document."""
    workload: str
    """Name of the network."""
    soc: str
    """Name of the SoC."""


class UnderStack(OnMachine):
    """A network on a SoC under a technique stack."""

    techniques: str
    """Canonical technique stack."""


class RunConditions(Part):
    """How the network runs."""

    hint: str
    """Performance hint: latency or throughput."""
    requests: int
    """Inferences in flight."""
    tiles: int
    """NPU tiles that an inference uses."""
    npu_tiles: int
    """Tiles of the NPU; 0 without one."""
    contexts: int
    """Inferences that the NPU runs in parallel, each on its own tiles."""


def head_of(document: Any) -> dict[str, Any]:
    """Return network, SoC and run conditions of a document that has them, such as an estimate."""
    return {name: getattr(document, name) for name in ("workload", "soc", *RunConditions.model_fields)}
