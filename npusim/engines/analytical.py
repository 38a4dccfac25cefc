"""The analytical engine: the estimate of a mapped graph by closed formulas, and what it rests on.

Beside the totals: the cost of each part of a network that is compiled and launched in parts, figures per
token of a language model, time and memory of compiling, warnings and notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import ceil, exp, log1p, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from npusim import __version__
from npusim.arch import Soc, outer_levels
from npusim.arch.array import capacity_warnings
from npusim.arch.loading import Toolchain, load_toolchain
from npusim.cost import Group, Unit, grid_format, roots
from npusim.engines.estimate import (
    Compilation,
    EnergyByPart,
    Estimate,
    LanguageFigures,
    OperatorCost,
    PartCost,
    UnitUse,
)
from npusim.engines.operators import (
    dram_by_kind,
    grid_utilisation,
    levels_of,
    operator_cost,
    peak_power_w,
    roofline,
    summed_kinds,
)
from npusim.mapping import Mapped
from npusim.metrics import metrics_in
from npusim.ops import Annotation, DType, Family, TensorKind, WorkClass
from npusim.ops.formats import FORMATS
from npusim.scenario import Scenario
from npusim.techniques import parse
from npusim.units import Quantity

# Names of operators that a note lists.
_MOST_NAMES = 8
# Ends of the names of units that each context of a device has.
_PER_CONTEXT = (".dpu", ".dsp")
_NINETY = NormalDist().inv_cdf(0.95)
_SUMMED = ("dram_read_bytes", "level_bytes", "sram_read_bytes")
_PARTS = ("dpu", "dsp", "dma")
_shipped = lru_cache(load_toolchain)
# Part of a sum, and the number of a data sheet that it rests on.
_Term = tuple[float, Quantity]


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
    kinds = dram_by_kind(mapped)
    operators = [
        operator_cost(mapped, i, group, span_s).model_copy(update={"dram": kinds[i]})
        for i, (group, span_s) in enumerate(zip(mapped.decisions.groups, _spans_s(mapped), strict=True))
    ]
    constants = _constants_bytes(mapped)
    compilation = _compilation(mapped, constants)
    fields = {
        "workload": graph.name,
        "soc": mapped.soc.name,
        "techniques": graph.techniques,
        "engine": "analytical",
        "hint": run.hint,
        "requests": run.requests,
        "tiles": run.tiles if on_npu else 0,
        "npu_tiles": int(mapped.npu["npu_tiles"]) if mapped.arch.arrays else 0,
        "contexts": mapped.contexts,
        "launch_s": float(
            np.dot(
                mapped.lowered.ops["launches"],
                [launch_each_s(mapped, group) for group in mapped.decisions.groups],
            )
        ),
        "dispatch_s": _dispatch_s(mapped),
        "latency_interval_s": None,
        "memory": mapped.memory,
        "resident_bytes": resident_bytes(mapped),
        "dram": summed_kinds(kinds),
        "macs": graph.macs,
        "precision": graph.precision,
        "source_precision": getattr(graph.meta.source_precision, "value", None),
        "units": {
            unit: UnitUse(busy_s=busy_s, utilisation=busy_s / (interval_s * contexts_with(mapped, unit)))
            for unit, busy_s in _busy_s(mapped).items()
        },
        "operators": operators,
        "parts": part_costs(mapped, operators),
        "compilation": compilation,
        "language": language_figures(mapped, float(total["latency_s"]), float(total["energy_j"])),
        "energy": EnergyByPart(**metrics_in(EnergyByPart, total)),
        "peak_power_w": peak_power_w(mapped),
        "grid_utilisation": grid_utilisation(mapped, interval_s),
        **{name: float(mapped.results[name].sum()) for name in _SUMMED},
        "roofline": roofline(mapped),
        "warnings": [*_warnings(mapped), *_memory_warnings(compilation, mapped.soc)],
        "provenance": _provenance(mapped),
    }
    return Estimate(**fields | metrics_in(Estimate, total))


def contexts_with(mapped: Mapped, unit: str) -> float:
    """Return the contexts that have a unit of this name each; 1 for a unit that all contexts share."""
    return float(mapped.arch[unit.partition(".")[0]]["contexts"]) if unit.endswith(_PER_CONTEXT) else 1.0


def _busy_s(mapped: Mapped) -> dict[str, float]:
    """Return the busy time of each unit by its name, array devices first."""
    arch, uses = mapped.arch, dict(zip((*mapped.arch.arrays, *mapped.arch.hosts), mapped.uses, strict=True))
    on_arrays = {f"{name}.{part}": float(uses[name][f"{part}_s"]) for name in arch.arrays for part in _PARTS}
    hosts = {name: float(uses[name]["work_s"]) for name in arch.hosts}
    return on_arrays | levels_busy_s(mapped) | hosts


def levels_busy_s(mapped: Mapped) -> dict[str, float]:
    """Return the time in which each memory level is busy (s), by its name, except levels without traffic."""
    busy_s: dict[str, float] = {}
    devices = np.array([group.device for group in mapped.decisions.groups])
    for device, level, k in levels_of(mapped):
        through = float(mapped.results["through_bytes"][devices == device, k].sum())
        if through > 0.0:
            busy_s[f"{device}.{level}"] = through / float(mapped.arch[device]["level_bytes_per_s"][k])
    return busy_s


def _dispatch_s(mapped: Mapped) -> float:
    """Return the time of all calls of the NPU's management processor in an inference (s)."""
    arch, ops = mapped.arch, mapped.lowered.ops
    called = np.array([group.device for group in mapped.decisions.groups])
    calls = ops["dispatches"] * ops["repeats"]
    return sum(float(calls[called == name].sum() * arch[name]["dispatch_s"]) for name in arch.arrays)


def _spans_s(mapped: Mapped) -> Any:
    """Return the span of each operator (s); operators of a row-wise fusion span the whole fusion."""
    chains, critical_s = mapped.lowered.ops["fused_chain"].astype(int), mapped.results["critical_s"]
    return np.where(chains > 0, np.bincount(chains, critical_s)[chains], critical_s)


def _warnings(mapped: Mapped) -> list[str]:
    """Return the warnings: unknown operators, memory levels that are too small, no work for the NPU."""
    soc, groups = mapped.soc, mapped.decisions.groups
    unknown = sorted({op.type for op in mapped.graph if op.family is Family.UNKNOWN})
    warnings = list(mapped.lowered.warnings)
    if unknown:
        text = "operators npusim does not know are costed by the bytes they move"
        warnings.insert(0, f"{text}: {', '.join(unknown)}")
    for name, device in soc.array_devices.items():
        if any(group.device == name for group in groups):
            levels = outer_levels(device, soc.levels)
            paths = {
                level: f"{name}.levels.{level}" if level in device.levels else f"levels.{level}"
                for level in levels
            }
            texts = capacity_warnings(levels, paths, device.sram_bytes(), float(soc.dram.capacity))
            warnings += [f"{name}: {text}" for text in texts]
    if not any(group.unit.is_array for group in groups):
        techniques = [entry.technique for entry in parse(mapped.graph.techniques)]
        for note in dict.fromkeys(t.host_note for t in techniques if t.host_note):
            warnings.append(f"{', '.join(t.name for t in techniques if t.host_note == note)}: {note}")
    return warnings


def _provenance(mapped: Mapped) -> dict[str, Any]:
    """Return the provenance of an estimate: version, changed settings, unmeasured numbers."""
    return {
        "npusim": __version__,
        "soc_title": mapped.soc.title,
        "measured": False,
        "kept_in_sram": dict(mapped.decisions.residency.cached),
        "form": mapped.graph.meta.form,
        "notes": [*_notes(mapped), *_context_notes(mapped), *_technique_notes(mapped), *_power_notes(mapped)],
    }


def _notes(mapped: Mapped) -> Iterator[str]:
    """Yield notes on unmeasured cycles and kernels, on joins and splits without a copy, on operand roles."""
    graph, groups = mapped.graph, mapped.decisions.groups
    grid_inputs = (graph.operators[g.main].inputs[0] for g in groups if g.unit is Unit.DPU)
    if any(graph.tensors[name].dtype.is_float for name in grid_inputs):
        yield "fp16 cycles of the MAC grid are model-derived, unmeasured: measured silicon is int8"
    yield from _widened(mapped)
    for name in dict.fromkeys(g.device for g in groups if g.unit is Unit.DSP):
        dsp = mapped.soc.array_devices[name].dsp
        setting = f"{name}.dsp.kernel_generation={dsp.kernel_generation}"
        yield f"DSP kernels: {dsp.generation().title} ({setting})"
    if resident := resident_bytes(mapped):
        yield (
            f"steady state: {resident / 1e6:.3g} MB of weights stay in SRAM from one inference to the next "
            f"(npu.schedule.resident_weights); --first shows the first inference"
        )
    yield from graph.meta.notes
    yield from _refusals(mapped)
    views = (graph.operators[g.main] for g in groups if g.unit is Unit.VIEW)
    if names := [op.name for op in views if op.family is not Family.VIEW]:
        yield f"joined or split in place, without a copy: {_listed(names)}"
    if mapped.run.swap_operands:
        products = [g for g in groups if graph.operators[g.main].family is Family.MATMUL]
        how = "faster so" if mapped.run.swap_operands == "search" else "as asked for"
        yield (
            f"operand roles: {sum(g.swapped for g in products)} of {len(products)} products have the right "
            f"operand on the pixels and the left one as weight, {how}"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def resident_bytes(mapped: Mapped) -> float:
    """Return the bytes of weights that stay in SRAM from one inference to the next, each counted once."""
    shares = mapped.decisions.residency.resident
    return sum(share * mapped.graph.tensors[name].stored_bytes for name, share in shares.items())


def _context_notes(mapped: Mapped) -> Iterator[str]:
    """Yield a note where the tiles of an inference leave room for fewer contexts than the NPU can run."""
    run, home = mapped.run, mapped.run.home(mapped.soc)
    if home is None or run.hint != "throughput":
        return
    npu, contexts = mapped.soc.array_devices[home], mapped.contexts
    if contexts < min(int(npu.contexts), run.requests):
        fewer = int(npu.tiles) // (contexts + 1)
        yield (
            f"{run.tiles} tiles an inference leave room for {contexts} of {int(npu.contexts)} contexts; "
            f"{fewer} would leave room for {contexts + 1}, which may give more throughput"
        )


def _refusals(mapped: Mapped) -> Iterator[str]:
    """Yield a note on each operator type that the compiler of an array device does not take."""
    graph = mapped.graph
    for name, device in mapped.soc.array_devices.items():
        toolchain = getattr(device, "toolchain", None)
        support = _tool(toolchain).operators if toolchain is not None else None
        groups = [group for group in mapped.decisions.groups if group.device == name]
        if support is None or not groups:
            continue
        operators = [graph.operators[each] for group in groups for each in group.members]
        for what, refused in support.refused(operators).items():
            remedy = support.rewrites.get(refused[0].type, "compute it before or after the network")
            yield (
                f"{graph.techniques}: the {name.upper()}'s compiler does not take {what}: "
                f"{_listed([op.name for op in refused])}; {remedy} ({support.source})"
            )
        if graph.meta.source_precision is DType.FP64:
            yield f"{graph.techniques}: numbers of 64 bits: the {name.upper()} computes in fp16; use .float()"


def _tool(toolchain: str) -> Toolchain:
    return load_toolchain(toolchain) if toolchain.endswith((".yaml", ".yml")) else _shipped(toolchain)


def _widened(mapped: Mapped) -> Iterator[str]:
    """Yield a note on each format that a grid multiplies in another one, for its sheet lists no rate."""
    graph, names = mapped.graph, dict[tuple[str, str, str], None]()
    for group in mapped.decisions.groups:
        op = graph.operators[group.main]
        if group.unit is Unit.DPU and op.traits.work_class is WorkClass.CONTRACTION:
            operands, npu = graph.inputs_of(op)[:2], mapped.soc.array_devices[group.device]
            computed = grid_format(operands, npu, mapped.soc).name
            widest = max(FORMATS[tensor.dtype].bits for tensor in operands)
            if FORMATS[computed].bits > widest:
                names[graph.precision_of(op), group.device, computed] = None
    for form, device, computed in names:
        yield f"{form} is computed as {computed}: {device}.dpu.macs_per_mpe lists no rate of its own"


def _technique_notes(mapped: Mapped) -> list[str]:
    """Return the notes of techniques: what-ifs first, then the effect on this graph."""
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


def _power_notes(mapped: Mapped) -> Iterator[str]:
    """Yield notes on cores and clock of the hosts in use, and on throttling by the power limit."""
    hint, total, limit_w = mapped.run.hint, mapped.total, float(mapped.arch.shared["limit_w"])
    used = {group.device for group in mapped.decisions.groups}
    for name, device in mapped.soc.hosts.items():
        varies = device.cores_for is not None or device.sustained_clock_share is not None
        if name in used and varies:
            clock = f"{device.cores} cores at {device.clock_used(hint) / 1e9:.3g} GHz"
            yield f"{name.upper()}: {device.cores_used(hint)} of {clock}, as the {hint} hint has it"
    power_w = float(total["energy_j"] * total["throughput_per_s"])
    if limit_w and power_w >= limit_w * (1.0 - 1e-9):
        yield f"throttled: the package pauses to stay within {limit_w:g} W (package.power_limit)"


def part_costs(mapped: Mapped, operators: Sequence[OperatorCost]) -> list[PartCost]:
    """Return the cost of each part, given the cost of each operator; empty for a network in one part."""
    groups, launches = mapped.decisions.groups, mapped.lowered.ops["launches"]
    parts = mapped.graph.parts if len(mapped.graph.parts) > 1 else ()
    constants, costs = _constants_bytes(mapped), []
    for name in parts:
        members = [i for i, op in enumerate(operators) if op.part == name]
        working = [i for i in members if groups[i].unit is not Unit.VIEW]
        launch_s = sum(float(launches[i]) * launch_each_s(mapped, groups[i]) for i in working)
        critical_s = [operators[i].critical_s for i in members]
        part = PartCost(
            name=name,
            devices=list(dict.fromkeys(groups[i].device for i in working)),
            operators=len(working),
            launches=int(sum(launches[i] for i in members)),
            launch_s=launch_s,
            latency_s=None if None in critical_s else launch_s + sum(filter(None, critical_s)),
            energy_j=sum(operators[i].energy_j for i in members),
            dram_bytes=sum(operators[i].dram_bytes for i in members),
            constants_bytes=constants[name],
        )
        costs.append(part)
    return costs


def language_figures(mapped: Mapped, latency_s: float, energy_j: float) -> LanguageFigures | None:
    """Return the figures per token of a language model; None for other networks."""
    tokens, prompt = mapped.graph.meta.new_tokens, mapped.graph.meta.prompt_tokens
    if tokens is None or prompt is None:
        return None
    return LanguageFigures(
        tokens=tokens,
        prompt_tokens=prompt,
        token_s=latency_s / tokens,
        tokens_per_s=tokens / latency_s,
        energy_per_token_j=energy_j / tokens,
        time_to_first_token_s=ceil(prompt / tokens) * latency_s,
    )


def launch_each_s(mapped: Mapped, group: Group) -> float:
    """Return the time of one runtime call for a group's device (s); for a view, of the first NPU."""
    device = group.device or next(iter(mapped.arch.arrays), "")
    return float(mapped.arch[device]["launch_s"]) if device else 0.0


def _constants_bytes(mapped: Mapped) -> dict[str, float]:
    """Return the bytes of the constants that each part reads."""
    graph, constants = mapped.graph, {}
    root = roots(graph, mapped.decisions.groups)
    for name in graph.parts:
        read = {stored for op in graph if op.part == name for t in op.inputs for stored in root[t]}
        tensors = (graph.tensors[stored] for stored in sorted(read))
        constants[name] = float(sum(t.stored_bytes for t in tensors if t.kind is TensorKind.CONSTANT))
    return constants


def _compilation(mapped: Mapped, constants: dict[str, float]) -> Compilation | None:
    """Return time and memory of compiling; None without a compiler in the data sheet.

    `constants` are the bytes of constants by part. Parts are compiled one after the other, and stay loaded.
    """
    seconds: list[_Term] = []
    peak: list[_Term] = []
    loaded_bytes, largest, tools = 0.0, "", list[Toolchain]()
    on_arrays = (group for group in mapped.decisions.groups if group.unit.is_array)
    places = Counter((mapped.graph.operators[group.main].part, group.device) for group in on_arrays)
    for (part, device), operators in sorted(places.items(), key=lambda p: mapped.graph.parts.index(p[0][0])):
        toolchain = getattr(mapped.soc.array_devices[device], "toolchain", None)
        if toolchain is None:
            continue
        tool = _tool(toolchain)
        tools.append(tool)
        seconds.append((float(tool.compile_fixed), tool.compile_fixed))
        seconds.append((operators * tool.compile_per_operator, tool.compile_per_operator))
        seconds.append((constants[part] / tool.compile_bandwidth, tool.compile_bandwidth))
        terms: list[_Term] = [
            (float(tool.memory_fixed), tool.memory_fixed),
            (tool.memory_per_constant_byte * constants[part], tool.memory_per_constant_byte),
            (loaded_bytes, Quantity(0.0, "B", source="compiled before")),
        ]
        if _sum(terms) > _sum(peak):
            peak, largest = terms, part
        loaded_bytes += tool.version_bytes(operators, constants[part])
    if not tools:
        return None
    is_memory_known = tools[0].memory_per_constant_byte > 0.0
    return Compilation(
        toolchain=tools[0].name,
        models=len(tools),
        compile_s=_sum(seconds),
        compile_interval_s=_interval(seconds),
        memory_peak_bytes=_sum(peak) if is_memory_known else None,
        memory_peak_interval_bytes=_interval(peak) if is_memory_known else None,
        largest_part=largest,
        source=str(tools[0].memory_per_constant_byte.source),
    )


def _memory_warnings(compilation: Compilation | None, soc: Soc) -> list[str]:
    """Return a warning where compiling may take more memory than the machine has."""
    if compilation is None or compilation.memory_peak_interval_bytes is None:
        return []
    if (compilation.memory_peak_bytes or 0.0) <= soc.dram.capacity:
        return []
    low, high = (bound / 1e9 for bound in compilation.memory_peak_interval_bytes)
    part = f" {compilation.largest_part}" if compilation.largest_part else ""
    return [
        f"compiling{part} may take {low:.2g} to {high:.2g} GB of memory (90 %), and {soc.name} has "
        f"{soc.dram.capacity.text}: compile it in more parts (workload.chunks), or elsewhere"
    ]


def _sum(terms: list[_Term]) -> float:
    return float(sum(value for value, _ in terms))


def _interval(terms: list[_Term]) -> tuple[float, float]:
    """Return the 90 % interval of a sum whose terms depend on numbers with log-normal errors."""
    total = _sum(terms)
    by_number: dict[tuple[float, str], float] = {}
    for value, number in terms:
        sigma = sqrt(log1p((number.uncertainty or 0.0) ** 2))
        key = (float(number), str(number.source))
        by_number[key] = by_number.get(key, 0.0) + value * sigma / total
    spread = exp(_NINETY * sqrt(sum(share**2 for share in by_number.values())))
    return total / spread, total * spread
