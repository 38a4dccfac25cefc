"""Figures of other tools for the same layers on the same arrays: SCALE-Sim's and ZigZag's.

A file has the columns of one of the two tables in `validate/figures`; its header tells which. What both tools
assume is assumed here too, so that models are compared, not machines (docs/dataflows.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from npusim.arch.array import LOOPS, OPERANDS, ArrayLevel, Dataflow, MacArray, shipped_dataflows
from npusim.config import Section, load_model
from npusim.config.tables import Column, Text, csv_records, read_table
from npusim.cost import FROM_BELOW, TO_BELOW, Mapped, Nest, array_record, best_order, elements
from npusim.errors import ConfigError, nearest, shown
from npusim.files import read_text
from npusim.locate import resource
from npusim.validation.evidence import Evidence
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine

SYSTOLIC_FIGURES, LEVEL_FIGURES = "scalesim_systolic.csv", "zigzag_levels.csv"
"""Read beside the suite's own file, where no other is given: arrays, and memory levels of its mappings."""
_DATAFLOWS = {"os": "output_stationary", "ws": "weight_stationary", "is": "input_stationary"}
_LOOPS_OF_CONV = tuple(f"dim_{name}" for name in ("B", "G", "K", "C", "OY", "OX", "FY", "FX"))
_BATCH, _OUTPUT_CHANNELS, _INPUT_CHANNELS = (
    LOOPS.index(name) for name in ("batch", "output_channels", "input_channels")
)
_WEIGHTS, _INPUTS, _OUTPUTS = range(len(OPERANDS))
_OPERANDS = "WIO"
"""Letters of the operands in ZigZag's tables."""
_BITS = ("w_bits", "i_bits", "o_final_bits", "o_partial_bits")
_DRAM = ("dram_read_bits_W", "dram_read_bits_I", "dram_read_bits_O", "dram_write_bits_O")
_PJ = 1e-12
_FLOWS = ("rd_to_low", "wr_from_low", "rd_to_high", "wr_from_high")
"""What an operand's level hands down, takes from below, hands up, and takes from above."""


class PeerMachine(Section):
    """A machine as another tool ships it."""

    array: MacArray
    """Its array and on-chip memories."""
    dataflow: Dataflow
    """What is unrolled on its axes."""
    dram: ArrayLevel
    """DRAM, in bytes a cycle of the array."""


class PeerMachines(Section):
    """Machines of another tool: `validate/definitions/peers.yaml`."""

    machines: dict[str, PeerMachine]
    """By the tool's name."""


@cache
def peer_machines() -> Mapping[str, Any]:
    """Return the records of the machines by name."""
    found = load_model(resource("validate", "definitions", "peers.yaml"), PeerMachines).machines
    return {name: array_record(one.array, one.dataflow, one.dram)[0] for name, one in found.items()}


class MaybeNumber(Column):
    """A number of 0 or more, or nothing."""

    @property
    def allowed(self) -> str:
        """What may stand in it."""
        return "a number of 0 or more, or nothing"

    def value(self, text: str) -> float | None:
        """Return the number, NaN for nothing, or None."""
        if not text:
            return float("nan")
        try:
            number = float(text)
        except ValueError:
            return None
        return number if 0.0 <= number < 1e18 else None


@dataclass(frozen=True)
class PeerRow:
    """One number that another tool gives, and npusim's."""

    id: str
    tool: str
    machine: str
    layer: str
    """Machine and layer, as groups name them."""
    quantity: str
    measured: float
    predicted: float


Row = Mapping[str, Any]
_SYSTOLIC_COLUMNS = ("rows", "cols", "m", "n", "k", "compute_cycles")
_ACCESSES = ("ifmap_sram_reads", "filter_sram_reads", "ofmap_sram_writes")
_LAYER_COLUMNS = (
    *_LOOPS_OF_CONV, "gemm_M", "gemm_N", "gemm_K", "in_h", "in_w", "stride", *_BITS,
    "latency_total_cycles", "energy_total_pj", *_DRAM,
)  # fmt: skip


@cache
def _systolic(dataflow: str, rows: int, cols: int) -> Any:
    """Return a systolic array as SCALE-Sim has it: folds one after the other, SRAM that never stalls."""
    element = "1 B"
    flow = shipped_dataflows()[_DATAFLOWS[dataflow]]
    level = {"capacity": "1 GB", "width": "100000 B/cycle", "least_access": "1e-6 B", "read_energy": "0 pJ/B"}
    register = {
        "capacity": element, "operands": [flow.stationary], "shared_by": [], "width": "1 B/cycle",
        "ports": "two_of_each", "read_energy": "0 pJ/B",
    }  # fmt: skip
    array = MacArray.model_validate(
        {
            "axes": {"rows": rows, "columns": cols},
            "transfer": "systolic",
            "folds": "serial",
            "mac_energy": "0 pJ/MAC",
            "levels": {"register": register, "sram": level},
        }
    )
    return array_record(array, flow, ArrayLevel.model_validate(level))[0]


def _product(m: float, n: float, k: float, bits: Any) -> Nest:
    """Return a product as a nest."""
    sizes = np.ones(len(LOOPS))
    sizes[[_BATCH, _OUTPUT_CHANNELS, _INPUT_CHANNELS]] = m, n, k
    return Nest(sizes, 1.0, 1.0, 1.0, 1.0, bits)


def _systolic_rows(row: Row, line: int) -> Iterator[PeerRow]:
    """Predict cycles and SRAM accesses of one product on a systolic array."""
    m, n, k, rows, cols = (row[name] for name in ("m", "n", "k", "rows", "cols"))
    nest = _product(m, n, k, np.full(4, 8.0))
    mapped = best_order(_systolic(row["dataflow"], int(rows), int(cols)), nest, False)
    machine = f"{row['dataflow']} {int(rows)}x{int(cols)}"
    layer = f"{int(m)}x{int(n)}x{int(k)}"
    # The tool names the last cycle, counted from 0.
    cycles = mapped.cost.steps + mapped.cost.skew - 1.0
    yield PeerRow(f"{line} cycles", "SCALE-Sim", machine, layer, "cycles", row["compute_cycles"], cycles)
    levels = {"ifmap_sram_reads": _INPUTS, "filter_sram_reads": _WEIGHTS, "ofmap_sram_writes": _OUTPUTS}
    for name, operand in levels.items():
        is_held = row["dataflow"] == ("ws", "is", "os")[operand]
        place = 1 if is_held else 0
        flow = FROM_BELOW if operand == _OUTPUTS else TO_BELOW
        told = row[name]
        if operand == _OUTPUTS and is_held:  # a fault of the tool: it writes a row and a column more a fold
            told -= np.ceil(m / rows) * np.ceil(n / cols) * (rows + cols)
        words = mapped.billed_bits[operand, place, flow] / 8.0
        yield PeerRow(f"{line} {name}", "SCALE-Sim", machine, layer, "SRAM accesses", told, words)


def layer_nest(row: Row) -> Nest:
    """Return the layer of a row of ZigZag's table as a nest."""
    bits = np.array([row[name] for name in _BITS])
    if not np.isnan(row["gemm_M"]):
        return _product(row["gemm_M"], row["gemm_N"], row["gemm_K"], bits)
    sizes = np.array([row[name] for name in _LOOPS_OF_CONV])
    return Nest(sizes, row["stride"], row["stride"], row["in_w"], row["in_h"], bits)


def compulsory_bits(nest: Nest) -> float:
    """Return the bits that every mapping moves from and to DRAM: each element that is used, once."""
    return float(sum(elements(nest, operand, nest.sizes) * nest.bits[operand] for operand in range(3)))


_Levels = Mapping[tuple[str, ...], Mapping[tuple[int, int, str], float]]
"""Of a machine, a layer and an optimum, the bits that pass each operand's level: by operand, place, name."""


@cache
def _levels() -> _Levels:
    """Return the bits that ZigZag counts at each level of its mappings."""
    words = ("machine", "layer", "opt", "operand", "memory")
    numbers = ("level", *(f"{flow}_data_bits" for flow in _FLOWS))
    path = resource("validate", "figures", LEVEL_FIGURES)
    table = read_table(path, [*map(Text, words), *map(MaybeNumber, numbers)])
    found: dict[tuple[str, ...], dict[tuple[int, int, str], float]] = {}
    for values in zip(*(table.columns[name] for name in (*words, *numbers)), strict=True):
        machine, layer, opt, operand, memory, place, *bits = values
        key = _OPERANDS.index(operand), int(place), memory
        found.setdefault((machine, layer, opt), {})[key] = float(np.nansum(bits))
    return found


def _layer_rows(row: Row, line: int, levels: _Levels) -> Iterator[PeerRow]:
    """Predict latency, energy and DRAM traffic of the best mapping of one layer, and its levels' traffic."""
    machine = peer_machines()[row["machine"]]
    nest = layer_nest(row)
    mapped: Mapped = best_order(machine, nest, row["opt"] == "energy")
    moved, told = float(mapped.dram_bits.sum()), float(sum(row[name] for name in _DRAM))
    # The nearest number of bits that is right: no more than the tool's, and every element once.
    right = min(max(moved, compulsory_bits(nest)), max(told, compulsory_bits(nest)))
    for quantity, measured, predicted in (
        ("latency", row["latency_total_cycles"], mapped.cost.cycles),
        ("energy", row["energy_total_pj"] * _PJ, mapped.cost.energy_j),
        ("DRAM traffic", right, moved),
    ):
        id_ = f"{line} {row['opt']}: {quantity}"
        yield PeerRow(id_, "ZigZag", row["machine"], row["layer"], quantity, measured, predicted)
    quantity = "traffic of a level"
    for (operand, place, memory), measured in levels.get(
        (row["machine"], row["layer"], row["opt"]), {}
    ).items():
        id_ = f"{line} {row['opt']}: {_OPERANDS[operand]} at {memory}"
        predicted = float(mapped.billed_bits[operand, place].sum())
        yield PeerRow(id_, "ZigZag", row["machine"], row["layer"], quantity, measured, predicted)


def _read(path: Path, levels: _Levels) -> Iterator[PeerRow]:
    """Yield the rows of a table of either tool, with what is known of its mappings' levels."""
    _, header = next(csv_records(read_text(path), str(path)), (1, []))
    words: tuple[str, ...] = ("machine", "layer", "opt")
    known: dict[str, tuple[str, ...]] = {"opt": ("latency", "energy")}
    numbers: tuple[str, ...] = _LAYER_COLUMNS
    predict: Callable[[Row, int], Iterator[PeerRow]] = partial(_layer_rows, levels=levels)
    if "dataflow" in header and "machine" not in header:
        words, numbers, predict = ("dataflow",), (*_SYSTOLIC_COLUMNS, *_ACCESSES), _systolic_rows
        known = {"dataflow": tuple(_DATAFLOWS)}
    else:
        known["machine"] = tuple(peer_machines())
    columns: list[Column] = [*(Text(name) for name in words), *(MaybeNumber(name) for name in numbers)]
    table = read_table(path, columns)
    for place, line in enumerate(table.lines):
        row: dict[str, Any] = {name: values[place] for name, values in table.columns.items()}
        for name, allowed in known.items():
            _check(row[name], allowed, table.file, line, name)
        for name in numbers:
            if np.isnan(row[name]) and not name.startswith(("dim_", "gemm_", "in_", "stride")):
                raise ConfigError("nothing", file=table.file, line=line, key=name, allowed="a number")
        yield from predict(row, line)


def _check(found: str, allowed: tuple[str, ...], file: str, line: int, key: str) -> None:
    if found not in allowed:
        raise ConfigError(
            shown(found), file=file, line=line, key=key, allowed=f"one of {', '.join(allowed)}",
            suggestion=nearest(found, allowed),
        )  # fmt: skip


class PeerFigures:
    """Predicts cycles, accesses, latency and energy that other tools give."""

    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows of a file with their predictions; see `npusim.validation.evidence.Predictor`."""
        assert path is not None and suite.figures is not None, "figures of other tools are a table"
        shipped = resource("validate", "figures", suite.figures)
        files = [shipped.with_name(SYSTOLIC_FIGURES), path] if path == shipped else [path]
        levels = _levels() if path == shipped else {}
        rows = [row for file in files for row in _read(file, levels)]
        columns = {
            name: [getattr(row, name) for row in rows] for name in ("tool", "machine", "layer", "quantity")
        }
        return Evidence(
            ids=[row.id for row in rows],
            columns={name: np.array(values, object) for name, values in columns.items()},
            measured=np.array([row.measured for row in rows]),
            predicted=np.array([row.predicted for row in rows]),
            unit="",
            dimensions=("machine", "layer", "quantity"),
            notes=[],
        )


PEERS = PeerFigures()
"""Cycles and traffic of SCALE-Sim's arrays; latency, energy and traffic of ZigZag's best mappings."""
