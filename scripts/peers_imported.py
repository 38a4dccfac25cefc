"""Import the machines that other tools ship, and print their results beside npusim's as the tables of docs/importing.md.

    python scripts/peers_imported.py --zigzag PYTHON --scalesim PYTHON --configurations FOLDER --machines FOLDER

PYTHON is the interpreter of an environment in which the tool is installed (`pip install zigzag-dse scalesim`); configurations are
SCALE-Sim's `configs` folder, machines AccelForge's `examples/arches`. A tool that is not named is left out. Nothing of theirs is kept.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import npusim
from npusim.arch.array import LOOPS, ArrayLevel, Dataflow, MacArray
from npusim.cost import LoopNest, array_record, best_order
from npusim.errors import NpusimError
from npusim.frontends.peer_files import read_peer
from npusim.frontends.peer_machines import PeerMachine, peer_machine, sheet_text

LAYERS = {  # batch, groups, output channels, input channels, output rows and columns, kernel rows and columns
    "3x3": (1, 1, 64, 64, 28, 28, 3, 3),
    "1x1": (1, 1, 128, 256, 14, 14, 1, 1),
    "late 3x3": (1, 1, 256, 256, 7, 7, 3, 3),
}
_LETTERS = ("B", "G", "K", "C", "OY", "OX", "FY", "FX")
_BITS = np.array([8.0, 8.0, 8.0, 16.0])
"""Of weights, inputs, results and partial sums."""
_ZIGZAG = """
import json, logging, os, sys, tempfile
import zigzag
from zigzag.api import get_hardware_performance_zigzag
base = os.path.join(os.path.dirname(zigzag.__file__), "inputs")
if len(sys.argv) == 1:
    print(base)
    sys.exit()
logging.disable(logging.CRITICAL)
workload, machine, mapping = sys.argv[1:]
with tempfile.TemporaryDirectory() as out:
    _, _, found = get_hardware_performance_zigzag(workload, machine, mapping, opt="latency", dump_folder=out,
        loma_show_progress_bar=False)
results = {}
def walk(node):
    if hasattr(node, "memory_word_access"):
        results.setdefault(node.layer.name, node)
    elif isinstance(node, (list, tuple)):
        for each in node:
            walk(each)
walk(found)
def bits(one):
    width = {op: one.mem_level_list if False else one.accelerator.get_memory_level(one.layer.memory_operand_links.layer_to_mem_op(op), -1)
             for op in one.memory_word_access}
    total = 0
    for op, levels in one.memory_word_access.items():
        port = width[op].ports[0] if hasattr(width[op], "ports") else width[op].port_list[0]
        flows = levels[-1].data
        total += sum(flows.values() if hasattr(flows, "values") else flows) * port.bw_max
    return total
print(json.dumps({name: [one.latency_total2, bits(one)] for name, one in results.items()}))
"""


def workload(folder: Path) -> Path:
    """Write the layers as a ZigZag workload."""
    file = folder / "layers.yaml"
    rows = []
    for number, (name, sizes) in enumerate(LAYERS.items()):
        kept = [(letter, size) for letter, size in zip(_LETTERS, sizes, strict=True) if letter != "G"]
        rows.append(
            {
                "id": number,
                "name": name,
                "operator_type": "Conv",
                "equation": "O[b][k][oy][ox]+=W[k][c][fy][fx]*I[b][c][iy][ix]",
                "dimension_relations": ["ix=1*ox+1*fx", "iy=1*oy+1*fy"],
                "loop_dims": [letter for letter, _ in kept],
                "loop_sizes": [size for _, size in kept],
                "operand_precision": {"W": 8, "I": 8, "O": 16, "O_final": 8},
                "operand_source": {"I": number, "W": number},
            }
        )
    file.write_text(json.dumps(rows))
    return file


def searched(machine: PeerMachine, sizes: tuple[int, ...]) -> tuple[float, float]:
    """Return cycles and DRAM bits of the mapping that npusim's search finds for a layer, as suite `peers` does."""
    levels = {}
    for memory in machine.memories:
        energy = {} if memory.energy is None else {"read_energy": memory.energy.at(machine.file, "pJ/B")}
        levels[memory.name.lower()] = machine.array_level(memory) | energy
    names = list(levels)
    dram = ArrayLevel.model_validate(levels.pop(names[-1]))
    axes = {name: int(pes.value) for name, pes in machine.axes.items()}
    array = MacArray.model_validate(
        {"axes": axes, "transfer": machine.transfer, "mac_energy": "0 pJ/MAC", "levels": levels}
    )
    flow = Dataflow.model_validate({"unroll": machine.unroll, "stationary": machine.stationary})
    steps = dict(zip(LOOPS, map(float, sizes), strict=True))
    high, wide = (steps[f"output_{side}"] + steps[f"kernel_{side}"] - 1.0 for side in ("height", "width"))
    nest = LoopNest(np.array(list(steps.values())), 1.0, 1.0, wide, high, _BITS)
    mapped = best_order(array_record(array, flow, dram)[0], nest, False)
    return float(mapped.cost.cycles), float(mapped.dram_bits.sum())


def estimated(machine: PeerMachine, network: Path, folder: Path) -> dict[str, tuple[float, float]]:
    """Return cycles and DRAM bits of each operator of a network by `npusim estimate` on the sheet."""
    sheet = folder / "machine.yaml"
    sheet.write_text(sheet_text(machine))
    estimate = npusim.estimate(str(network), str(sheet))
    hz = machine.clock.value
    return {op.name: (op.span_s * hz, op.dram_bytes * 8.0) for op in estimate.operators}


def zigzag(python: str, folder: Path) -> Iterator[list[str]]:
    """Yield a row for each shipped machine and layer."""
    layers, script = workload(folder), folder / "run.py"
    script.write_text(_ZIGZAG)

    def run(*words: str) -> str:
        done = subprocess.run([python, str(script), *words], capture_output=True, text=True, check=True, cwd=folder)
        return done.stdout.splitlines()[-1]

    base = Path(run())
    for hardware in sorted((base / "hardware").glob("*.yaml")):
        own = base / "mapping" / hardware.name
        mapping = own if own.is_file() else base / "mapping" / "default.yaml"
        try:
            machine = peer_machine(read_peer(hardware), read_peer(mapping))
            theirs, sheet = json.loads(run(str(layers), str(hardware), str(mapping))), estimated(machine, layers, folder)
        except (NpusimError, subprocess.CalledProcessError) as error:
            yield [hardware.stem, str(getattr(error, "stderr", error)).strip().splitlines()[-1][:100], *[""] * 6]
            continue
        for name, sizes in LAYERS.items():
            cycles, bits = theirs[name]
            ours, moved = searched(machine, sizes)
            yield [
                hardware.stem, name, f"{cycles:,.0f}", f"{ours:,.0f}", f"{ours / cycles - 1.0:+.2%}",
                f"{bits / 8e3:,.1f}", f"{moved / 8e3:,.1f}", f"{sheet[name][0]:,.0f}", f"{sheet[name][1] / 8e3:,.1f}",
            ]  # fmt: skip


def scalesim(python: str, configurations: Path, folder: Path) -> Iterator[list[str]]:
    """Yield a row for each of SCALE-Sim's configurations and layer."""
    topology, layout = folder / "layers.csv", folder / "layout.csv"
    head = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,"
    rows = [
        f"{name}, {high + taps - 1}, {wide + taps - 1}, {taps}, {taps}, {c}, {k}, 1,"
        for name, (_, _, k, c, high, wide, taps, _) in LAYERS.items()
    ]
    topology.write_text("\n".join([head, *rows, ""]))
    layout.write_text("\n".join(["Layer name," + "x," * 20, *(f"{name}," + "1," * 20 for name in LAYERS), ""]))
    for file in sorted(configurations.glob("*.cfg")):
        out = folder / file.stem
        try:
            machine = peer_machine(read_peer(file))
            words = ["-m", "scalesim.scale", "-c", str(file), "-t", str(topology), "-l", str(layout), "-p", str(out), "-s", "N"]
            subprocess.run([python, *words], capture_output=True, check=True, cwd=folder)
            sheet = estimated(machine, topology, folder)
        except (NpusimError, subprocess.CalledProcessError) as error:
            yield [file.stem, str(getattr(error, "stderr", error))[-80:].replace("\n", " "), *[""] * 6]
            continue
        report, details = (next(out.rglob(f"{name}*.csv")) for name in ("COMPUTE_REPORT", "DETAILED"))
        reports = [list(csv.DictReader(path.open(), skipinitialspace=True)) for path in (report, details)]
        for (name, sizes), cost, access in zip(LAYERS.items(), *reports, strict=True):
            product = (sizes[4] * sizes[5], 1, sizes[2], sizes[3] * sizes[6] * sizes[7], 1, 1, 1, 1)
            ours, _ = searched(machine, product)
            cycles = float(cost["Total Cycles"])
            moved = sum(float(access[f"DRAM {part}"]) for part in ("IFMAP Reads", "Filter Reads", "OFMAP Writes"))
            yield [
                file.stem, name, f"{cycles:,.0f}", f"{ours - 1.0:,.0f}", f"{(ours - 1.0) / cycles - 1.0:+.2%}",
                f"{moved / 1e3:,.1f}", "", f"{sheet[name][0]:,.0f}", f"{sheet[name][1] / 8e3:,.1f}",
            ]  # fmt: skip


def accelforge(machines: Path, folder: Path) -> Iterator[list[str]]:
    """Yield a row for each machine of AccelForge, which is not run."""
    layers = workload(folder)
    for file in sorted(machines.rglob("*.yaml")):
        try:
            sheet = estimated(peer_machine(read_peer(file)), layers, folder)
        except NpusimError as error:
            yield [file.stem, str(error).partition("found ")[2].splitlines()[0][:90], *[""] * 7]
            continue
        for name, (cycles, bits) in sheet.items():
            yield [file.stem, name, "", "", "", "", "", f"{cycles:,.0f}", f"{bits / 8e3:,.1f}"]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zigzag", metavar="PYTHON")
    parser.add_argument("--scalesim", metavar="PYTHON")
    parser.add_argument("--configurations", type=Path, metavar="FOLDER")
    parser.add_argument("--machines", type=Path, metavar="FOLDER")
    chosen = parser.parse_args()
    columns = ["machine", "layer", "tool, cycles", "npusim's search", "", "tool, DRAM kB", "search, DRAM kB",
               "estimate, cycles", "estimate, DRAM kB"]  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{' --- |' * 2}{' ---: |' * 7}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows: list[Iterator[list[str]]] = []
        rows += [zigzag(chosen.zigzag, folder)] if chosen.zigzag else []
        rows += [scalesim(chosen.scalesim, chosen.configurations.resolve(), folder)] if chosen.scalesim else []
        rows += [accelforge(chosen.machines, folder)] if chosen.machines else []
        for row in (row for each in rows for row in each):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
