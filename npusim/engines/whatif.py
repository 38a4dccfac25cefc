"""What would a change give? The same network under one technique stack after another, on one machine.

A shop window with price tags side by side: each stack with what it costs, what it saves against the baseline, and which offer is
beaten by another in every respect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from npusim.arch import Soc
from npusim.engines.analytical import estimate
from npusim.engines.estimate import Estimate, _Document
from npusim.engines.verdict import conclusion_of, dominator_of, notes_of
from npusim.errors import IllegalTechniqueError
from npusim.graph import Graph
from npusim.techniques import apply

__all__ = ["Skipped", "Variant", "WhatIf", "whatif"]


class Variant(_Document):
    """One technique stack beside the baseline."""

    techniques: str
    """Canonical technique stack."""
    latency_s: float
    """Time of an inference, in s."""
    throughput_per_s: float
    """Inferences a second in steady state."""
    energy_j: float
    """Energy of an inference, in J."""
    dram_bytes: float
    """Bytes moved to and from DRAM."""
    sram_peak_bytes: float
    """Most SRAM in use at any time, in bytes."""
    speedup_latency: float
    """Latency of the baseline over that of this stack."""
    speedup_throughput: float
    """Throughput of this stack over that of the baseline."""
    bound: str
    """Unit that is busy longest."""
    kept_in_sram: dict[str, float]
    """Share of each tensor that cacheg keeps in SRAM across layers."""
    dominated_by: str | None
    """A stack with the same results that is at least as good in time, energy and DRAM traffic and better in one, without merely
    adding to this one; or null."""


class Skipped(_Document):
    """A stack that cannot be applied to this network."""

    techniques: str
    """The stack as asked for."""
    reason: str
    """Why not."""


class WhatIf(_Document):
    """A comparison of technique stacks on one workload and one SoC."""

    schema_: Literal["npusim.whatif/1"] = Field("npusim.whatif/1", alias="schema")
    """Version of this document."""
    workload: str
    """Name of the network."""
    soc: str
    """Name of the SoC."""
    hint: str
    """Performance hint: latency or throughput."""
    requests: int
    """Inferences in flight."""
    tiles: int
    """NPU tiles used."""
    baseline: str
    """Stack that speed-ups refer to."""
    variants: list[Variant]
    """One entry a stack, in the order asked for."""
    skipped: list[Skipped]
    """Stacks that cannot be applied, with the reason."""
    notes: list[str]
    """What one should know before believing a row."""
    conclusion: str
    """One sentence: what bounds the best variant."""

    def to_json(self) -> str:
        """Return the document as JSON (schema `npusim.whatif/1`)."""
        return self.model_dump_json(by_alias=True, indent=2)


def whatif(
    graph: Graph,
    soc: Soc,
    stacks: Sequence[str],
    *,
    hint: str = "latency",
    requests: int | None = None,
    tiles: int | None = None,
    device: str = "auto",
) -> WhatIf:
    """Estimate a network under several technique stacks.

    Parameters
    ----------
    graph : Graph
        The network without techniques.
    soc : Soc
    stacks : sequence of str
        Technique stacks; the first that can be applied is the baseline.
    hint, requests, tiles, device
        See `npusim.engines.run_of`.

    Raises
    ------
    IllegalTechniqueError
        When no stack can be applied; the message gives the first reason.
    """
    estimates: list[Estimate] = []
    skipped: list[Skipped] = []
    for stack in dict.fromkeys(stacks):
        try:
            rewritten = apply(graph, stack)
        except IllegalTechniqueError as error:
            skipped.append(Skipped(techniques=stack, reason=error.reason))
            continue
        estimates.append(estimate(rewritten, soc, hint=hint, requests=requests, tiles=tiles, device=device))
    if not estimates:
        raise IllegalTechniqueError(skipped[0].techniques, skipped[0].reason)
    base = estimates[0]
    return WhatIf(
        workload=base.workload,
        soc=base.soc,
        hint=base.hint,
        requests=base.requests,
        tiles=base.tiles,
        baseline=base.techniques,
        variants=[_variant(e, base, estimates) for e in estimates],
        skipped=skipped,
        notes=notes_of(graph, soc, estimates),
        conclusion=conclusion_of(soc, estimates),
    )


def _variant(e: Estimate, base: Estimate, others: Sequence[Estimate]) -> Variant:
    return Variant(
        techniques=e.techniques,
        latency_s=e.latency_s,
        throughput_per_s=e.throughput_per_s,
        energy_j=e.energy_j,
        dram_bytes=e.dram_bytes,
        sram_peak_bytes=e.sram_peak_bytes,
        speedup_latency=base.latency_s / e.latency_s,
        speedup_throughput=e.throughput_per_s / base.throughput_per_s,
        bound=e.bound,
        kept_in_sram=e.provenance["kept_in_sram"],
        dominated_by=dominator_of(e, others),
    )
