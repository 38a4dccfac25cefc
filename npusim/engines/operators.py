"""Rows of an estimate: cost, mapping, power and roofline of each operator.

In the roofline (Williams et al., CACM 2009) an operator is a point: the operations per second that it attains
over its operations per byte of a memory level. It lies below a ceiling of its unit's arithmetic in its
format, and below intensity times the bandwidth of each level. A multiply-accumulate is two operations, work
on an element one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npusim.arch import Npu, outer_levels
from npusim.cost import (
    DDR2CMX,
    MAC_FORMATS,
    Bound,
    DpuOperation,
    Group,
    HostFormat,
    Order,
    Split,
    Unit,
    dma_bytes_per_s,
    macs_per_s,
)
from npusim.engines.estimate import (
    Ceiling,
    CriticalTime,
    EnergyOfWork,
    Mapping,
    OperatorCost,
    Roofline,
    RooflinePoint,
)
from npusim.mapping import Mapped

_FIGURES = (
    "latency_s",
    "energy_j",
    "dram_bytes",
    "dram_read_bytes",
    "level_bytes",
    "sram_read_bytes",
    "sram_written_bytes",
)
_PRODUCTS = (DpuOperation.MATMUL, DpuOperation.CONVOLUTION)
_BUSY = ("dpu_s", "dsp_s", "dma_s", "host_s")
# What the read ports of SRAM feed, each at its own rate.
_READERS = ("act", "weight", "channelwise", "eltwise")
_ITEMS = {"int4": 0.5, "int8": 1.0, "fp16": 2.0, "fp32": 4.0}
_HOST_FORMATS = {
    "int8": HostFormat.INTEGER,
    "fp16": HostFormat.FP16,
    "bf16": HostFormat.BF16,
    "fp32": HostFormat.FP32,
}


def operator_cost(mapped: Mapped, index: int, group: Group, span_s: float) -> OperatorCost:
    """Return the estimate's row of one group: cost, mapping, power and bound of its main operator.

    `index` is the place of `group` in the operator table; `span_s` as in `OperatorCost`.
    """
    result: Any = mapped.results[index]
    op, row = mapped.graph.operators[group.main], mapped.lowered.ops[index]
    latency_s, energy_j = float(result["latency_s"]), float(result["energy_j"])
    region = mapped.graph.regions[op.name]
    return OperatorCost(
        name=op.name,
        type=op.type,
        region=op.region,
        block=region.block,
        phase=region.phase,
        control_flow=op.traits.control_flow,
        fused=list(group.fused),
        unit=group.path,
        **{name: float(result[name]) for name in _FIGURES},
        prefetched_bytes=_prefetched_bytes(mapped, group, float(result["ahead_s"])),
        busy_s=max(float(result[column]) for column in _BUSY),
        critical_s=float(result["critical_s"]) if mapped.run.requests == 1 else None,
        critical=_critical(mapped, group, row, result) if mapped.run.requests == 1 else None,
        span_s=float(span_s),
        energy=EnergyOfWork(**{name: float(result[name]) for name in EnergyOfWork.model_fields}),
        power_w=_package_w(mapped, group.device, energy_j / latency_s) if latency_s > 0.0 else 0.0,
        macs=mapped.graph.macs_of(op),
        grid_utilisation=_on_grid_s(mapped, group, row) / latency_s if group.unit is Unit.DPU else None,
        part=op.part,
        repeats=op.repeats,
        precision=mapped.graph.precision_of(op),
        mapping=_mapping(mapped, index) if group.unit.is_array else None,
        swapped=group.swapped,
        bound=Bound(int(result["bound"])).name.lower(),
    )


def _prefetched_bytes(mapped: Mapped, group: Group, ahead_s: float) -> float:
    """Return the bytes that all DMA engines fetch in a time."""
    if ahead_s <= 0.0:
        return 0.0
    arch = mapped.arch[group.device]
    return ahead_s * float(dma_bytes_per_s(arch, DDR2CMX, float(arch["dma_engines"])))


def _critical(mapped: Mapped, group: Group, row: Any, result: Any) -> CriticalTime:
    """Return an operator's part of the critical path by cause; operators of a fusion work side by side."""
    critical_s, calls_s = float(result["critical_s"]), 0.0
    if group.unit.is_host:
        return CriticalTime(work_s=critical_s, calls_s=0.0, waits_s=0.0)
    if group.unit.is_array:
        calls_s = float(row["repeats"] * row["dispatches"] * mapped.arch[group.device]["dispatch_s"])
    calls_s = min(critical_s, calls_s)
    busy_s = {Unit.DPU: float(result["dpu_s"]), Unit.DSP: float(result["dsp_s"])}.get(group.unit, 0.0)
    work_s = min(critical_s - calls_s, busy_s)
    return CriticalTime(work_s=work_s, calls_s=calls_s, waits_s=critical_s - calls_s - work_s)


def _package_w(mapped: Mapped, device: str, work_w: float) -> float:
    """Return the package power (W) while one device alone works, at `work_w` of dynamic power."""
    arch = mapped.arch
    static_w = float(arch[device]["static_w"]) if device in arch.arrays else 0.0
    return work_w + static_w + float(arch.shared["idle_w"])


def _on_grid_s(mapped: Mapped, group: Group, row: Any) -> float:
    """Return the ideal time of an operator (s): all multipliers of the tiles in use busy at all times."""
    if row["macs"] <= 0.0:
        return 0.0
    macs_per_s = _multiplier_macs_per_s(mapped.arch[group.device], float(row["a_item"]))
    return _performed_macs(row) / (macs_per_s * float(row["mac_rate"]))


def grid_utilisation(mapped: Mapped, interval_s: float) -> float:
    """Return the mean share of the multipliers that are busy over the interval between inferences."""
    needed_s: dict[str, float] = {}
    for group, row in zip(mapped.decisions.groups, mapped.lowered.ops, strict=True):
        if group.unit is Unit.DPU:
            needed_s[group.device] = needed_s.get(group.device, 0.0) + _on_grid_s(mapped, group, row)
    contexts = sum(float(mapped.arch[device]["contexts"]) for device in needed_s)
    return sum(needed_s.values()) / (interval_s * contexts) if needed_s else 0.0


def _mapping(mapped: Mapped, index: int) -> Mapping:
    group, row, result = mapped.decisions.groups[index], mapped.lowered.ops[index], mapped.results[index]
    is_product = row["unit"] == Unit.DPU and row["dpu_operation"] in _PRODUCTS
    modes = list(mapped.soc.array_devices[group.device].dpu.modes)
    order = Order(int(result["order"])).name.lower()
    return Mapping(
        split=Split(int(result["split"])).name.lower(),
        tiles=int(result["tiles"]),
        mpe_mode=modes[min(int(result["mode"]), len(modes) - 1)] if is_product else None,
        order=order if is_product else None,
        rows=int(result["tile_rows"]),
        columns=int(result["tile_columns"]),
        depth=int(row["in_c"]) if is_product else 1,
        row_blocks=int(result["row_blocks"]),
        column_blocks=int(result["column_blocks"]),
        depth_blocks=int(result["channel_chunks"]),
        strips=int(result["strips"]),
        buffers=int(result["buffers"]),
        bands=max(1, int(row["batch"])) if row["bands"] else 1,
        segment=_segment(mapped, int(row["fused_chain"])),
    )


def _segment(mapped: Mapped, chain: int) -> str:
    """Return the first operator of a chain of fused operators; empty for no chain."""
    if not chain:
        return ""
    first = int(np.argmax(mapped.lowered.ops["fused_chain"] == chain))
    return mapped.decisions.groups[first].main


def peak_power_w(mapped: Mapped) -> float:
    """Return the highest mean power over an operator; operators fused row by row count as one.

    With several inferences in flight all devices work at a time, and all contexts of an NPU.
    """
    several = mapped.run.requests > 1
    chains, results = mapped.lowered.ops["fused_chain"], mapped.results
    phases = [[i] for i in np.flatnonzero(chains == 0).tolist()]
    phases += [np.flatnonzero(chains == chain).tolist() for chain in dict.fromkeys(chains[chains > 0])]
    highest: dict[str, float] = {}
    for members in phases:
        device = mapped.decisions.groups[members[0]].device
        column = "latency_s" if chains[members[0]] == 0 else "critical_s"
        energy_j, time_s = float(results["energy_j"][members].sum()), float(results[column][members].sum())
        if time_s > 0.0:
            contexts = (
                float(mapped.arch[device]["contexts"]) if device in mapped.arch.arrays and several else 1.0
            )
            highest[device] = max(highest.get(device, 0.0), energy_j / time_s * contexts)
    idle_w = float(mapped.arch.shared["idle_w"])
    powers = [_package_w(mapped, device, work_w) - idle_w for device, work_w in highest.items()]
    return idle_w + (sum(powers) if several else max(powers, default=0.0))


def roofline(mapped: Mapped) -> Roofline:
    """Return the roofline of a mapped graph, by the times of the analytical engine."""
    devices = mapped.soc.array_devices
    arrays = (
        c for name in mapped.arch.arrays for c in _array_ceilings(devices[name], name, mapped.arch[name])
    )
    levels = (
        _memory(f"{name} {level}", name, level, mapped.arch[name]["level_bytes_per_s"][k])
        for name, level, k in levels_of(mapped)
    )
    ceilings = [*arrays, *levels, *_host_ceilings(mapped)]
    points = (roofline_point(mapped, i, ceilings) for i in range(len(mapped.decisions.groups)))
    return Roofline(ceilings=ceilings, points=[point for point in points if point is not None])


def levels_of(mapped: Mapped) -> Iterator[tuple[str, str, int]]:
    """Yield each memory level that has room: its array device, its name, and its place, 0 for the nearest."""
    for name, device in mapped.soc.array_devices.items():
        for k, (level, declared) in enumerate(outer_levels(device, mapped.soc.levels).items()):
            if declared.capacity > 0.0:
                yield name, level, k


def _multiplier_macs_per_s(arch: Any, item_bytes: float) -> float:
    """Return the multiply-accumulates per second of all tiles in use, by bytes of an operand."""
    form = next((i for i, size in enumerate(_ITEMS.values()) if item_bytes <= size), len(_ITEMS) - 1)
    return macs_per_s(arch, arch["dpu_mac_bytes_per_cycle"][form] / item_bytes, arch["tiles"])


def _performed_macs(op: Any) -> float:
    """Return the multiply-accumulates that the grid performs over all repeats, skipped zeros excluded."""
    return float(op["repeats"] * op["macs"] * min(op["a_density"], op["b_density"]))


def _array_ceilings(device: Npu, name: str, arch: Any) -> Iterator[Ceiling]:
    for form in MAC_FORMATS:
        if arch[f"mpe_macs_{form}"] > 0.0:
            yield _arithmetic(f"{name}.dpu", form, 2.0 * _multiplier_macs_per_s(arch, _ITEMS[form]))
    if device.has_vector_units:
        lanes = arch["dsp_lanes"] * arch["dsps_per_tile"] * arch["tiles"]
        yield _arithmetic(f"{name}.dsp", None, float(2.0 * lanes * arch["vpu_clock_hz"]))
    rates = (arch[f"dpu_{part}_bytes_per_port_cycle"] for part in _READERS)
    reads = arch["dpu_read_ports"] * max(float(rate) for rate in rates)
    writes = arch["dpu_write_ports"] * arch["dpu_drain_bytes_per_port_cycle"]
    if arch["array"]["axes"] > 0.0:  # whole words through each port, read and written
        words = arch["dpu_read_ports"] * arch["dpu_sram_word_bytes"]
        reads, writes = max(reads, words), max(writes, words)
    ports = (reads + writes) * arch["tiles"] * arch["dpu_clock_hz"]
    yield _memory(f"{name} SRAM ports", f"{name}.dpu", "sram", ports)
    width = arch["dma_engines"] * arch["dma_engine_bytes_per_cycle"] * arch["vpu_clock_hz"]
    yield _memory(f"{name} DMA", name, "dram", width)
    yield _memory(f"{name} DRAM", name, "dram", arch["dram_bytes_per_s"])


def _host_ceilings(mapped: Mapped) -> Iterator[Ceiling]:
    for unit in mapped.arch.hosts:
        host = mapped.arch[unit]
        for name, form in _HOST_FORMATS.items():
            rate = float(host["macs_per_cycle"][form])
            yield _arithmetic(unit, name, 2.0 * rate * float(host["cores"] * host["clock_hz"]))
        nearest = min(float(seconds) for seconds in host["level_s_per_byte"])
        yield _memory(f"{unit} cache", unit, "cache", 1.0 / nearest)
        yield _memory(f"{unit} DRAM", unit, "dram", host["bytes_per_s"])


def _arithmetic(unit: str, precision: str | None, ops_per_s: float) -> Ceiling:
    name = f"{unit} {precision}" if precision else unit
    return Ceiling(
        name=name, unit=unit, precision=precision, level=None, ops_per_s=ops_per_s, bytes_per_s=None
    )


def _memory(name: str, unit: str, level: str, bytes_per_s: float) -> Ceiling:
    rate = float(bytes_per_s)
    return Ceiling(name=name, unit=unit, precision=None, level=level, ops_per_s=None, bytes_per_s=rate)


def roofline_point(mapped: Mapped, index: int, ceilings: list[Ceiling]) -> RooflinePoint | None:
    """Return the roofline point of a group; None where it computes nothing or takes no time."""
    group = mapped.decisions.groups[index]
    time_s = float(mapped.results[index]["latency_s"])
    ops, traffic = _ops_and_bytes(mapped, index, group.unit)
    if ops <= 0.0 or time_s <= 0.0:
        return None
    row = mapped.lowered.ops[index]
    form = _form(row, group.unit)
    intensity = {level: ops / bytes_ for level, bytes_ in traffic.items() if bytes_ > 0.0}
    bounds: dict[str, float] = {}
    for ceiling in ceilings:
        if ceiling.unit not in (group.path, group.device) or ceiling.precision not in (None, form):
            continue
        if ceiling.ops_per_s is not None:
            bounds[ceiling.name] = ceiling.ops_per_s * float(row["mac_rate"])
        elif ceiling.level in intensity:
            bounds[ceiling.name] = intensity[ceiling.level] * (ceiling.bytes_per_s or 0.0)
    limit = min(bounds, key=bounds.__getitem__)
    return RooflinePoint(
        operator=group.main,
        unit=group.path,
        precision=mapped.graph.precision_of(mapped.graph.operators[group.main]),
        ops=ops,
        ops_per_s=ops / time_s,
        intensity=intensity,
        ceiling_ops_per_s=bounds[limit],
        limit=limit,
    )


def _form(op: Any, unit: Unit) -> str:
    """Return the number format of the ceiling that bounds an operator."""
    if unit.is_host:
        return next((name for name, form in _HOST_FORMATS.items() if form == op["host_format"]), "fp16")
    return next((name for name, size in _ITEMS.items() if op["a_item"] <= size), "fp32")


def _ops_and_bytes(mapped: Mapped, index: int, unit: Unit) -> tuple[float, dict[str, float]]:
    """Return the operations of a group over all repeats, and its bytes at each memory level."""
    op, result = mapped.lowered.ops[index], mapped.results[index]
    repeats = float(op["repeats"])
    if unit in (Unit.VIEW, Unit.DMA):
        return 0.0, {}
    if unit.is_host:
        touched, macs = float(op["host_read_bytes"] + op["host_written_bytes"]), float(op["host_macs"])
        ops = 2.0 * macs if macs else float(op["elements"])
        return repeats * ops, {"cache": repeats * touched, "dram": float(result["streamed_bytes"])}
    dram, device = float(result["dram_bytes"]), mapped.decisions.groups[index].device
    outside = {"dram": dram} | {
        level: float(result["through_bytes"][k]) for name, level, k in levels_of(mapped) if name == device
    }
    if unit is Unit.DSP:
        return repeats * max(2.0 * float(op["macs"]), float(op["elements"])), outside
    sram = (
        float(result["sram_read_bytes"] + result["sram_written_bytes"]) - dram - float(result["level_bytes"])
    )
    ops = 2.0 * _performed_macs(op) if op["macs"] else repeats * float(op["elements"])
    return ops, {"sram": sram, **outside}
