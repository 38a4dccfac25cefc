"""The analytical engine: the totals of a mapped graph by closed formulas, and what they rest on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npusim import __version__
from npusim.arch import outer_levels
from npusim.arch.array import capacity_warnings
from npusim.cost import Unit
from npusim.engines.compilation import compilation, memory_warnings
from npusim.engines.estimate import EnergyByPart, Estimate, UnitUse
from npusim.engines.operators import grid_utilisation, operator_cost, peak_power_w
from npusim.engines.parts import constants_bytes, language_figures, launch_each_s, part_costs
from npusim.engines.roofline import roofline
from npusim.mapping import Mapped
from npusim.metrics import metrics_in
from npusim.ops import Annotation, Family
from npusim.scenario import Scenario
from npusim.techniques import parse

_MOST_NAMES = 8
"""Names of operators that a note lists."""
_PER_CONTEXT = (".dpu", ".dsp")
"""Ends of the names of units that each context of a device has."""


def estimate(scenario: Scenario) -> Estimate:
    """Estimate what one inference costs; errors as for `Scenario.graph` and `Scenario.mapped`.

    Examples
    --------
    >>> estimate(Scenario("gcn-cora", techniques="stagr")).operators[0].unit
    'npu.dpu'
    """
    return mapped_estimate(scenario.mapped)


def mapped_estimate(mapped: Mapped) -> Estimate:
    """Return the estimate of a mapped graph."""
    graph, run, total = mapped.graph, mapped.run, mapped.total
    interval_s = 1.0 / float(total["throughput_per_s"])
    on_npu = any(group.unit.is_array for group in mapped.decisions.groups)
    operators = [
        operator_cost(mapped, i, group, span_s)
        for i, (group, span_s) in enumerate(zip(mapped.decisions.groups, _spans_s(mapped), strict=True))
    ]
    compiling = compilation(mapped, constants_bytes(mapped))
    return Estimate(
        workload=graph.name,
        soc=mapped.soc.name,
        techniques=graph.techniques,
        engine="analytical",
        hint=run.hint,
        requests=run.requests,
        tiles=run.tiles if on_npu else 0,
        npu_tiles=int(mapped.npu["npu_tiles"]) if mapped.arch.arrays else 0,
        contexts=mapped.contexts,
        launch_s=_launch_s(mapped),
        dispatch_s=_dispatch_s(mapped),
        latency_interval_s=None,
        memory=mapped.memory,
        macs=graph.macs,
        precision=graph.precision,
        source_precision=None if graph.meta.source_precision is None else graph.meta.source_precision.value,
        units={
            unit: UnitUse(busy_s=busy_s, utilisation=busy_s / (interval_s * contexts_with(mapped, unit)))
            for unit, busy_s in _busy_s(mapped).items()
        },
        operators=operators,
        parts=part_costs(mapped, operators),
        compilation=compiling,
        language=language_figures(mapped, float(total["latency_s"]), float(total["energy_j"])),
        energy=EnergyByPart(**metrics_in(EnergyByPart, total)),
        peak_power_w=peak_power_w(mapped),
        grid_utilisation=grid_utilisation(mapped, interval_s),
        dram_read_bytes=float(mapped.results["dram_read_bytes"].sum()),
        level_bytes=float(mapped.results["level_bytes"].sum()),
        sram_read_bytes=float(mapped.results["sram_read_bytes"].sum()),
        roofline=roofline(mapped),
        warnings=[*_warnings(mapped), *memory_warnings(compiling, mapped.soc)],
        provenance=_provenance(mapped),
        **metrics_in(Estimate, total),
    )


def contexts_with(mapped: Mapped, unit: str) -> float:
    """Return how many units of this name work side by side: one in each context, or one that all share."""
    return float(mapped.arch[unit.partition(".")[0]]["contexts"]) if unit.endswith(_PER_CONTEXT) else 1.0


def _busy_s(mapped: Mapped) -> dict[str, float]:
    """Return the busy time of each unit by its name, array devices first."""
    arch, uses = mapped.arch, iter(mapped.uses)
    found: dict[str, float] = {}
    for name, use in zip(arch.arrays, uses, strict=False):
        found |= {f"{name}.{part}": float(use[f"{part}_s"]) for part in ("dpu", "dsp", "dma")}
    return found | {name: float(use["work_s"]) for name, use in zip(arch.hosts, uses, strict=True)}


def _launch_s(mapped: Mapped) -> float:
    """Return the time of all calls of runtimes in an inference (s)."""
    each_s = [launch_each_s(mapped, group) for group in mapped.decisions.groups]
    return float(np.dot(mapped.lowered.ops["launches"], each_s))


def _dispatch_s(mapped: Mapped) -> float:
    """Return the time of all calls of the NPU's management processor in an inference (s)."""
    arch, ops = mapped.arch, mapped.lowered.ops
    called = np.array([group.device for group in mapped.decisions.groups])
    calls = ops["dispatches"] * ops["repeats"]
    return sum(float(calls[called == name].sum() * arch[name]["dispatch_s"]) for name in arch.arrays)


def _spans_s(mapped: Mapped) -> Any:
    """Return the span of each operator (s): operators that are fused row-wise work at the same time."""
    chains, critical_s = mapped.lowered.ops["fused_chain"].astype(int), mapped.results["critical_s"]
    return np.where(chains > 0, np.bincount(chains, critical_s)[chains], critical_s)


def _warnings(mapped: Mapped) -> list[str]:
    unknown = sorted({op.type for op in mapped.graph if op.family is Family.UNKNOWN})
    found = list(mapped.lowered.warnings)
    for name, device in mapped.soc.array_devices.items():
        if any(group.device == name for group in mapped.decisions.groups):
            inside, outside = device.sram_bytes(), float(mapped.soc.dram.capacity)
            levels = outer_levels(device, mapped.soc.levels)
            own = {one: f"{name}.levels.{one}" for one in device.levels}
            paths = {one: own.get(one, f"levels.{one}") for one in levels}
            told = capacity_warnings(levels, paths, inside, outside)
            found += [f"{name}: {text}" for text in told]
    if not any(g.unit.is_array for g in mapped.decisions.groups):
        techniques = [entry.technique for entry in parse(mapped.graph.techniques)]
        for note in dict.fromkeys(t.host_note for t in techniques if t.host_note):
            found.append(f"{', '.join(t.name for t in techniques if t.host_note == note)}: {note}")
    if unknown:
        found.insert(
            0, f"operators npusim does not know are costed by the bytes they move: {', '.join(unknown)}"
        )
    return found


def _provenance(mapped: Mapped) -> dict[str, Any]:
    """Return the provenance of an estimate: version, changed settings, unmeasured numbers."""
    graph, soc = mapped.graph, mapped.soc
    notes: list[str] = []
    on_grid = [g for g in mapped.decisions.groups if g.unit is Unit.DPU]
    if any(graph.tensors[graph.operators[g.main].inputs[0]].dtype.is_float for g in on_grid):
        notes.append("fp16 cycles of the MAC grid are model-derived, unmeasured: measured silicon is int8")
    for name in dict.fromkeys(g.device for g in mapped.decisions.groups if g.unit is Unit.DSP):
        dsp = soc.array_devices[name].dsp
        title, setting = dsp.generation().title, f"{name}.dsp.kernel_generation={dsp.kernel_generation}"
        notes.append(f"DSP kernels: {title} ({setting})")
    notes += [*graph.meta.notes, *_in_place_notes(mapped), *_role_notes(mapped)]
    notes += [*_technique_notes(mapped), *_host_notes(mapped), *_limit_notes(mapped)]
    kept = dict(mapped.decisions.residency.cached)
    return {
        "npusim": __version__,
        "soc_title": soc.title,
        "measured": False,
        "kept_in_sram": kept,
        "form": mapped.graph.meta.form,
        "notes": notes,
    }


def _in_place_notes(mapped: Mapped) -> Iterator[str]:
    """Yield which joins and splits need no copy."""
    views = (mapped.graph.operators[g.main] for g in mapped.decisions.groups if g.unit is Unit.VIEW)
    names = [op.name for op in views if op.family is not Family.VIEW]
    if names:
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        yield f"joined or split in place, without a copy: {', '.join(names[:_MOST_NAMES])}{more}"


def _role_notes(mapped: Mapped) -> list[str]:
    """Return in how many products the operands changed places, where that was asked for."""
    if not mapped.run.swap_operands:
        return []
    products = [g for g in mapped.decisions.groups if mapped.graph.operators[g.main].family is Family.MATMUL]
    swapped = sum(g.swapped for g in products)
    how = "faster so" if mapped.run.swap_operands == "search" else "as asked for"
    return [
        f"operand roles: {swapped} of {len(products)} products have the right operand on the pixels and the "
        f"left one as weight, {how}"
    ]


def _host_notes(mapped: Mapped) -> list[str]:
    """Return with how many cores and at which clock a host works, where the data sheet says so by hint."""
    hint, notes = mapped.run.hint, []
    used = {group.device for group in mapped.decisions.groups}
    for name, device in mapped.soc.hosts.items():
        if name not in used:
            continue
        if device.cores_for is not None or device.sustained_clock_share is not None:
            clock = device.clock_used(hint) / 1e9
            notes.append(
                f"{name.upper()}: {device.cores_used(hint)} of {device.cores} cores at {clock:.3g} GHz, "
                f"as the {hint} hint has it"
            )
    return notes


def _limit_notes(mapped: Mapped) -> Iterator[str]:
    """Yield by how much the package's limit stretches an inference."""
    total, limit_w = mapped.total, float(mapped.arch.shared["limit_w"])
    power_w = float(total["energy_j"] * total["throughput_per_s"])
    if limit_w and power_w >= limit_w * (1.0 - 1e-9):
        yield f"throttled: the package pauses to stay within {limit_w:g} W (package.power_limit)"


def _technique_notes(mapped: Mapped) -> list[str]:
    """Return what techniques say of themselves: which are what-ifs, and what became of preferred devices."""
    in_use = {
        Annotation.TRIANGLE: bool(mapped.lowered.ops["triangle"].any()),
        Annotation.RESIDENT: bool(mapped.decisions.residency.cached),
    }
    techniques = [entry.technique for entry in parse(mapped.graph.techniques)]
    notes = [
        f"{t.name} is a what-if: {t.what_if}"
        for t in techniques
        if t.what_if and (t.annotation is None or in_use.get(t.annotation, True))
    ]
    decided = [t for t in techniques if t.annotation is not Annotation.DEVICE or mapped.run.device == "auto"]
    return [*notes, *filter(None, (t.note(mapped.graph) for t in decided if t.note is not None))]
