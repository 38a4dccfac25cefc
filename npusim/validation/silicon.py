"""Suites of silicon: memories against CACTI, and areas of published chips from their parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from npusim.arch.silicon import SramLaws, interface_of, parts, process_named, processes, sram_laws
from npusim.cost import law_column, sram_law
from npusim.errors import ConfigError
from npusim.validation.figures import Figures, Floats, Row, RowPredictor, read_declared
from npusim.validation.suite import Suite

QUANTITIES = {
    "read_energy": ("read_nj", 1e-9),
    "write_energy": ("write_nj", 1e-9),
    "area": ("area_mm2", 1e-6),
    "leakage": ("leakage_mw", 1e-3),
    "access_time": ("access_ns", 1e-9),
}
"""Column of each quantity in the figures, and its unit in SI."""


def read_memories(suite: Suite, path: Path) -> Figures:
    """Return the rows of a file of SRAM arrays, with capacity in bytes and quantities in SI units."""
    figures = read_declared(suite, path)
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
    figures, rows, notes = read_memories(suite, path), [], []
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


_CHIP_FORMATS = ("int8", "int16", "fp16")
_CHIP_KEYS = ("chip", "group", "process", "scope", "cells", "origin")
_SCALED_FROM, _FEATURE_M = "22 lop", 22e-9  # cell whose law of SRAM the bit cell of other nodes scales
_FEWEST = 5
_SOFTNESS = 0.25  # error of a logarithm from which a chip counts less


@dataclass(frozen=True, slots=True)
class _ChipParts:
    """Parts of chips: SRAM by the law of arrays, MACs with their registers as synthesised (m2)."""

    sram_m2: Floats
    macs_m2: Floats
    interface_m2: Floats
    """PHY and controller of DRAM."""
    utilisation: Floats
    """Area over that of a layout: below 1 where cells are synthesised, not placed."""
    compiled: Floats
    """0 where the area rests on CACTI's arrays, 1 where on those of a memory compiler."""
    complete: Floats
    """0 where the area has memories and MACs alone; 1 where it is that of a whole engine."""

    @classmethod
    def of(cls, chips: Figures) -> _ChipParts:
        law, scale = law_column(sram_laws().area.single_port), sram_laws().area.scale[_SCALED_FROM]
        known, cell_m2, areas = parts(), processes().cacti_cell * _FEATURE_M**2, []
        logic = process_named(known.mac_node).logic_density
        mac_m2 = {f: m.area + m.register_bits * known.register_area for f, m in known.macs.items()}
        for _, chip in chips.rows():
            process = process_named(chip["process"])
            arrays = chip["sram_kib"] / chip["array_kib"] * process.bit_cell / cell_m2
            array_m2 = sram_law(law, 1024.0 * chip["array_kib"], chip["word_bytes"], 1.0)
            sram_m2 = arrays * scale * array_m2
            macs_m2 = sum(chip[f"{form}_macs"] * mac_m2[form] for form in _CHIP_FORMATS)
            interface_m2 = interface_of(chip["dram"]).m2_s_per_byte * 1e9 * chip["dram_gb_per_s"]
            share = known.utilisation if chip["cells"] == "synthesised" else 1.0
            areas.append((sram_m2, macs_m2 * logic / process.logic_density, interface_m2, share))
        scopes = [[scope != "arrays of CACTI", scope == "engine"] for scope in chips["scope"]]
        return cls(*np.array(areas).T, *np.array(scopes, float).T)

    def chip_m2(self, logarithms: Floats) -> Floats:
        """Return the areas of the chips by the logarithms of the three fitted factors."""
        sram, macs, engine = np.exp(logarithms)
        arrays_m2 = sram**self.compiled * self.sram_m2 + macs * self.macs_m2
        areas: Floats = arrays_m2 * engine**self.complete * self.utilisation + self.interface_m2
        return areas

    def fitted(self, chip_m2: Floats, used: Floats) -> Floats:
        """Return the logarithms of the factors that fit the chips in use."""

        def errors(logarithms: Floats) -> Floats:
            logs: Floats = np.log(self.chip_m2(logarithms) / chip_m2)[used]
            return logs

        return np.asarray(least_squares(errors, np.log([2.0, 2.0, 2.0]), loss="soft_l1", f_scale=_SOFTNESS).x)


def _chips(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    chips = read_declared(suite, path)
    of_chips, chip_m2, rows = _ChipParts.of(chips), 1e-6 * chips["area_mm2"], []
    if len(chips) < _FEWEST or not of_chips.macs_m2.all():
        allowed = f"at least {_FEWEST} chips with MACs: each is predicted by a fit to the others"
        raise ConfigError(f"{len(chips)} chips", file=chips.file, allowed=allowed)
    for i, chip in enumerate(chips["chip"]):
        factors = of_chips.fitted(chip_m2, np.arange(len(chips)) != i)
        key = {name: chips[name][i] for name in _CHIP_KEYS}
        predicted = 1e6 * float(of_chips.chip_m2(factors)[i])
        rows.append(Row(str(chip), float(chips["area_mm2"][i]), predicted, key))
    low, high = np.quantile([row.predicted / row.measured for row in rows], (0.05, 0.95))
    sram, macs, engine = np.exp(of_chips.fitted(chip_m2, np.ones(len(chips), bool)))
    law = f"all chips: {sram:.2f} x SRAM + {macs:.2f} x MACs with registers; engines {engine:.2f} times that"
    return rows, [law, f"90 % of the chips left out: {low:.2f} to {high:.2f} times the published area"]


def _clocks(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    points, rows = read_declared(suite, path), []
    for _, row in points.rows():
        ratio = process_named(row["process"]).clock_ratio(row["v"], row["rated_v"])
        key = {name: row[name] for name in suite.dimensions}
        rows.append(Row(row["point"], float(row["mhz"]), float(row["rated_mhz"] * ratio), key))
    return rows, []


CLOCKS = RowPredictor(_clocks)
"""Clocks of NPUs at published voltages, by the alpha-power law."""
CHIPS = RowPredictor(_chips)
"""Areas of published chips, each predicted by a fit to the others."""
MEMORIES = RowPredictor(_memories)
"""SRAM arrays as CACTI 7 computes them."""
