"""Import the machines that other tools ship and print the tables of docs/importing.md.

    python scripts/peers_imported.py --zigzag PYTHON
    python scripts/peers_imported.py --scalesim PYTHON --configurations FOLDER
    python scripts/peers_imported.py --machines FOLDER [--accelforge PYTHON]

PYTHON is the interpreter of an environment with the tool (`pip install zigzag-dse scalesim six "numpy<2.3"`,
or `accelforge`), configurations are SCALE-Sim's folder `configs`, machines AccelForge's `examples/arches`.
Nothing is kept.
"""

from __future__ import annotations

import argparse
import configparser
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

_OF_PRODUCTS = """
- name: default
  spatial_mapping: {D1: ["K, 8"], D2: ["C, 8"], D3: ["OX, 8"]}
  memory_operand_links: {O: O, W: I2, I: I1}
"""
"""Mapping of convolutions on machines that come with one of products alone."""
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
    if hasattr(node, "memory_word_access") and hasattr(node, "layer"):
        results.setdefault(node.layer.name, node)
    elif isinstance(node, (list, tuple)):
        for each in node:
            walk(each)
walk(found)
def bits(one):
    memory = one.accelerator.memory_hierarchy.get_operand_top_level
    total = 0
    for operand, levels in one.memory_word_access.items():
        top = memory(one.layer.memory_operand_links.layer_to_mem_op(operand))
        total += sum(levels[-1].data.values()) * max(port.bw_max for port in top.ports)
    return total
print(json.dumps({name: [one.latency_total2, bits(one)] for name, one in results.items()}))
"""

_ACCELFORGE = """
import json, os, sys
import accelforge
from accelforge.mapper.FFM.mappings import Mappings
Mappings.render = lambda self, **_: ""  # draws with Graphviz
accelforge.set_n_parallel_jobs(1)
machine, layers = sys.argv[1], json.loads(sys.argv[2])
results = {}
for name, (_, _, k, c, high, wide, taps, _) in layers.items():
    sizes = {"n": 1, "m": k, "c": c, "p": high, "q": wide, "r": taps, "s": taps}
    shape = "\\n".join(f"    {loop}: 0 <= {loop} < {size}" for loop, size in sizes.items())
    accesses = ["{name: I, projection: {N: n, C: c, P: p+r, Q: q+s}}", "{name: W, projection: [m, c, r, s]}",
                "{name: O, projection: [n, m, p, q], output: True}"]
    tensors = "\\n".join(f"    - {access}" for access in accesses)
    with open("layer.yaml", "w") as file:
        file.write(f"workload:\\n  iteration_space_shape:\\n{shape}\\n  bits_per_value: {{All: 8}}\\n"
                   f"  einsums:\\n  - name: Conv\\n    tensor_accesses:\\n{tensors}\\n"
                   "    renames: {weight: W, input: I, output: O}\\n")
    spec = accelforge.Spec.from_yaml(machine, "layer.yaml")
    spec.mapper.metrics = accelforge.Metrics.LATENCY
    found = spec.map_workload_to_arch()
    actions = found.actions(per_component=True, per_tensor=True)
    outermost = next(iter(spec.arch.nodes)).name
    moved = sum(count for (component, _, _), count in actions.items() if component == outermost)
    results[name] = [found.latency(), moved]
print(json.dumps(results))
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


def searched(machine: PeerMachine, sizes: tuple[int, ...], on_chip: bool = False) -> tuple[float, float]:
    """Return cycles and DRAM bits of a layer's best mapping, found as suite `peers` does.

    With `on_chip` the SRAM is the outermost memory and never stalls, as SCALE-Sim assumes.
    """
    levels = {}
    for memory in machine.memories[:-1] if on_chip else machine.memories:
        energy = {} if memory.energy is None else {"read_energy": memory.energy.at(machine.file, "pJ/B")}
        levels[memory.name.lower()] = machine.array_level(memory) | energy
    names = list(levels)
    if on_chip:
        levels[names[-1]] |= {"width": "100000 B/cycle", "least_access": "1e-6 B", "read_energy": "0 pJ/B"}
    dram = ArrayLevel.model_validate(levels.pop(names[-1]))
    axes = {name: int(pes.value) for name, pes in machine.axes.items()}
    array = MacArray.model_validate(
        {
            "axes": axes,
            "transfer": machine.transfer,
            "folds": machine.folds,
            "mac_energy": "0 pJ/MAC",
            "levels": levels,
        }
    )
    flow = Dataflow.model_validate({"unroll": machine.unroll, "stationary": machine.stationary})
    steps = dict(zip(LOOPS, map(float, sizes), strict=True))
    high, wide = (steps[f"output_{side}"] + steps[f"kernel_{side}"] - 1.0 for side in ("height", "width"))
    bits = np.full(4, 8.0) if on_chip else _BITS
    nest = LoopNest(np.array(list(steps.values())), 1.0, 1.0, wide, high, bits)
    mapped = best_order(array_record(array, flow, dram)[0], nest, False)
    cycles = mapped.cost.steps + mapped.cost.skew if on_chip else mapped.cost.cycles
    return float(cycles), float(mapped.dram_bits.sum())


def estimated(machine: PeerMachine, network: Path, folder: Path) -> dict[str, tuple[float, float]]:
    """Return cycles and DRAM bits of each operator of a network by `npusim estimate` on the sheet."""
    sheet = folder / "machine.yaml"
    sheet.write_text(sheet_text(machine))
    estimate = npusim.estimate(str(network), str(sheet))
    hz = machine.clock.value
    return {op.name: (op.span_s * hz, op.dram_bytes * 8.0) for op in estimate.operators}


Figures = tuple[float | None, float | None]
"""Cycles, and bits from and to DRAM."""


def figures(machine: str, layer: str, tool: Figures, search: Figures, sheet: Figures) -> list[str]:
    """Return a row of the table; None is an empty cell."""
    (cycles, bits), (ours, moved) = tool, search
    error = f"{ours / cycles - 1.0:+.2%}" if ours and cycles else ""
    columns = [(cycles, 1.0), (ours, 1.0), None, (bits, 8e3), (moved, 8e3), (sheet[0], 1.0), (sheet[1], 8e3)]
    cells = [
        error if c is None else "" if c[0] is None else f"{c[0] / c[1]:,.{int(c[1] > 1)}f}" for c in columns
    ]
    return [machine, layer, *cells]


def reason(error: Exception) -> str:
    """Return in a few words why there is no figure."""
    said = getattr(error, "stderr", None) or str(error)
    text = said.decode() if isinstance(said, bytes) else said
    return text.strip().splitlines()[-1].rpartition("found ")[2][:90]


def zigzag(python: str, folder: Path) -> Iterator[list[str]]:
    """Yield a row for each shipped machine and layer."""
    layers, script, products = workload(folder), folder / "run.py", folder / "mapping.yaml"
    script.write_text(_ZIGZAG)
    products.write_text(_OF_PRODUCTS)

    def run(*words: str) -> str:
        done = subprocess.run(
            [python, str(script), *words], capture_output=True, text=True, check=True, cwd=folder
        )
        return done.stdout.splitlines()[-1]

    base = Path(run())
    for hardware in sorted((base / "hardware").glob("*.yaml")):
        names = (f"{hardware.stem}.yaml", f"{hardware.stem}_like.yaml", "default.yaml")
        own = next(file for name in names if (file := base / "mapping" / name).is_file())
        mapping = own if "D0" not in own.read_text() else products
        try:
            machine = peer_machine(read_peer(hardware), read_peer(mapping))
            theirs, sheet = (
                json.loads(run(str(layers), str(hardware), str(mapping))),
                estimated(machine, layers, folder),
            )
        except (NpusimError, subprocess.CalledProcessError) as error:
            yield [hardware.stem, reason(error)]
            continue
        for name, sizes in LAYERS.items():
            cycles, bits = theirs[name]
            ours, moved = searched(machine, sizes)
            yield figures(hardware.stem, name, (cycles, bits), (ours, moved), sheet[name])


def complete(file: Path, folder: Path) -> Path:
    """Write a configuration with what version 3 of SCALE-Sim needs and without layouts; return it."""
    config = configparser.ConfigParser()
    config.read(file)
    defaults = {
        "layout": dict.fromkeys(("IfmapCustomLayout", "FilterCustomLayout"), "False")
        | {
            f"{part}SRAMBank{what}": "2"
            for part in ("Ifmap", "Filter")
            for what in ("Bandwidth", "Num", "Port")
        },
        "sparsity": {"SparsitySupport": "false"},
        "run_presets": {"InterfaceBandwidth": "CALC", "UseRamulatorTrace": "False"},
        "architecture_presets": {"ReadRequestBuffer": "32", "WriteRequestBuffer": "32"},
    }
    for section, keys in defaults.items():
        if not config.has_section(section):
            config.add_section(section)
        for key, value in keys.items():
            if not config.has_option(section, key) or key.endswith("CustomLayout"):
                config.set(section, key, value)
    written = folder / f"complete-{file.name}"
    with written.open("w") as stream:
        config.write(stream)
    return written


def scalesim(python: str, configurations: Path, folder: Path) -> Iterator[list[str]]:
    """Yield a row for each of SCALE-Sim's configurations and layer."""
    topology, layout = folder / "layers.csv", folder / "layout.csv"
    head = (
        "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,"
    )
    rows = [
        f"{name}, {high + taps - 1}, {wide + taps - 1}, {taps}, {taps}, {c}, {k}, 1,"
        for name, (_, _, k, c, high, wide, taps, _) in LAYERS.items()
    ]
    topology.write_text("\n".join([head, *rows, ""]))
    layout.write_text(
        "\n".join(["Layer name," + "x," * 20, *(f"{name}," + "1," * 20 for name in LAYERS), ""])
    )
    for file in sorted(configurations.glob("*.cfg")):
        out = folder / file.stem
        try:
            machine = peer_machine(read_peer(file))
            options = {"-c": complete(file, folder), "-t": topology, "-l": layout, "-p": out, "-s": "N"}
            words = [str(word) for pair in options.items() for word in pair]
            subprocess.run(
                [python, "-m", "scalesim.scale", *words], capture_output=True, check=True, cwd=folder
            )
            sheet = estimated(machine, topology, folder)
        except (NpusimError, subprocess.CalledProcessError) as error:
            yield [file.stem, reason(error)]
            continue
        report, details = (next(out.rglob(f"{name}*.csv")) for name in ("COMPUTE_REPORT", "DETAILED"))
        reports = [list(csv.DictReader(path.open(), skipinitialspace=True)) for path in (report, details)]
        for (name, sizes), cost, access in zip(LAYERS.items(), *reports, strict=True):
            product = (sizes[4] * sizes[5], 1, sizes[2], sizes[3] * sizes[6] * sizes[7], 1, 1, 1, 1)
            ours, _ = searched(machine, product, on_chip=True)
            cycles = float(cost["Total Cycles"]) - float(cost["Stall Cycles"])
            moved = sum(
                float(access[f"DRAM {part}"]) for part in ("IFMAP Reads", "Filter Reads", "OFMAP Writes")
            )
            yield figures(file.stem, name, (cycles, 8.0 * moved), (ours - 1.0, None), sheet[name])


def accelforge(machines: Path, python: str | None, folder: Path) -> Iterator[list[str]]:
    """Yield a row for each machine of AccelForge and layer, with the tool's figures where it evaluates it."""
    layers, script, theirs = workload(folder), folder / "run.py", dict[str, tuple[float, float]]()
    script.write_text(_ACCELFORGE)
    for file in sorted(machines.rglob("*.yaml")):
        try:
            machine = peer_machine(read_peer(file))
            sheet = estimated(machine, layers, folder)
        except NpusimError as error:
            yield [file.stem, reason(error)]
            continue
        if python is not None:
            command = [python, "-P", str(script), str(file.resolve()), json.dumps(LAYERS)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
            theirs = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
        for name, (cycles, bits) in sheet.items():
            seconds, moved = theirs.get(name, (None, None))
            # Without a clock the tool counts cycles.
            hz = 1.0 if machine.clock.path is None else machine.clock.value
            tool = None if seconds is None else seconds * hz
            ours = searched(machine, LAYERS[name]) if tool else (None, None)
            yield figures(file.stem, name, (tool, moved), ours, (cycles, bits))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zigzag", metavar="PYTHON")
    parser.add_argument("--scalesim", metavar="PYTHON")
    parser.add_argument("--configurations", type=Path, metavar="FOLDER")
    parser.add_argument("--machines", type=Path, metavar="FOLDER")
    parser.add_argument("--accelforge", metavar="PYTHON")
    chosen = parser.parse_args()
    columns = ["machine", "layer", "tool, cycles", "npusim's search", "", "tool, DRAM kB", "search, DRAM kB",
               "estimate, cycles", "estimate, DRAM kB"]  # fmt: skip
    print(f"| {' | '.join(columns)} |\n|{' --- |' * 2}{' ---: |' * 7}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows: list[Iterator[list[str]]] = []
        rows += [zigzag(chosen.zigzag, folder)] if chosen.zigzag else []
        rows += (
            [scalesim(chosen.scalesim, chosen.configurations.resolve(), folder)] if chosen.scalesim else []
        )
        rows += [accelforge(chosen.machines, chosen.accelforge, folder)] if chosen.machines else []
        for row in (row for each in rows for row in each):
            print(f"| {' | '.join(row + [''] * (len(columns) - len(row)))} |", flush=True)


if __name__ == "__main__":
    main()
