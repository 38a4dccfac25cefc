"""Details of an estimate for the terminal: time by region, energy by part, mapping, traffic, roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from npusim.report.engineering import engineering, percent
from npusim.report.regions import region_tables
from npusim.report.terminal import LongName, bar, headed

if TYPE_CHECKING:
    from npusim.engines import Estimate, OperatorCost
    from npusim.engines.estimate import Mapping

_MOST_OPERATORS = 40
"""Operators that get a line in each table."""
_JOINTS = "/:"
_PARTS = {
    "mac_j": "MACs", "sram_j": "SRAM", "dram_j": "DRAM", "dsp_j": "DSPs", "cpu_j": "CPU", "gpu_j": "GPU",
    "static_j": "NPU, static", "idle_j": "idle devices",
}  # fmt: skip
_HELD = {"weights_held": "weights", "activations_held": "activ.", "outputs_held": "outputs"}


def details_page(estimate: Estimate) -> RenderableType:
    """Return time by region, energy by part; per operator mapping, traffic, roofline, slowest first."""
    working = sorted((op for op in estimate.operators if op.latency_s > 0), key=lambda op: -op.latency_s)
    left, working = len(working) - _MOST_OPERATORS, working[:_MOST_OPERATORS]
    on_npu = [op for op in working if op.mapping is not None]
    parts: list[RenderableType] = [part for table in region_tables(estimate) for part in (Text(), table)]
    parts += [Text(), _energy(estimate)]
    if on_npu:
        parts += [Text(), _mappings(on_npu)]
    parts += [Text(), _traffic(working), Text(), _roofline(estimate, working)]
    if left > 0:
        parts.append(Text(f"{left} more operators: --format json", style="dim"))
    return Group(*parts)


def _energy(estimate: Estimate) -> Table:
    table = headed("energy by part", "", "share", min_width=14)
    table.add_column(min_width=24)
    for name, title in _PARTS.items():
        value = getattr(estimate.energy, name)
        if value > 0.0:
            share = value / estimate.energy_j
            table.add_row(title, engineering(value, "J"), percent(share), bar(share, 1.0, width=24))
    return table


def _mappings(operators: Sequence[OperatorCost]) -> Table:
    """Return split, MPE mode, operand that stays, blocks of a tile, and share of multipliers at work."""
    table = headed("mapping", overflow="fold", ratio=1)
    for heading in ("split", "mode", "stays"):
        table.add_column(heading, no_wrap=True)
    for heading in ("a tile", "in blocks", "grid"):
        table.add_column(heading, justify="right", no_wrap=True)
    for op in operators:
        if op.mapping is None:
            continue
        use = "" if op.grid_utilisation is None else percent(op.grid_utilisation)
        table.add_row(LongName(op.name, _JOINTS), *_mapped(op.mapping), use)
    return table


def _mapped(m: Mapping) -> tuple[str, ...]:
    size = f"{m.rows}x{m.columns}" + (f"x{m.depth}" if m.order else "")
    blocks = f"{m.row_blocks}x{m.column_blocks}" + (f"x{m.depth_blocks}" if m.order else "")
    if m.strips > 1:
        blocks = f"{m.strips}x {blocks}"
    split = "1 tile" if m.split == "single" else f"{m.split} / {m.tiles}"
    return split, m.mpe_mode or "", _HELD.get(m.order or "", ""), size, blocks


def _traffic(operators: Sequence[OperatorCost]) -> Table:
    """Return bytes read and written in DRAM and SRAM, energy of the work and power of the package."""
    table = headed(
        "traffic", "DRAM read", "written", "SRAM read", "written", "energy", "power", overflow="fold", ratio=1
    )
    for op in operators:
        moved = (
            op.dram_read_bytes,
            op.dram_bytes - op.dram_read_bytes,
            op.sram_read_bytes,
            op.sram_written_bytes,
        )
        figures = [engineering(amount, "B") for amount in moved]
        power = engineering(op.power_w, "W")
        table.add_row(LongName(op.name, _JOINTS), *figures, engineering(op.energy_j, "J"), power)
    return table


def _roofline(estimate: Estimate, operators: Sequence[OperatorCost]) -> Table:
    """Return the rate of each operator, operations for a byte of DRAM, and the ceiling that is the lowest."""
    points = {point.operator: point for point in estimate.roofline.points}
    table = headed("roofline", "rate", "OP/B DRAM", "ceiling", "reached", overflow="fold", ratio=1)
    table.add_column("lowest ceiling", no_wrap=True)
    for op in operators:
        point = points.get(op.name)
        if point is None:
            continue
        reached = point.ops_per_s / point.ceiling_ops_per_s
        intensity = point.intensity.get("dram")
        table.add_row(
            LongName(op.name, _JOINTS),
            engineering(point.ops_per_s, "OP/s"),
            "-" if intensity is None else f"{intensity:,.3g}",
            engineering(point.ceiling_ops_per_s, "OP/s"),
            percent(reached),
            point.limit,
        )
    return table
