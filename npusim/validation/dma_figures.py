"""Transfers of the DMA engines: measured ones, and the cost model's by engines and by rows."""

from __future__ import annotations

import numpy as np

from npusim.config.tables import Choice, Number
from npusim.cost import CMX2CMX, CMX2DDR, DDR2CMX, DDR2DDR
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures, Floats, key_of
from npusim.validation.unit_models import Machine, transfer_seconds

_DIRECTIONS = {"ddr2cmx": DDR2CMX, "cmx2ddr": CMX2DDR, "cmx2cmx": CMX2CMX, "ddr2ddr": DDR2DDR}
_DIRECTION = Choice("direction", tuple(_DIRECTIONS))


def _predict(figures: Figures, machine: Machine, payload: Floats, row: Floats, engines: Floats) -> Floats:
    direction = np.array([_DIRECTIONS[name] for name in figures["direction"]], np.int64)
    seconds: Floats = transfer_seconds(machine.arch[0], direction, payload, row, engines)
    return seconds


def _one_engine(figures: Figures, machine: Machine) -> Floats:
    engines = np.ones(len(figures))
    return _predict(figures, machine, figures["bytes"], np.zeros(len(figures)), engines)


def _by_engines(figures: Figures, machine: Machine) -> Floats:
    engines = figures["engines"]
    return _predict(figures, machine, figures["bytes"] * engines, np.zeros(len(figures)), engines)


def _by_rows(figures: Figures, machine: Machine) -> Floats:
    row = figures["row_bytes"]
    return _predict(figures, machine, row * figures["rows"], row, np.ones(len(figures)))


MEASURED = TablePredictor(
    columns=(_DIRECTION, Number("bytes", whole=True), Number("measured_s")),
    measured=lambda figures: figures["measured_s"],
    predict=_one_engine,
    unit="s",
    dimensions=("bytes", "direction"),
    duplicates=key_of("npu", "direction", "bytes"),
)
"""Measured transfers by one engine."""

ENGINES = TablePredictor(
    columns=(_DIRECTION, Number("engines", whole=True), Number("bytes", whole=True), Number("time_s")),
    measured=lambda figures: figures["time_s"],
    predict=_by_engines,
    unit="s",
    dimensions=("bytes", "direction", "engines"),
    duplicates=key_of("npu", "direction", "bytes", "engines"),
)
"""The cost model's transfers; each of the engines moves so many bytes."""

ROWS = TablePredictor(
    columns=(
        _DIRECTION,
        Number("row_bytes", whole=True),
        Number("rows", whole=True),
        Number("src_stride_bytes", whole=True),
        Number("time_s"),
    ),
    measured=lambda figures: figures["time_s"],
    predict=_by_rows,
    unit="s",
    dimensions=("row_bytes", "rows", "src_stride_bytes", "direction"),
    duplicates=key_of("npu", "direction", "row_bytes", "rows"),
)
"""The cost model's transfers of many rows by one engine. The stride has no part in the equation."""
