"""Published figures of MAC arrays: Eyeriss, NVDLA, SCALE-Sim, ZigZag, Sparseloop.

A file of peers has the columns of one of the two tables in `validate/figures`; its header decides which. The
tools' own assumptions are used here too, so that models are compared, not machines (docs/dataflows.md).

A row of Sparseloop's speed-ups by zeros is a product of m x k weights and n inputs of a layer, its cycles and
those of dense operands. The figures of Eyeriss v2's PE are of a simulation of the actual data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from npusim import cost
from npusim.arch import load_soc
from npusim.arch.array import LOOPS, OPERANDS, ArrayLevel, Dataflow, MacArray, shipped_dataflows
from npusim.config import Section, load_model
from npusim.config.tables import Choice, MaybeNumber, Number, Text, csv_records, read_table
from npusim.errors import ConfigError
from npusim.files import read_text
from npusim.graph import Editor, Graph
from npusim.locate import resource
from npusim.ops import DType, Role, Storage
from npusim.scenario import Scenario
from npusim.validation.figures import Row, RowPredictor, read_declared
from npusim.validation.suite import Suite

Values = Mapping[str, Any]
"""One row of a table."""


def _require(row: Values, names: Iterable[str], file: str, line: int, least: float = 0.0) -> None:
    for name in names:
        if not row[name] >= least:  # nothing is nan
            value = "nothing" if np.isnan(row[name]) else f"`{row[name]:g}`"
            raise ConfigError(
                value, file=file, line=line, key=name, allowed=f"a number of at least {least:g}"
            )


# Data sheet of each chip, and the device on it.
_SOCS = {"eyeriss": ("eyeriss", "eyeriss"), "nvdla": ("nvdla-large", "dla")}
_LAYER = ("batch", "in_c", "size", "out_c", "kernel", "stride", "pad", "groups")
_CONFIGURATION = ("kernels", "channels", "buffer_kib", "dram_gb_s")
# Columns that a row needs, by its quantity.
_NEEDED = {"time": _LAYER, "power": (*_LAYER, "pe_energy_share"), "rate": _CONFIGURATION}
_LARGEST_MACS, _POST_PROCESSED, _NARROWEST_BYTES = 2048, 16, 8


def _convolution(row: Values) -> Graph:
    """Return one group of a convolution as a network."""
    batch, in_c, size, out_c, kernel, stride, pad = (int(row[name]) for name in _LAYER[:7])
    editor, out = Editor("layer"), (size + 2 * pad - kernel) // stride + 1
    image = editor.input("image", (batch, in_c, size, size), DType.FP16)
    weights = editor.constant("weights", (out_c, in_c, kernel, kernel), DType.FP16)
    shape, strides = (batch, out_c, out, out), (stride, stride)
    result = editor.op("Convolution", (image, weights), shape, DType.FP16, "conv", strides=strides)
    editor.outputs.append(result)
    return editor.finish()


def _chip_layer(row: Values) -> float:
    """Return the time (s) of a layer, or the power (W) of the chip without DRAM."""
    name, device = _SOCS[row["chip"]]
    total = Scenario(_convolution(row), name, device=device).mapped.total
    if row["quantity"] == "time":
        return float(total["latency_s"] * row["groups"])
    on_chip = total["energy_j"] - total["dram_j"] - total["mac_j"] * (1.0 - row["pe_energy_share"])
    return float(on_chip / total["latency_s"])


def _chip_network(row: Values) -> float:
    """Return the rate (1/s) of ResNet-50; buses are as wide as the input of a MAC unit in a cycle."""
    name, device = _SOCS[row["chip"]]
    kernels, channels = int(row["kernels"]), int(row["channels"])
    bus_bytes = max(_NARROWEST_BYTES, channels)
    slowdown = _LARGEST_MACS // (kernels * channels)
    settings = {
        f"{device}.dpu.array.axes.kernels": kernels,
        f"{device}.dpu.array.axes.channels": channels,
        f"{device}.sram.per_tile": f"{row['buffer_kib']:g} KiB",
        f"{device}.sram.word": f"{channels} B",
        f"{device}.dma.width": f"{bus_bytes} B/cycle",
        f"{device}.dsp.kernels.sdp.reference_lanes": _POST_PROCESSED * slowdown,
        "dram.bandwidth": f"{row['dram_gb_s']:g} GB/s",
    }
    soc = load_soc(name, settings)
    total = Scenario("resnet-50", soc, device=device, settings=["workload.precision=int8"]).mapped.total
    return 1.0 / float(total["latency_s"])


def _chip_rows(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of a file with their predictions."""
    figures, rows = read_declared(suite, path), []
    for line, row in figures.rows():
        _require(row, ("measured", *_NEEDED[row["quantity"]]), figures.file, line)
        if row["kernel"] > row["size"] + 2 * row["pad"]:
            found, allowed = f"`{row['kernel']:g}`", "up to size + 2 pad"
            raise ConfigError(found, file=figures.file, line=line, key="kernel", allowed=allowed)
        predicted = _chip_network(row) if row["quantity"] == "rate" else _chip_layer(row)
        key = {name: row[name] for name in suite.dimensions}
        rows.append(Row(f"{line} {row['name']}: {row['quantity']}", float(row["measured"]), predicted, key))
    return rows, list(figures.notes)


CHIPS = RowPredictor(_chip_rows)
"""Times and powers of Eyeriss' layers, rates of NVDLA's configurations."""

SYSTOLIC_FIGURES, LEVEL_FIGURES = "scalesim_systolic.csv", "zigzag_levels.csv"
"""Read besides the shipped file: arrays, and memory levels of its mappings."""
_DATAFLOWS = {"os": "output_stationary", "ws": "weight_stationary", "is": "input_stationary"}
_LOOPS_OF_CONV = tuple(f"dim_{name}" for name in ("B", "G", "K", "C", "OY", "OX", "FY", "FX"))
_BATCH, _OUTPUT_CHANNELS, _INPUT_CHANNELS = (
    LOOPS.index(name) for name in ("batch", "output_channels", "input_channels")
)
_WEIGHTS, _INPUTS, _OUTPUTS = range(len(OPERANDS))
_OPERANDS = "WIO"  # letters of the operands in ZigZag's tables
_BITS = ("w_bits", "i_bits", "o_final_bits", "o_partial_bits")
_DRAM = ("dram_read_bits_W", "dram_read_bits_I", "dram_read_bits_O", "dram_write_bits_O")
_PJ = 1e-12
# Flows of an operand's level: down, from below, up, and from above.
_FLOWS = ("rd_to_low", "wr_from_low", "rd_to_high", "wr_from_high")
_ACCESSES = {"ifmap_sram_reads": _INPUTS, "filter_sram_reads": _WEIGHTS, "ofmap_sram_writes": _OUTPUTS}
_PRODUCT = ("gemm_M", "gemm_N", "gemm_K")
# Of a layer in a table; of an array's axis, a kernel or a number of channels.
_LARGEST_SIZE, _LARGEST_AXIS = 1e9, 65536.0
_SHAPE_COLUMNS = (*_LOOPS_OF_CONV, *_PRODUCT, "in_h", "in_w", "stride")
_RESULT_COLUMNS = ("latency_total_cycles", "energy_total_pj", *_DRAM)


class PeerMachine(Section):
    """A machine as another tool ships it."""

    array: MacArray
    """Its array and on-chip memories."""
    dataflow: Dataflow
    """What is unrolled on its axes."""
    dram: ArrayLevel
    """DRAM, in bytes a cycle of the array."""


class PeerMachines(Section):
    """Machines of other tools: `validate/definitions/peers.yaml`."""

    machines: dict[str, PeerMachine]
    """Machines of ZigZag by its name."""
    systolic: dict[str, Any]
    """Array of SCALE-Sim; its axes and the operand of its registers follow from a row of the table."""


@cache
def _definitions() -> PeerMachines:
    return load_model(resource("validate", "definitions", "peers.yaml"), PeerMachines)


@cache
def peer_machines() -> Mapping[str, Any]:
    """Return the records of ZigZag's machines by name."""
    machines = _definitions().machines
    return {name: cost.array_record(m.array, m.dataflow, m.dram)[0] for name, m in machines.items()}


@cache
def _systolic(dataflow: str, rows: int, cols: int) -> Any:
    """Return the record of a systolic array of SCALE-Sim."""
    flow, template = shipped_dataflows()[_DATAFLOWS[dataflow]], _definitions().systolic
    register = template["levels"]["register"] | {"operands": [flow.stationary]}
    levels = template["levels"] | {"register": register}
    axes = {"rows": rows, "columns": cols}
    array = MacArray.model_validate(template | {"axes": axes, "levels": levels})
    return cost.array_record(array, flow, array.levels["sram"])[0]


def _product(m: float, n: float, k: float, bits: Any) -> cost.LoopNest:
    """Return a product as a nest."""
    sizes = np.ones(len(LOOPS))
    sizes[[_BATCH, _OUTPUT_CHANNELS, _INPUT_CHANNELS]] = m, n, k
    return cost.LoopNest(sizes, 1.0, 1.0, 1.0, 1.0, bits)


def layer_nest(row: Values) -> cost.LoopNest:
    """Return the layer of a row of ZigZag's table as a nest."""
    bits = np.array([row[name] for name in _BITS])
    if not np.isnan(row["gemm_M"]):
        return _product(row["gemm_M"], row["gemm_N"], row["gemm_K"], bits)
    sizes = np.array([row[name] for name in _LOOPS_OF_CONV])
    return cost.LoopNest(sizes, row["stride"], row["stride"], row["in_w"], row["in_h"], bits)


def compulsory_bits(nest: cost.LoopNest) -> float:
    """Return the bits that every mapping moves from and to DRAM: each used element once."""
    bits = (cost.operand_elements(nest, operand, nest.sizes) * nest.bits[operand] for operand in range(3))
    return float(sum(bits))


# Bits that pass each level of an operand, by (machine, layer, optimum) and (operand, place, memory).
_Levels = Mapping[tuple[str, ...], Mapping[tuple[int, int, str], float]]


@cache
def _levels() -> _Levels:
    """Return the bits that ZigZag counts at each level of its mappings."""
    words = map(Text, ("machine", "layer", "opt", "operand", "memory"))
    flows = [MaybeNumber(f"{flow}_data_bits", above=False) for flow in _FLOWS]
    path = resource("validate", "figures", LEVEL_FIGURES)
    levels: dict[tuple[str, ...], dict[tuple[int, int, str], float]] = {}
    for _, row in read_table(path, [*words, Number("level", above=False), *flows]).rows():
        key = _OPERANDS.index(row["operand"]), int(row["level"]), row["memory"]
        bits = float(np.nansum([row[flow.name] for flow in flows]))
        levels.setdefault((row["machine"], row["layer"], row["opt"]), {})[key] = bits
    return levels


def _peer_figures(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    """Return the rows of a file with their predictions."""
    assert suite.figures is not None, "figures of other tools are a table"
    shipped = resource("validate", "figures", suite.figures)
    files = [shipped.with_name(SYSTOLIC_FIGURES), path] if path == shipped else [path]
    levels = _levels() if path == shipped else {}
    return [row for file in files for row in _peer_rows(file, levels)], []


def _peer_rows(path: Path, levels: _Levels) -> Iterator[Row]:
    """Yield the rows of a table of either tool, with the known traffic of its mappings' levels."""
    _, header = next(csv_records(read_text(path), str(path)), (1, []))
    if "dataflow" in header and "machine" not in header:
        axes = [Number(name, 1.0, above=False, most=_LARGEST_AXIS) for name in ("rows", "cols")]
        sizes = [Number(name, 1.0, above=False, most=_LARGEST_SIZE) for name in ("m", "n", "k")]
        results = [Number(name, above=False) for name in ("compute_cycles", *_ACCESSES)]
        flow = Choice("dataflow", tuple(_DATAFLOWS))
        for line, row in read_table(path, [flow, *axes, *sizes, *results]).rows():
            yield from _systolic_rows(row, line)
        return
    words = [Choice("opt", ("latency", "energy")), Choice("machine", tuple(peer_machines())), Text("layer")]
    bits = [Number(name, 1.0, above=False, most=_LARGEST_SIZE) for name in _BITS]
    shape = [MaybeNumber(name, 1.0, above=False, most=_LARGEST_SIZE) for name in _SHAPE_COLUMNS]
    results = [Number(name, above=False) for name in _RESULT_COLUMNS]
    table = read_table(path, [*words, *shape, *bits, *results])
    for line, row in table.rows():
        own = (*_LOOPS_OF_CONV, "in_h", "in_w", "stride") if np.isnan(row["gemm_M"]) else _PRODUCT
        _require(row, own, table.file, line, 1.0)
        yield from _layer_rows(row, line, levels)


def _systolic_rows(row: Values, line: int) -> Iterator[Row]:
    """Predict cycles and SRAM accesses of one product on a systolic array."""
    m, n, k, rows, cols = (row[name] for name in ("m", "n", "k", "rows", "cols"))
    mapped = cost.best_order(
        _systolic(row["dataflow"], int(rows), int(cols)), _product(m, n, k, np.full(4, 8.0)), False
    )
    columns = {
        "tool": "SCALE-Sim",
        "machine": f"{row['dataflow']} {int(rows)}x{int(cols)}",
        "layer": f"{int(m)}x{int(n)}x{int(k)}",
    }
    # The tool names the last cycle, counted from 0.
    cycles = mapped.cost.steps + mapped.cost.skew - 1.0
    yield Row(f"{line} cycles", row["compute_cycles"], cycles, columns | {"quantity": "cycles"})
    for name, operand in _ACCESSES.items():
        is_held = row["dataflow"] == ("ws", "is", "os")[operand]
        flow = cost.FROM_BELOW if operand == _OUTPUTS else cost.TO_BELOW
        accesses = row[name]
        if operand == _OUTPUTS and is_held:  # a fault of the tool: it writes a row and a column more a fold
            accesses -= np.ceil(m / rows) * np.ceil(n / cols) * (rows + cols)
        words = mapped.billed_bits[operand, int(is_held), flow] / 8.0
        yield Row(f"{line} {name}", accesses, words, columns | {"quantity": "SRAM accesses"})


def _layer_rows(row: Values, line: int, levels: _Levels) -> Iterator[Row]:
    """Predict latency, energy and DRAM traffic of the best mapping of one layer, and its levels' traffic."""
    nest = layer_nest(row)
    mapped: cost.ArrayMapping = cost.best_order(peer_machines()[row["machine"]], nest, row["opt"] == "energy")
    ours, tools = float(mapped.dram_bits.sum()), float(sum(row[name] for name in _DRAM))
    # The nearest number of bits that is right: no more than the tool's, and every element once.
    right = min(max(ours, compulsory_bits(nest)), max(tools, compulsory_bits(nest)))
    columns = {"tool": "ZigZag", "machine": row["machine"], "layer": row["layer"]}
    for quantity, measured, predicted in (
        ("latency", row["latency_total_cycles"], mapped.cost.cycles),
        ("energy", row["energy_total_pj"] * _PJ, mapped.cost.energy_j),
        ("DRAM traffic", right, ours),
    ):
        yield Row(f"{line} {row['opt']}: {quantity}", measured, predicted, columns | {"quantity": quantity})
    known = levels.get((row["machine"], row["layer"], row["opt"]), {})
    for (operand, place, memory), measured in known.items():
        id_ = f"{line} {row['opt']}: {_OPERANDS[operand]} at {memory}"
        predicted = float(mapped.billed_bits[operand, place].sum())
        yield Row(id_, measured, predicted, columns | {"quantity": "traffic of a level"})


PEERS = RowPredictor(_peer_figures)
"""Cycles and traffic of SCALE-Sim's arrays; latency, energy and traffic of ZigZag's best mappings."""


# Settings of each design besides the use of sparse weights: what it does with inputs, and its size.
_DESIGNS = {
    "stc": (),
    "stc-compressed": ("core.sparsity.decompress_activations=true",),
    "eyeriss-v2-pe": (
        "core.dpu.array.axes={rows: 1, columns: 1}", "core.dpu.grid.vpe=1", "core.dpu.grid.mpe=1",
        "core.dpu.skips_by_both=true",
    ),
}  # fmt: skip


def _sparse_layer(m: int, k: int, n: int, weights: Mapping[str, Any], inputs: Mapping[str, Any]) -> Graph:
    """Return a product as a network."""
    editor = Editor("layer")
    x = editor.input("inputs", (n, k), DType.INT8, **inputs)
    w = editor.constant("weights", (k, m), DType.INT8, role=Role.WEIGHT, **weights)
    editor.outputs.append(editor.matmul(x, w, "product"))
    return editor.finish()


@cache
def _cycles(design: str, sizes: tuple[int, int, int], pattern: str, shares: tuple[float, ...]) -> float:
    """Return the cycles of the array by the densities of both operands; without a pattern they are dense."""
    both = design == "eyeriss-v2-pe"
    used = ("weights", "inputs") if both else ("weights",)
    uses = ", ".join(f"{{operand: {each}, structure: '{pattern}', action: skipping}}" for each in used)
    settings = [*_DESIGNS[design], *([f"core.dpu.sparsity=[{uses}]"] if pattern else [])]
    weights, inputs = (
        {"pattern": name, "density": share, "storage": Storage.ZVC} if pattern and share < 1.0 else {}
        for name, share in zip((pattern, pattern if both else ""), shares, strict=True)
    )
    soc = load_soc(resource("validate", "definitions", "sparse_tensor_core.yaml"), settings)
    mapped = Scenario(_sparse_layer(*sizes, weights, inputs), soc, device="core").mapped
    return float(mapped.results[0]["dpu_s"]) * float(soc.array_devices["core"].dpu.clock)


def _speedups(suite: Suite, path: Path) -> tuple[list[Row], list[str]]:
    """Return the speed-up of each row over dense operands."""
    figures, rows = read_declared(suite, path), []
    for line, row in figures.rows():
        sizes = int(row["m"]), int(row["k"]), int(row["n"])
        shares = float(row["weight_density"]), float(row["input_density"])
        dense = _cycles(row["design"], sizes, "", (1.0, 1.0))
        predicted = dense / _cycles(row["design"], sizes, row["pattern"], shares)
        key = {name: row[name] for name in suite.dimensions}
        rows.append(Row(line, float(row["dense_cycles"] / row["cycles"]), predicted, key))
    return rows, list(figures.notes)


SPARSELOOP = RowPredictor(_speedups)
"""Speed-ups of Sparseloop's tensor cores and of Eyeriss v2's PE."""
