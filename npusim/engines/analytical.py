"""The analytical engine: the totals of a mapped graph by closed formulas, and what they rest on."""

from __future__ import annotations

from typing import Any

from npusim import __version__
from npusim.arch import Soc
from npusim.cost.decisions import Group
from npusim.cost.tables import Bound, Unit
from npusim.engines.estimate import Estimate, OperatorCost, UnitUse
from npusim.graph import Graph
from npusim.mapping import Mapped, map_graph
from npusim.ops import Family
from npusim.scenario import resolve_run
from npusim.techniques import parse
from npusim.techniques.preprocessing import preprocessing_operators

__all__ = ["estimate", "mapped_estimate"]

_UNIT_NAMES = {
    Unit.VIEW: "none",
    Unit.DPU: "npu.dpu",
    Unit.DSP: "npu.dsp",
    Unit.DMA: "npu.dma",
    Unit.CPU: "cpu",
    Unit.GPU: "gpu",
}
_NPU_UNITS = (Unit.DPU, Unit.DSP, Unit.DMA)
_NPU_ALONE = ("symg", "cacheg")
"""Techniques that change nothing but what an NPU keeps and moves."""


def estimate(
    graph: Graph,
    soc: Soc,
    *,
    hint: str = "latency",
    requests: int | None = None,
    tiles: int | None = None,
    device: str = "auto",
    swap_operands: bool = False,
) -> Estimate:
    """Estimate what one inference of a graph costs on a SoC.

    Parameters
    ----------
    graph : Graph
        From `npusim.load_workload`, techniques applied with `npusim.apply`.
    soc : Soc
        From `npusim.load_soc`.
    hint, requests, tiles, device, swap_operands
        See `npusim.scenario.resolve_run`.

    Returns
    -------
    Estimate

    Examples
    --------
    >>> import npusim
    >>> graph = npusim.apply(npusim.load_workload("gcn-cora"), "stagr")
    >>> e = npusim.estimate(graph, npusim.load_soc("core-ultra-series2"))
    >>> e.operators[0].unit
    'npu.dpu'
    """
    return mapped_estimate(
        map_graph(graph, soc, resolve_run(soc, hint, requests, tiles, device, swap_operands))
    )


def mapped_estimate(mapped: Mapped) -> Estimate:
    """Return the estimate of a mapped graph."""
    graph, run, total = mapped.graph, mapped.run, mapped.total
    interval_s = 1.0 / float(total["throughput_per_s"])
    return Estimate(
        workload=graph.name,
        soc=mapped.soc.name,
        techniques=graph.techniques,
        engine="analytical",
        hint=run.hint,
        requests=run.requests,
        tiles=run.tiles,
        latency_s=float(total["latency_s"]),
        latency_interval_s=None,
        throughput_per_s=float(total["throughput_per_s"]),
        energy_j=float(total["energy_j"]),
        area_mm2=float(total["area_mm2"]),
        dram_bytes=float(total["dram_bytes"]),
        sram_peak_bytes=float(total["sram_peak_bytes"]),
        macs=graph.macs,
        units={
            name: UnitUse(busy_s=float(total[key]), utilisation=float(total[key]) / interval_s)
            for name, key in (
                ("npu.dpu", "dpu_s"),
                ("npu.dsp", "dsp_s"),
                ("npu.dma", "dma_s"),
                ("cpu", "cpu_s"),
                ("gpu", "gpu_s"),
            )
            if mapped.soc.has(name.partition(".")[0])
        },
        operators=[_operator(mapped, i, group) for i, group in enumerate(mapped.decisions.groups)],
        warnings=_warnings(mapped),
        provenance=_provenance(mapped),
    )


def _operator(mapped: Mapped, index: int, group: Group) -> OperatorCost:
    result: Any = mapped.results[index]
    op = mapped.graph.operators[group.main]
    return OperatorCost(
        name=op.name,
        type=op.type,
        fused=list(group.fused),
        unit=_UNIT_NAMES[Unit(group.unit)],
        latency_s=float(result["latency_s"]),
        energy_j=float(result["energy_j"]),
        macs=mapped.graph.work(op).macs,
        dram_bytes=float(result["dram_bytes"]),
        bound=Bound(int(result["bound"])).name.lower(),
    )


def _warnings(mapped: Mapped) -> list[str]:
    unknown = sorted({op.type for op in mapped.graph if op.family is Family.UNKNOWN})
    found = list(mapped.lowered.warnings)
    idle = [name for name in parse(mapped.graph.techniques).names if name in _NPU_ALONE]
    on_npu = any(g.unit in _NPU_UNITS for g in mapped.decisions.groups)
    if "grasp" in parse(mapped.graph.techniques).names and not on_npu:
        found.append(
            "grasp: products are costed along the non-zeros, as libraries for sparse matrices work; OpenVINO "
            "multiplies them dense"
        )
    if idle and not on_npu:
        found.append(
            f"{', '.join(idle)}: made for the memory of an NPU; none is used here, so nothing is gained"
        )
    if unknown:
        found.insert(
            0, f"operators npusim does not know are costed by the bytes they move: {', '.join(unknown)}"
        )
    return found


def _provenance(mapped: Mapped) -> dict[str, Any]:
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
    offered = [op for op in preprocessing_operators(graph) if op.family is not Family.VIEW]
    if not offered:
        return None
    moved = sum(op.device == "cpu" for op in offered)
    why = "the rest costs less where it is" if moved else "calling the CPU costs more than it saves"
    why = "all of it costs less there" if moved == len(offered) else why
    return f"graphsplit: {moved} of {len(offered)} operators of the preprocessing run on the CPU; {why}"
