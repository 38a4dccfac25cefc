"""Rows of an estimate: cost, mapping, power and roofline of each operator.

In the roofline (Williams et al., CACM 2009) an operator is a point: the operations per second that it attains
over its operations per byte of a memory level. It lies below a ceiling of its unit's arithmetic in its
format, and below intensity times the bandwidth of each level. A multiply-accumulate is two operations, work
on an element one.

No mapping does with less DRAM traffic than the *compulsory* bytes: each constant and each input read once,
each output written once. An intermediate result that is written to DRAM is *spilled*, and so is its first
read back. Every other read fetches bytes a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npusim import cost
from npusim.arch import Npu, outer_levels
from npusim.engines.estimate import (
    Ceiling,
    CriticalTime,
    DramByKind,
    EnergyOfWork,
    Mapping,
    OperatorCost,
    Roofline,
    RooflinePoint,
)
from npusim.mapping import Mapped
from npusim.ops import TensorKind

_FIGURES = (
    "latency_s",
    "energy_j",
    "dram_bytes",
    "dram_read_bytes",
    "level_bytes",
    "sram_read_bytes",
    "sram_written_bytes",
)
_PRODUCTS = (cost.DpuOperation.MATMUL, cost.DpuOperation.CONVOLUTION)
_BUSY = ("dpu_s", "dsp_s", "dma_s", "host_s")
# What the read ports of SRAM feed, each at its own rate.
_READERS = ("act", "weight", "channelwise", "eltwise")
_ITEMS = {"int4": 0.5, "int8": 1.0, "fp16": 2.0, "fp32": 4.0}
_HOST_FORMATS = {
    "int8": cost.HostFormat.INTEGER,
    "fp16": cost.HostFormat.FP16,
    "bf16": cost.HostFormat.BF16,
    "fp32": cost.HostFormat.FP32,
}


def operator_cost(mapped: Mapped, index: int, group: cost.Group, span_s: float) -> OperatorCost:
    """Return the estimate's row of one group: cost, mapping, power and bound of its main operator.

    `index` is the place of `group` in the operator table; `span_s` as in `OperatorCost`.
    """
    result: Any = mapped.results[index]
    op, row = mapped.graph.operators[group.main], mapped.lowered.ops[index]
    latency_s, energy_j = float(result["latency_s"]), float(result["energy_j"])
    region, prefetched_bytes = mapped.graph.regions[op.name], 0.0
    if result["ahead_s"] > 0.0:
        arch = mapped.arch[group.device]
        rate = cost.dma_bytes_per_s(arch, cost.DDR2CMX, float(arch["dma_engines"]))
        prefetched_bytes = float(result["ahead_s"]) * float(rate)
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
        prefetched_bytes=prefetched_bytes,
        busy_s=max(float(result[column]) for column in _BUSY),
        critical_s=float(result["critical_s"]) if mapped.run.requests == 1 else None,
        critical=_critical(mapped, group, row, result) if mapped.run.requests == 1 else None,
        span_s=float(span_s),
        energy=EnergyOfWork(**{name: float(result[name]) for name in EnergyOfWork.model_fields}),
        power_w=_package_w(mapped, group.device, energy_j / latency_s) if latency_s > 0.0 else 0.0,
        macs=mapped.graph.macs_of(op),
        grid_utilisation=_on_grid_s(mapped, group, row) / latency_s if group.unit is cost.Unit.DPU else None,
        part=op.part,
        repeats=op.repeats,
        precision=mapped.graph.precision_of(op),
        mapping=_mapping(mapped, index) if group.unit.is_array else None,
        swapped=group.swapped,
        bound=cost.Bound(int(result["bound"])).name.lower(),
    )


def _critical(mapped: Mapped, group: cost.Group, row: Any, result: Any) -> CriticalTime:
    """Return an operator's part of the critical path by cause; operators of a fusion work side by side."""
    critical_s, calls_s = float(result["critical_s"]), 0.0
    if group.unit.is_host:
        return CriticalTime(work_s=critical_s, calls_s=0.0, waits_s=0.0)
    if group.unit.is_array:
        calls_s = float(row["repeats"] * row["dispatches"] * mapped.arch[group.device]["dispatch_s"])
    calls_s = min(critical_s, calls_s)
    column = {cost.Unit.DPU: "dpu_s", cost.Unit.DSP: "dsp_s"}.get(group.unit)
    busy_s = float(result[column]) if column is not None else 0.0
    work_s = min(critical_s - calls_s, busy_s)
    return CriticalTime(work_s=work_s, calls_s=calls_s, waits_s=critical_s - calls_s - work_s)


def _package_w(mapped: Mapped, device: str, work_w: float) -> float:
    """Return the package power (W) while one device alone works, at `work_w` of dynamic power."""
    arch = mapped.arch
    static_w = float(arch[device]["static_w"]) if device in arch.arrays else 0.0
    return work_w + static_w + float(arch.shared["idle_w"])


def _on_grid_s(mapped: Mapped, group: cost.Group, row: Any) -> float:
    """Return the ideal time of an operator (s): all multipliers of the tiles in use busy at all times."""
    if row["macs"] <= 0.0:
        return 0.0
    rate = _multiplier_macs_per_s(mapped.arch[group.device], float(row["a_item"]))
    return _performed_macs(row) / (rate * float(row["mac_rate"]))


def grid_utilisation(mapped: Mapped, interval_s: float) -> float:
    """Return the mean share of the multipliers that are busy over the interval between inferences."""
    needed_s: dict[str, float] = {}
    for group, row in zip(mapped.decisions.groups, mapped.lowered.ops, strict=True):
        if group.unit is cost.Unit.DPU:
            needed_s[group.device] = needed_s.get(group.device, 0.0) + _on_grid_s(mapped, group, row)
    contexts = sum(float(mapped.arch[device]["contexts"]) for device in needed_s)
    return sum(needed_s.values()) / (interval_s * contexts) if needed_s else 0.0


def _mapping(mapped: Mapped, index: int) -> Mapping:
    group, row, result = mapped.decisions.groups[index], mapped.lowered.ops[index], mapped.results[index]
    is_product = row["unit"] == cost.Unit.DPU and row["dpu_operation"] in _PRODUCTS
    modes = list(mapped.soc.array_devices[group.device].dpu.modes)
    chains, chain = mapped.lowered.ops["fused_chain"], int(row["fused_chain"])
    order = cost.Order(int(result["order"])).name.lower()
    return Mapping(
        split=cost.Split(int(result["split"])).name.lower(),
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
        segment=mapped.decisions.groups[int(np.argmax(chains == chain))].main if chain else "",
    )


def peak_power_w(mapped: Mapped) -> float:
    """Return the highest mean power over an operator; operators fused row by row count as one.

    With several inferences in flight all devices work at a time, and all contexts of an NPU.
    """
    several = mapped.run.requests > 1
    chains, results, arch = mapped.lowered.ops["fused_chain"], mapped.results, mapped.arch
    phases = [[i] for i in np.flatnonzero(chains == 0).tolist()]
    phases += [np.flatnonzero(chains == chain).tolist() for chain in dict.fromkeys(chains[chains > 0])]
    highest_w: dict[str, float] = {}
    for members in phases:
        device = mapped.decisions.groups[members[0]].device
        column = "latency_s" if chains[members[0]] == 0 else "critical_s"
        time_s = float(results[column][members].sum())
        if time_s > 0.0:
            contexts = float(arch[device]["contexts"]) if device in arch.arrays and several else 1.0
            power_w = float(results["energy_j"][members].sum()) / time_s * contexts
            highest_w[device] = max(highest_w.get(device, 0.0), power_w)
    idle_w = float(arch.shared["idle_w"])
    powers = [_package_w(mapped, device, work_w) - idle_w for device, work_w in highest_w.items()]
    return idle_w + (sum(powers) if several else max(powers, default=0.0))


def roofline(mapped: Mapped) -> Roofline:
    """Return the roofline of a mapped graph, by the times of the analytical engine."""
    devices, arch = mapped.soc.array_devices, mapped.arch
    ceilings = [c for name in arch.arrays for c in _array_ceilings(devices[name], name, arch[name])]
    ceilings += [
        _memory(f"{name} {level}", name, level, arch[name]["level_bytes_per_s"][k])
        for name, level, k in levels_of(mapped)
    ]
    ceilings += [c for name in arch.hosts for c in _host_ceilings(name, arch[name])]
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
    return cost.macs_per_s(arch, arch["dpu_mac_bytes_per_cycle"][form] / item_bytes, arch["tiles"])


def _performed_macs(op: Any) -> float:
    """Return the multiply-accumulates that the grid performs over all repeats, skipped zeros excluded."""
    return float(op["repeats"] * op["macs"] * min(op["a_density"], op["b_density"]))


def _array_ceilings(device: Npu, name: str, arch: Any) -> Iterator[Ceiling]:
    for form in cost.MAC_FORMATS:
        if arch[f"mpe_macs_{form}"] > 0.0:
            yield _arithmetic(f"{name}.dpu", form, _multiplier_macs_per_s(arch, _ITEMS[form]))
    if device.has_vector_units:
        lanes = arch["dsp_lanes"] * arch["dsps_per_tile"] * arch["tiles"]
        yield _arithmetic(f"{name}.dsp", None, lanes * arch["vpu_clock_hz"])
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


def _host_ceilings(name: str, host: Any) -> Iterator[Ceiling]:
    for form, number in _HOST_FORMATS.items():
        rate = float(host["macs_per_cycle"][number])
        yield _arithmetic(name, form, rate * float(host["cores"] * host["clock_hz"]))
    yield _memory(f"{name} cache", name, "cache", 1.0 / min(map(float, host["level_s_per_byte"])))
    yield _memory(f"{name} DRAM", name, "dram", host["bytes_per_s"])


def _arithmetic(unit: str, precision: str | None, macs_per_s: float) -> Ceiling:
    name = f"{unit} {precision}" if precision else unit
    return Ceiling(name=name, unit=unit, precision=precision, ops_per_s=float(2.0 * macs_per_s))


def _memory(name: str, unit: str, level: str, bytes_per_s: float) -> Ceiling:
    return Ceiling(name=name, unit=unit, level=level, bytes_per_s=float(bytes_per_s))


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


def _form(op: Any, unit: cost.Unit) -> str:
    """Return the number format of the ceiling that bounds an operator."""
    if unit.is_host:
        return next((name for name, form in _HOST_FORMATS.items() if form == op["host_format"]), "fp16")
    return next((name for name, size in _ITEMS.items() if op["a_item"] <= size), "fp32")


def _ops_and_bytes(mapped: Mapped, index: int, unit: cost.Unit) -> tuple[float, dict[str, float]]:
    """Return the operations of a group over all repeats, and its bytes at each memory level."""
    op, result = mapped.lowered.ops[index], mapped.results[index]
    repeats = float(op["repeats"])
    if unit in (cost.Unit.VIEW, cost.Unit.DMA):
        return 0.0, {}
    if unit.is_host:
        touched, macs = float(op["host_read_bytes"] + op["host_written_bytes"]), float(op["host_macs"])
        ops = 2.0 * macs if macs else float(op["elements"])
        return repeats * ops, {"cache": repeats * touched, "dram": float(result["streamed_bytes"])}
    dram, device = float(result["dram_bytes"]), mapped.decisions.groups[index].device
    outside = {"dram": dram} | {
        level: float(result["through_bytes"][k]) for name, level, k in levels_of(mapped) if name == device
    }
    if unit is cost.Unit.DSP:
        return repeats * max(2.0 * float(op["macs"]), float(op["elements"])), outside
    sram = (
        float(result["sram_read_bytes"] + result["sram_written_bytes"]) - dram - float(result["level_bytes"])
    )
    ops = 2.0 * _performed_macs(op) if op["macs"] else repeats * float(op["elements"])
    return ops, {"sram": sram, **outside}


def dram_by_kind(mapped: Mapped) -> list[DramByKind]:
    """Return the DRAM bytes of each group by kind, over all its repeats."""
    ledger, lowered = _Ledger(mapped), mapped.lowered
    rows = zip(lowered.transfers(), lowered.ops, mapped.results, strict=True)
    return [_kinds(ledger, read, written, op, result) for (read, written), op, result in rows]


def summed_kinds(kinds: list[DramByKind]) -> DramByKind:
    """Return the sum of bytes by kind."""
    return DramByKind(
        **{name: sum(getattr(each, name) for each in kinds) for name in DramByKind.model_fields}
    )


class _Ledger:
    """Which shares of stored tensors are still to be read for the first time."""

    def __init__(self, mapped: Mapped) -> None:
        graph, root = mapped.graph, cost.roots(mapped.graph, mapped.decisions.groups)
        residency = mapped.decisions.residency
        self._tensors, self._in_sram = graph.tensors, residency.whole | residency.row_fused
        self._unread = {
            name: 1.0 for name, tensor in graph.tensors.items() if tensor.kind is not TensorKind.ACTIVATION
        }
        """Share of each input, constant and state; of results, how often they lie in DRAM unread."""
        self._returned: dict[str, float] = {}
        for name in (*graph.outputs, *graph.state_results):
            for stored, share in root[name].items():
                part = graph.tensors[name].bytes * share / max(1.0, graph.tensors[stored].bytes)
                self._returned[stored] = min(1.0, self._returned.get(stored, 0.0) + part)

    def first_read(self, transfer: cost.Transfer, repeats: float) -> tuple[TensorKind, float]:
        """Return the kind of a tensor and the bytes that are read for the first time."""
        kind, unread = self._tensors[transfer.name].kind, self._unread.get(transfer.name, 0.0)
        if transfer.share <= 0.0:
            return kind, 0.0
        share = min(unread, transfer.share * repeats)
        self._unread[transfer.name] = unread - share
        return kind, transfer.bytes * share / transfer.share

    def returned(self, transfer: cost.Transfer, repeats: float) -> float:
        """Enter a result; return its bytes that the network returns."""
        if transfer.name not in self._in_sram:
            self._unread[transfer.name] = repeats
        return transfer.bytes * self._returned.get(transfer.name, 0.0)


def _kinds(
    ledger: _Ledger, read: tuple[cost.Transfer, ...], written: tuple[cost.Transfer, ...], op: Any, result: Any
) -> DramByKind:
    """Return the DRAM bytes of a group by kind."""
    repeats, read_bytes = float(op["repeats"]), float(result["dram_read_bytes"])
    written_bytes = max(0.0, float(result["dram_bytes"]) - read_bytes)
    first = dict.fromkeys(TensorKind, 0.0)
    for transfer in read:
        kind, size = ledger.first_read(transfer, repeats)
        first[kind] += size
    outputs = min(written_bytes, sum(ledger.returned(transfer, repeats) for transfer in written))
    inputs = min(read_bytes, first[TensorKind.INPUT] + first[TensorKind.STATE])
    weights = min(read_bytes - inputs, first[TensorKind.CONSTANT])
    rest = read_bytes - inputs - weights
    served = 0.0
    if op["unit"] != cost.Unit.HOST:
        not_written = max(0.0, repeats * float(op["c_dram_bytes"]) - written_bytes)
        served = max(0.0, float(result["level_bytes"]) - not_written)
    back = first[TensorKind.ACTIVATION] * rest / (rest + served) if rest > 0.0 else 0.0
    back = min(rest, back)
    return DramByKind(
        compulsory_weights_bytes=weights,
        compulsory_activations_bytes=inputs + outputs,
        refetched_bytes=rest - back,
        spilled_bytes=written_bytes - outputs + back,
    )
