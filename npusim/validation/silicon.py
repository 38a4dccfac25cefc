"""Suites of silicon: memories against CACTI, and areas of published chips from their parts."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from scipy.optimize import least_squares

from npusim.arch.silicon import SramLaws, parts, process_named, sram_laws
from npusim.config.tables import Choice, Number, Text
from npusim.cost import law_column, sram_law
from npusim.errors import ConfigError
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


def _memories(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
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


_CHIP_FORMATS: tuple[Literal["int8", "int16", "fp16"], ...] = ("int8", "int16", "fp16")
_CHIP_SIZES = ("sram_kib", "array_kib", "word_bytes", "area_mm2")
_SCALED_FROM = "22 nm"  # node whose law of SRAM the bit cell of other nodes scales
_FEWEST = 5
_SOFTNESS = 0.25  # error of a logarithm from which a chip counts less


def _parts_m2(chips: Figures) -> Floats:
    """Return the area of SRAM arrays and of multipliers with adders of each chip, shape (chips, 2)."""
    law, known, areas = law_column(sram_laws().area.single_port), parts(), []
    base, logic = process_named(_SCALED_FROM), process_named(known.mac_node).logic_density
    for i in range(len(chips)):
        process = process_named(str(chips["process"][i]))
        array_bytes, word = 1024.0 * chips["array_kib"][i], chips["word_bytes"][i]
        arrays = chips["sram_kib"][i] / chips["array_kib"][i] * process.bit_cell / base.bit_cell
        scale = sram_laws().area.scale["22 lop"]
        macs_m2 = sum(chips[f"{form}_macs"][i] * known.mac_area[form] for form in _CHIP_FORMATS)
        sram_m2 = arrays * scale * sram_law(law, array_bytes, word, 1.0)
        areas.append((sram_m2, macs_m2 * logic / process.logic_density))
    return np.array(areas)


def _fitted(parts_m2: Floats, chip_m2: Floats) -> Floats:
    """Return log k, a and b of area = k x SRAM^a x MACs^b."""
    terms = np.column_stack([np.ones(len(chip_m2)), np.log(parts_m2)])
    start = np.linalg.lstsq(terms, np.log(chip_m2), rcond=None)[0]
    solution = least_squares(lambda x: terms @ x - np.log(chip_m2), start, loss="soft_l1", f_scale=_SOFTNESS)
    return np.asarray(solution.x)


def _chips(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    counts = [Number(f"{form}_macs", above=False, whole=True) for form in _CHIP_FORMATS]
    words = [Text(name) for name in ("chip", "group", "process", "origin", "source")]
    chips = read_csv(path, [*words, *counts, *map(Number, _CHIP_SIZES)])
    parts_m2, chip_m2, rows = _parts_m2(chips), 1e-6 * chips["area_mm2"], []
    if len(chips) < _FEWEST or not parts_m2.all():
        allowed = f"at least {_FEWEST} chips with MACs: each is predicted by a fit to the others"
        raise ConfigError(f"{len(chips)} chips", file=chips.file, allowed=allowed)
    for i, name in enumerate(chips["chip"]):
        others = np.arange(len(chips)) != i
        factor, *exponents = _fitted(parts_m2[others], chip_m2[others])
        predicted = float(np.exp(factor + np.dot(exponents, np.log(parts_m2[i])))) * 1e6
        key = {column: chips[column][i] for column in ("chip", "group", "process", "origin")}
        rows.append(Row(str(name), float(chips["area_mm2"][i]), predicted, key))
    low, high = np.quantile([row.predicted / row.measured for row in rows], (0.05, 0.95))
    factor, *exponents = _fitted(parts_m2, chip_m2)
    law = f"all chips: area = {np.exp(factor):.3g} x SRAM^{exponents[0]:.2f} x MACs^{exponents[1]:.2f} in m2"
    return rows, [law, f"90 % of the chips left out: {low:.2f} to {high:.2f} times the published area"]


CHIPS = RowPredictor(_chips)
"""Areas of published chips, each predicted by a fit to the others."""
MEMORIES = RowPredictor(_memories)
"""SRAM arrays as CACTI 7 computes them."""
