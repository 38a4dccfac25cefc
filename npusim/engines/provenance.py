"""What an estimate rests on: the label on the jar.

It says which version of npusim, which SoC file and which settings made a number, and which parts nobody has
measured.
"""

from __future__ import annotations

from typing import Any

from npusim import __version__
from npusim.cost.tables import Unit
from npusim.mapping import Mapped
from npusim.ops import Family
from npusim.techniques import parse
from npusim.techniques.frontier import preprocessing

__all__ = ["provenance_of"]


def provenance_of(mapped: Mapped) -> dict[str, Any]:
    """Return the provenance block of an estimate: version, settings that differ from the data sheet, and
    what is unmeasured.
    """
    graph, soc = mapped.graph, mapped.soc
    notes: list[str] = []
    on_grid = [g for g in mapped.decisions.groups if g.unit is Unit.DPU]
    if any(graph.tensors[graph.operators[g.main].inputs[0]].dtype.is_float for g in on_grid):
        notes.append("fp16 cycles of the MAC grid are model-derived, unmeasured: measured silicon is int8")
    if any(g.unit is Unit.DSP for g in mapped.decisions.groups):
        generation = soc.npu.dsp.kernel_generation
        notes.append(f"DSP kernels: generation {generation!r} ({soc.npu.dsp.kernels[generation].title})")
    if any(mapped.lowered.ops["triangle"]):
        notes.append("symg is a what-if: no hardware reads a stored triangle today")
    if mapped.decisions.residency.cached:
        notes.append("cacheg is a what-if: no compiler offers it today")
    split = _split_note(mapped)
    notes += [split] if split else []
    kept = dict(mapped.decisions.residency.cached)
    return {
        "npusim": __version__,
        "soc_title": soc.title,
        "measured": False,
        "kept_in_sram": kept,
        "notes": notes,
    }


def _split_note(mapped: Mapped) -> str | None:
    """Say how much of the preprocessing that GraphSplit offers to the CPU is there."""
    graph = mapped.graph
    if "graphsplit" not in parse(graph.techniques).names or mapped.run.device != "auto":
        return None
    offered = [op for op in preprocessing(graph) if op.family is not Family.VIEW]
    if not offered:
        return None
    moved = sum(op.device == "cpu" for op in offered)
    why = "the rest costs less where it is" if moved else "calling the CPU costs more than it saves"
    why = "all of it costs less there" if moved == len(offered) else why
    return f"graphsplit: {moved} of {len(offered)} operators of the preprocessing run on the CPU; {why}"
