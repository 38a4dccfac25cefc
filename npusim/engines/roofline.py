"""Roofline of a mapped graph: ceilings of the devices, and how near to them each operator comes.

An operator is a point: operations a second it attains over operations for each byte of a memory level. It
lies below a ceiling of its unit's arithmetic in its format, and below intensity times the bandwidth of each
level (Williams et al., CACM 2009). A multiply-accumulate is two operations, work on an element one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npusim.cost import MAC_FORMATS, Group, HostFormat, Unit
from npusim.documents import Part
from npusim.mapping import Mapped

_READERS = ("act", "weight", "channelwise", "eltwise")
"""What the read ports of SRAM feed, each at a rate of its own."""
_ITEMS = {"int4": 0.5, "int8": 1.0, "fp16": 2.0, "fp32": 4.0}


class Ceiling(Part):
    """Most that a unit can do: operations a second in a format, or bytes a second at a memory level."""

    name: str
    """What pages call it, such as `npu.dpu int8` or `npu DRAM`."""
    unit: str
    """Unit whose work it bounds: npu.dpu, npu.dsp, cpu, gpu; npu for both of the NPU's."""
    precision: str | None
    """Format of the operations; null for memory, and for a unit that has one rate for all."""
    level: str | None
    """Memory level: sram, dram, or cache; null for arithmetic."""
    ops_per_s: float | None
    """Operations a second; null for memory."""
    bytes_per_s: float | None
    """Bytes a second; null for arithmetic."""


class RooflinePoint(Part):
    """One operator between the ceilings."""

    operator: str
    """Its name."""
    unit: str
    """Unit that runs it."""
    precision: str
    """Format that it computes in."""
    ops: float
    """Operations that are carried out, skipped zeros left out."""
    ops_per_s: float
    """Rate attained over its time."""
    intensity: dict[str, float]
    """Operations for each byte, by memory level; a level that it moves nothing through is left out. Of a CPU
    or GPU `cache` counts what it reads and writes, `dram` what its caches do not hold."""
    ceiling_ops_per_s: float
    """The lowest ceiling at these intensities."""
    limit: str
    """Name of that ceiling."""


class Roofline(Part):
    """Ceilings and points; the tiles that an inference uses, all cores that work."""

    ceilings: list[Ceiling]
    """Of every device of the machine."""
    points: list[RooflinePoint]
    """Operators that compute, in order of execution."""


def roofline(mapped: Mapped) -> Roofline:
    """Return the roofline of a mapped graph, by the times of the analytical engine."""
    ceilings = [*_npu(mapped), *_hosts(mapped)]
    groups = enumerate(mapped.decisions.groups)
    points = (_point(mapped, i, group, ceilings) for i, group in groups)
    return Roofline(ceilings=ceilings, points=[point for point in points if point is not None])


def multiplier_macs_per_s(arch: Any, item_bytes: float) -> float:
    """Return the multiply-accumulates a second of the grids of all tiles in use, by bytes of an operand."""
    form = next((i for i, size in enumerate(_ITEMS.values()) if item_bytes <= size), len(_ITEMS) - 1)
    mpes = (arch["dpu_vpe"] * arch["dpu_mpe"]) ** 2
    per_cycle = arch["dpu_mac_bytes_per_cycle"][form] / item_bytes * mpes
    return float(per_cycle * arch["tiles"] * arch["dpu_clock_hz"])


def performed_macs(op: Any) -> float:
    """Return the multiply-accumulates that the MAC grid carries out: of the emptier operand's non-zeros.

    Parameters
    ----------
    op : record of OP_DTYPE
    """
    return float(op["repeats"] * op["macs"] * min(op["a_density"], op["b_density"]))


def _npu(mapped: Mapped) -> Iterator[Ceiling]:
    for name in mapped.arch.arrays:
        yield from _array(name, mapped.arch[name])


def _array(name: str, arch: Any) -> Iterator[Ceiling]:
    for form in MAC_FORMATS:
        if arch[f"mpe_macs_{form}"] > 0.0:
            yield _arithmetic(f"{name}.dpu", form, 2.0 * multiplier_macs_per_s(arch, _ITEMS[form]))
    lanes = arch["dsp_lanes"] * arch["dsps_per_tile"] * arch["tiles"]
    yield _arithmetic(f"{name}.dsp", None, float(2.0 * lanes * arch["vpu_clock_hz"]))
    rates = (arch[f"dpu_{part}_bytes_per_port_cycle"] for part in _READERS)
    reads = arch["dpu_read_ports"] * max(float(rate) for rate in rates)
    ports = reads + arch["dpu_write_ports"] * arch["dpu_drain_bytes_per_port_cycle"]
    yield _memory(f"{name} SRAM ports", f"{name}.dpu", "sram", ports * arch["tiles"] * arch["dpu_clock_hz"])
    width = arch["dma_engines"] * arch["dma_engine_bytes_per_cycle"] * arch["vpu_clock_hz"]
    yield _memory(f"{name} DMA", name, "dram", width)
    yield _memory(f"{name} DRAM", name, "dram", arch["dram_bytes_per_s"])


def _hosts(mapped: Mapped) -> Iterator[Ceiling]:
    for unit in mapped.arch.hosts:
        host = mapped.arch[unit]
        rates = {name: float(host["macs_per_cycle"][form]) for name, form in _HOST_FORMATS.items()}
        for name, rate in rates.items():
            yield _arithmetic(unit, name, 2.0 * rate * float(host["cores"] * host["clock_hz"]))
        nearest = min(float(s) for s in host["level_s_per_byte"])
        yield _memory(f"{unit} cache", unit, "cache", 1.0 / nearest)
        yield _memory(f"{unit} DRAM", unit, "dram", host["bytes_per_s"])


_HOST_FORMATS = {
    "int8": HostFormat.INTEGER, "fp16": HostFormat.FP16, "bf16": HostFormat.BF16, "fp32": HostFormat.FP32,
}  # fmt: skip


def _arithmetic(unit: str, precision: str | None, ops_per_s: float) -> Ceiling:
    name = f"{unit} {precision}" if precision else unit
    return Ceiling(
        name=name, unit=unit, precision=precision, level=None, ops_per_s=ops_per_s, bytes_per_s=None
    )


def _memory(name: str, unit: str, level: str, bytes_per_s: float) -> Ceiling:
    return Ceiling(
        name=name, unit=unit, precision=None, level=level, ops_per_s=None, bytes_per_s=float(bytes_per_s)
    )


def _point(mapped: Mapped, index: int, group: Group, ceilings: list[Ceiling]) -> RooflinePoint | None:
    """Return the point of an operator; None where it computes nothing."""
    op, result = mapped.lowered.ops[index], mapped.results[index]
    time_s = float(result["latency_s"])
    ops, traffic = _work(mapped, index, group.unit)
    if ops <= 0.0 or time_s <= 0.0:
        return None
    unit = group.path
    form = _form(op, group.unit)
    mine = [c for c in ceilings if c.unit in (unit, group.device) and c.precision in (None, form)]
    intensity = {level: ops / amount for level, amount in traffic.items() if amount > 0.0}
    bounds = {
        c.name: c.ops_per_s if c.ops_per_s is not None else intensity[str(c.level)] * (c.bytes_per_s or 0.0)
        for c in mine
        if c.level is None or c.level in intensity
    }
    limit = min(bounds, key=bounds.__getitem__)
    return RooflinePoint(
        operator=group.main,
        unit=unit,
        precision=mapped.graph.precision_of(mapped.graph.operators[group.main]),
        ops=ops,
        ops_per_s=ops / time_s,
        intensity=intensity,
        ceiling_ops_per_s=bounds[limit],
        limit=limit,
    )


def _form(op: Any, unit: Unit) -> str:
    """Return the format of an operator's ceiling."""
    if unit.is_host:
        return next((name for name, form in _HOST_FORMATS.items() if form == op["host_format"]), "fp16")
    return next((name for name, size in _ITEMS.items() if op["a_item"] <= size), "fp32")


def _work(mapped: Mapped, index: int, unit: Unit) -> tuple[float, dict[str, float]]:
    """Return the operations of an operator, and its bytes at each memory level."""
    op, result = mapped.lowered.ops[index], mapped.results[index]
    times = float(op["repeats"])
    if unit in (Unit.VIEW, Unit.DMA):
        return 0.0, {}
    if unit.is_host:
        touched, macs = float(op["host_read_bytes"] + op["host_written_bytes"]), float(op["host_macs"])
        ops = 2.0 * macs if macs else float(op["elements"])
        return times * ops, {"cache": times * touched, "dram": float(result["streamed_bytes"])}
    dram = float(result["dram_bytes"])
    if unit is Unit.DSP:
        return times * max(2.0 * float(op["macs"]), float(op["elements"])), {"dram": dram}
    sram = float(result["sram_read_bytes"] + result["sram_written_bytes"]) - dram
    ops = 2.0 * performed_macs(op) if op["macs"] else times * float(op["elements"])
    return ops, {"sram": sram, "dram": dram}
