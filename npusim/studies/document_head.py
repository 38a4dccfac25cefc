"""Fields that the documents of several studies share: network, machine, stack, and how the network runs.

JSON keeps the order of the fields: those of base classes first, the last base class before the others.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from npusim.documents import Document, Part


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
