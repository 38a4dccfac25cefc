"""Rows of an estimate: what each operator costs, how it is mapped, and the power that it draws."""

from __future__ import annotations

from typing import Any

from npusim.cost import Bound, DpuOperation, Group, Order, Split, Unit
from npusim.engines.estimate import EnergyOfWork, Mapping, OperatorCost
from npusim.engines.roofline import multiplier_macs_per_s, performed_macs
from npusim.mapping import Mapped

_ENERGIES = tuple(EnergyOfWork.model_fields)
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


def operator_cost(mapped: Mapped, index: int, group: Group, span_s: float) -> OperatorCost:
    """Return what one operator costs, given its span (s)."""
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
        busy_s=max(float(result[column]) for column in _BUSY),
        critical_s=float(result["critical_s"]) if mapped.run.requests == 1 else None,
        span_s=float(span_s),
        energy=EnergyOfWork(**{name: float(result[name]) for name in _ENERGIES}),
        power_w=_package_w(mapped, group.device, energy_j / latency_s) if latency_s > 0.0 else 0.0,
        macs=mapped.graph.macs_of(op),
        grid_utilisation=_on_grid_s(mapped, group, row) / latency_s if group.unit is Unit.DPU else None,
        part=op.part,
        repeats=op.repeats,
        precision=mapped.graph.precision_of(op),
        mapping=_mapping(mapped, group, row, result) if group.unit.is_array else None,
        swapped=group.swapped,
        bound=Bound(int(result["bound"])).name.lower(),
    )


def _package_w(mapped: Mapped, device: str, work_w: float) -> float:
    """Return the power of the package while one device works."""
    arch = mapped.arch
    static_w = float(arch[device]["static_w"]) if device in arch.arrays else 0.0
    return work_w + static_w + float(arch.shared["idle_w"])


def _on_grid_s(mapped: Mapped, group: Group, row: Any) -> float:
    """Return the time that the multipliers of all tiles in use would take for an operator."""
    if row["macs"] <= 0.0:
        return 0.0
    return performed_macs(row) / multiplier_macs_per_s(mapped.arch[group.device], float(row["a_item"]))


def grid_utilisation(mapped: Mapped, interval_s: float) -> float:
    """Return the share of the multipliers that work, from one inference to the next."""
    needed_s: dict[str, float] = {}
    for group, row in zip(mapped.decisions.groups, mapped.lowered.ops, strict=True):
        if group.unit is Unit.DPU:
            needed_s[group.device] = needed_s.get(group.device, 0.0) + _on_grid_s(mapped, group, row)
    contexts = sum(float(mapped.arch[device]["contexts"]) for device in needed_s)
    return sum(needed_s.values()) / (interval_s * contexts) if needed_s else 0.0


def _mapping(mapped: Mapped, group: Group, row: Any, result: Any) -> Mapping:
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
    )


def peak_power_w(mapped: Mapped) -> float:
    """Return the highest mean power over an operator; operators fused row by row count as one.

    Several inferences in flight keep all devices at work at a time, and the NPU once for each context.
    """
    several = mapped.run.requests > 1
    highest: dict[str, float] = {}
    for device, energy_j, time_s in _phases(mapped):
        array = device in mapped.arch.arrays
        side_by_side = float(mapped.arch[device]["contexts"]) if array and several else 1.0
        work_w = energy_j / time_s * side_by_side
        highest[device] = max(highest.get(device, 0.0), work_w)
    idle_w = float(mapped.arch.shared["idle_w"])
    powers = [_package_w(mapped, device, work_w) - idle_w for device, work_w in highest.items()]
    return idle_w + (sum(powers) if several else max(powers, default=0.0))


def _phases(mapped: Mapped) -> list[tuple[str, float, float]]:
    """Return device, energy and time of each operator; of a row-wise fusion together."""
    found: list[tuple[str, float, float]] = []
    chains: dict[int, list[int]] = {}
    for i, group in enumerate(mapped.decisions.groups):
        time_s = float(mapped.results[i]["latency_s"])
        chain = int(mapped.lowered.ops[i]["fused_chain"])
        if chain:
            chains.setdefault(chain, []).append(i)
        else:
            found.append((group.device, float(mapped.results[i]["energy_j"]), time_s))
    for members in chains.values():
        rows = mapped.results[members]
        device = mapped.decisions.groups[members[0]].device
        found.append((device, float(rows["energy_j"].sum()), float(rows["critical_s"].sum())))
    return [phase for phase in found if phase[2] > 0.0]
