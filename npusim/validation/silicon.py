"""Areas, energies and leakage of memories against CACTI, and areas of published chips from their parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from npusim.arch.silicon import SramLaws, sram_laws
from npusim.config.tables import Choice, Number
from npusim.cost import law_column, sram_law
from npusim.validation.figures import Figures, Floats, Row, RowPredictor, read_csv
from npusim.validation.suite import Suite

QUANTITIES = {
    "read_energy": ("read_nj", 1e-9),
    "write_energy": ("write_nj", 1e-9),
    "area": ("area_mm2", 1e-6),
    "leakage": ("leakage_mw", 1e-3),
    "access_time": ("access_ns", 1e-9),
}
"""Column of each quantity in the figures, and its unit in SI."""


def read_memories(path: Path) -> Figures:
    """Return the rows of a file of SRAM arrays, with capacity in bytes and quantities in SI units."""
    numbers = ("capacity_kib", "word_bytes", "node_nm", "banks", *(name for name, _ in QUANTITIES.values()))
    words = [Choice("cell", ("hp", "lop")), Choice("ports", ("1rw", "1r1w"))]
    figures = read_csv(path, [*words, *map(Number, numbers)])
    columns = {name: figures[column] * unit for name, (column, unit) in QUANTITIES.items()}
    columns["leakage"] = columns["leakage"] * figures["banks"]  # CACTI states that of a bank
    cells = [f"{node:g} {cell}" for node, cell in zip(figures["node_nm"], figures["cell"], strict=True)]
    sizes = 1024.0 * figures["capacity_kib"]
    return figures.with_columns(cells=np.array(cells, object), capacity_bytes=sizes, **columns)


def predicted_memories(figures: Figures, laws: SramLaws, quantity: str) -> Floats:
    """Return a quantity of SRAM arrays by its law, in SI units; nan for a node or cell without a scale."""
    law, sizes = getattr(laws, quantity), ("capacity_bytes", "word_bytes", "banks")
    terms = {"1rw": law_column(law.single_port), "1r1w": law_column(law.dual_port)}
    rows = zip(figures["ports"], figures["cells"], *(figures[size] for size in sizes), strict=True)
    return np.array([law.scale.get(cell, np.nan) * sram_law(terms[p], *sizes) for p, cell, *sizes in rows])


def _memories(suite: Suite, path: Path | None) -> tuple[list[Row], list[str]]:
    assert path is not None, "the suite has a file"
    figures, rows, notes = read_memories(path), [], []
    kept = figures.where(np.isin(figures["cells"], list(sram_laws().area.scale)))
    if len(kept) < len(figures):
        notes.append(f"skipped {len(figures) - len(kept)} rows of nodes or cells that no law is fitted to")
    for quantity in QUANTITIES:
        columns = ("cells", "ports", "capacity_kib", "word_bytes", "banks")
        predicted = predicted_memories(kept, sram_laws(), quantity)
        for i, line in enumerate(kept.ids):
            key = {"quantity": quantity} | {name: kept[name][i] for name in columns}
            rows.append(Row(f"{line} {quantity}", float(kept[quantity][i]), float(predicted[i]), key))
    return rows, [*figures.notes, *notes]


MEMORIES = RowPredictor(_memories)
"""SRAM arrays as CACTI 7 computes them."""
