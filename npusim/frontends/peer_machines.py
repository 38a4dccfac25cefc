"""Data sheets from the machines of other tools: Timeloop, AccelForge, ZigZag, SCALE-Sim, MAESTRO.

A reader per format returns the same description: axes, memories from the PEs outwards, the last of them main
memory. The sheet is that of `configs/importers/sheet.yaml` with these numbers; what the file does not say
stays an estimate there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

from npusim.arch.array import AXES, LEVELS, LOOPS_OF_AXIS, OPERANDS, shipped_dataflows
from npusim.arch.soc import Soc
from npusim.config import validate_data
from npusim.config.loading import dump_data
from npusim.config.reading import LOCAL_TAG, Key, read_yaml
from npusim.errors import printable, shown
from npusim.frontends.peer_files import NAMES, PeerFile, as_number
from npusim.locate import resource

_MOST_PES, _MOST_BITS, _MOST_PJ = 65_536, 1e12, 1e5
_PORTS = ("one", "read_and_write", "two_of_each")


class Number(NamedTuple):
    """A number of a machine, and where the file says it; no path: an estimate."""

    value: float
    path: Key | None = None

    def at(self, file: PeerFile, unit: str, factor: float = 1.0) -> dict[str, str]:
        """Return it as a number of a data sheet, in a unit after a factor."""
        value = f"{self.value * factor:.12g} {unit}".strip()
        if self.path is None:
            return {"value": value, "source": "[EST]", "uncertainty": "100 %"}
        return {"value": value, "source": f"[FILE] line {file.document.line(self.path)}"}


_CLOCK, _MAIN_BYTES, _ELEMENT_BYTES, _SUM_BYTES = Number(1e9), Number(4e9), Number(2.0), Number(4.0)
_USUAL_WIDTH, _ENDLESS_WIDTH = Number(16.0), Number(1000.0)
"""What stands in a sheet where the file says nothing: Hz, bytes, and bytes a cycle."""


class Memory(NamedTuple):
    """A memory of another tool's machine."""

    name: str
    capacity: Number
    """Bytes of an instance."""
    width: Number
    """Bytes that a port moves in a cycle of the array."""
    operands: Sequence[str] = OPERANDS
    shared_by: str | Sequence[str] = "all"
    """Axes whose PEs share an instance."""
    ports: str = "two_of_each"
    banks: int = 1
    """Words that an instance reads side by side, as SRAM."""
    least: Number | None = None
    """Smallest part of the width that is accessed; None: all of it."""
    energy: Number | None = None
    """Energy of a byte that is read (pJ); None: not known."""


@dataclass
class PeerMachine:
    """A machine of another tool in the terms of a data sheet."""

    file: PeerFile
    name: str
    axes: dict[str, Number] = field(default_factory=dict)
    """PEs along each axis."""
    unroll: list[list[str]] = field(default_factory=list)
    """Loops of each axis."""
    stationary: str = "any"
    memories: list[Memory] = field(default_factory=list)
    """From the PEs outwards; the last is main memory."""
    transfer: str = "broadcast"
    folds: str = "overlapped"
    clock: Number = _CLOCK
    """Clock (Hz)."""
    sum_bytes: Number = _SUM_BYTES
    """Bytes of a partial sum, unless its level has less."""
    mac_energy: Number | None = None
    """Energy of a multiply-accumulate (pJ)."""
    node: str = "28 nm"
    remarks: list[str] = field(default_factory=list)
    """What could not be said, each with its line."""

    def remark(self, text: str, path: Key = ()) -> None:
        """Add a line to what could not be said."""
        self.remarks.append(f"{self.file.document.line(path)}: {text}")

    def add_axis(self, name: str, pes: int, loops: Sequence[str] | None, path: Key) -> None:
        """Add an axis without the loops that are on another one; None: the first loops that are free."""
        if pes == 1:
            return
        busy = {loop for axis in self.unroll for loop in axis}
        if loops is None:
            loops = next(each for each in NAMES["unrolled"] if busy.isdisjoint(each))
            self.remark(f"axis `{name}` has no loops; {', '.join(loops) or 'none'} [EST]", path)
        kept = [loop for loop in dict.fromkeys(loops) if loop not in busy][:LOOPS_OF_AXIS]
        left = ", ".join(loop for loop in loops if loop not in kept)
        if left:
            self.remark(f"axis `{name}` without {left}: a loop has one axis, an axis {LOOPS_OF_AXIS}", path)
        if len(self.axes) == AXES:
            raise self.file.wrong(path, f"the axis {shown(name)}", f"at most {AXES} axes")
        self.axes[_word(name, self.axes)] = Number(pes, path)
        self.unroll.append(kept)

    def array_level(self, memory: Memory) -> dict[str, Any]:
        """Return a memory as `npusim.arch.array.ArrayLevel` reads it, without its energy."""
        least = {} if memory.least is None else {"least_access": memory.least.at(self.file, "B")}
        return {
            "capacity": memory.capacity.at(self.file, "B"),
            "operands": [*memory.operands],
            "shared_by": memory.shared_by,
            "width": memory.width.at(self.file, "B/cycle"),
            "ports": memory.ports,
        } | least


def _word(name: str, others: Mapping[str, Any]) -> str:
    """Return a name in the form of levels and axes, unlike all others."""
    word = re.sub("[^a-z0-9_]", "_", f"m{name}" if not name[:1].isalpha() else name.lower())[:40]
    return f"{word}_{len(others)}" if word in others else word


def _operands(text: object) -> list[str]:
    """Return the operands that a text names, by any tool's names."""
    words = {NAMES["operands"].get(word) for word in re.findall(r"(?<![~.\w])\w+", str(text))}
    return [operand for operand in OPERANDS if operand in words]


def _zigzag(file: PeerFile, mapping: PeerFile | None) -> PeerMachine:
    array, letters = "operational_array", NAMES["loops"]["zigzag_workload"]
    machine = PeerMachine(file, str(file.value("name", default="zigzag")))
    if file.value(array, "is_imc", default=False):
        raise file.wrong((array, "is_imc"), "memory cells that compute", "a digital array")
    machine.transfer = "systolic" if file.entries(array, "systolic_dimensions") else "broadcast"
    machine.sum_bytes = _ELEMENT_BYTES  # ZigZag's workloads have sums of 16 bits
    machine.mac_energy = Number(file.number(array, "unit_energy"), (array, "unit_energy"))
    dimensions = file.entries(array, "dimensions")
    for place, dimension in enumerate(dimensions):
        pes, loops = file.count(array, "sizes", place, most=_MOST_PES), None
        if mapping is not None:
            spatial = mapping.value(0, "spatial_mapping", str(dimension), default="")
            pairs = re.findall(r"([A-Z]\w*)\W+(\d{1,6})", str(spatial))
            loops = [letters[letter] for letter, _ in pairs if letter in letters] or (None if pairs else [])
            pes = min(pes, max(1, prod(int(count) for _, count in pairs)))
        machine.add_axis(str(dimension), pes, loops, (array, "sizes", place))
    for name in file.mapping("memories"):
        machine.memories.append(_zigzag_memory(machine, name, len(dimensions)))
    return machine


def _zigzag_memory(machine: PeerMachine, name: str, dimensions: int) -> Memory:
    file, path = machine.file, ("memories", name)
    ports = [(*path, "ports", place) for place in range(len(file.value(*path, "ports", kind=list)))]
    widths = [file.count(*port, "bandwidth_max", most=_MOST_BITS) / 8.0 for port in ports] or [1.0]
    least = min((file.count(*port, "bandwidth_min", most=_MOST_BITS) / 8.0 for port in ports), default=1.0)
    ways = Counter(str(file.value(*port, "type")) for port in ports)
    sides = min(ways[way] + ways["read_write"] // 2 for way in ("read", "write"))
    if len(set(widths)) > 1:
        machine.remark(f"`{name}` has ports of several widths; the widest", path)
    readers = {str(each) for port in ports for each in file.entries(*port, "allocation") if "tl" in str(each)}
    by_operand = sides > 1 and len(readers) > 1
    served = [_word(str(axis), {}) for axis in file.entries(*path, "served_dimensions")]
    return Memory(
        name,
        Number(file.number(*path, "size", most=_MOST_BITS) / 8.0, path),
        Number(max(widths), path),
        _operands(file.entries(*path, "operands")),
        "all" if len(served) == dimensions else [axis for axis in served if axis in machine.axes],
        "one_of_each_operand" if by_operand else _PORTS[min(sides, 2)],
        banks=len(readers) if by_operand else 1,
        least=Number(least, path) if least < max(widths) else None,
        energy=Number(file.number(*path, "r_cost") / widths[0], path),
    )


def _nodes(file: PeerFile, *path: str | int) -> Iterator[tuple[Key, str, str]]:
    """Yield path, tag and name of every node of a hierarchy, from main memory inwards."""
    for place in range(len(file.entries(*path))):
        node = file.mapping(*path, place)
        yield (*path, place), str(node.get(LOCAL_TAG, "")), str(node.get("name", "node"))
        yield from _nodes(file, *path, place, "nodes")


def _hierarchy(
    file: PeerFile, root: str, memory_of: Callable[[PeerMachine, Key, str, str], Memory | None]
) -> PeerMachine:
    """Return a machine of nodes: `memory_of` adds a node's axes, which count for the nodes after it."""
    machine, memories = PeerMachine(file, file.name.partition(".")[0]), list[tuple[Memory, int]]()
    file.value(root, "nodes", kind=list)
    for path, tag, name in _nodes(file, root, "nodes"):
        memory = memory_of(machine, path, tag, name)
        if memory is not None:
            memories.append((memory, len(machine.axes)))
    for memory, outside in reversed(memories):
        shared = [*machine.axes][outside:] if outside else "all"
        machine.memories.append(memory._replace(shared_by=shared))
    return machine


def _timeloop_memory(machine: PeerMachine, path: Key, tag: str, name: str) -> Memory | None:
    file, at, letters = machine.file, (*path, "attributes"), NAMES["loops"]["timeloop_problem"]
    stated, limits = file.mapping(*at), file.mapping(*path, "constraints", "spatial")
    closed = re.findall(r"([A-Z])\s*=\s*1\b", str(limits.get("factors", "")))
    order = re.findall("[A-Z]", str(limits.get("permutation", "")))
    loops = [letters[letter] for letter in order if letter in letters and letter not in closed]
    for mesh in file.mapping(*path, "spatial"):
        pes = file.count(*path, "spatial", mesh, most=_MOST_PES)
        machine.add_axis(f"{name}_{mesh}", pes, loops or None, (*path, "spatial", mesh))
    if re.fullmatch(r"\d{1,3} ?nm", str(stated.get("technology", ""))):
        machine.node = str(stated["technology"])
    if "global_cycle_seconds" in stated:
        cycle = (*at, "global_cycle_seconds")
        machine.clock = Number(1.0 / max(file.number(*cycle), 1e-12), cycle)
    kind = str(file.value(*path, "class", default="")).lower()
    if tag != "Component" or ("depth" not in stated and "dram" not in kind):
        if tag == "Component" and "mac" not in kind:
            machine.remark(f"component `{name}` of class `{kind}` is no memory and no MAC", path)
        return None
    width, element = (
        file.count(*at, key, default=8, most=_MOST_BITS) / 8.0 for key in ("width", "datawidth")
    )
    words = file.number(*at, "read_bandwidth", default=width / element)
    depth = file.count(*at, "depth", default=1, most=_MOST_BITS)
    space = file.mapping(*path, "constraints", "dataspace")
    bypass = _operands(space.get("bypass"))
    return Memory(
        name,
        Number(depth * width, path) if "depth" in stated else _MAIN_BYTES,
        Number(words * element, path) if "width" in stated else _USUAL_WIDTH,
        _operands(space.get("keep")) or [operand for operand in OPERANDS if operand not in bypass],
    )


def _accelforge_memory(machine: PeerMachine, path: Key, tag: str, name: str) -> Memory | None:
    file = machine.file
    for place in range(len(file.entries(*path, "spatial"))):
        at = (*path, "spatial", place)
        pes, loops = file.count(*at, "fanout", most=_MOST_PES), NAMES["reused"]
        reuse = str(file.value(*at, "reuse", default=""))
        machine.add_axis(str(file.value(*at, "name", default="pes")), pes, loops.get(reuse), at)
    word = "compute" if tag == "Compute" else "read"
    actions = [(*path, "actions", place) for place in range(len(file.entries(*path, "actions")))]
    action = next((at for at in actions if file.value(*at, "name") == word), path)
    bits = as_number(file.value(*action, "bits_per_action", default=1)) or 1.0
    energy = as_number(file.value(*action, "energy", default=None))
    said = file.value(*action, "throughput", default=None)
    rate, picojoules = as_number(said), None if energy is None else Number(energy * 1e12 * 8.0 / bits, action)
    if picojoules is not None and picojoules.value > _MOST_PJ:
        machine.remark(f"`{name}` has the energy of no real part; an estimate stands in its place", action)
        picojoules = None
    if tag == "Compute":
        machine.clock = Number(rate, action) if rate and 1e3 < rate < 1e11 else machine.clock
        machine.mac_energy = picojoules and picojoules._replace(value=picojoules.value / 8.0)
    if tag != "Memory":
        return None
    width, size = (_ENDLESS_WIDTH if said == "inf" else _USUAL_WIDTH), as_number(file.value(*path, "size"))
    if rate:
        width = Number(rate * bits / 8.0, action)  # a second, until the clock is known
    else:
        machine.remark(f"`{name}` has no bandwidth as a number; {width.value:g} B/cycle [EST]", path)
    text = str(file.value(*path, "size"))
    capacity = _MAIN_BYTES if text == "inf" else _ELEMENT_BYTES
    if size is None:
        machine.remark(f"`{name}` has the size {shown(text)}; {capacity.value:g} B [EST]", (*path, "size"))
    else:
        capacity = Number(size / 8.0, (*path, "size"))
    kept = _operands(file.value(*path, "tensors", "keep", default=""))
    return Memory(name, capacity, width, kept or OPERANDS, energy=picojoules)


def _accelforge(file: PeerFile, _: PeerFile | None) -> PeerMachine:
    machine = _hierarchy(file, "arch", _accelforge_memory)
    for place, memory in enumerate(machine.memories):
        if memory.width.path is not None:
            width = memory.width._replace(value=memory.width.value / machine.clock.value)
            machine.memories[place] = memory._replace(width=width)
    return machine


def _scalesim(file: PeerFile, _: PeerFile | None) -> PeerMachine:
    presets, flows = "architecture_presets", NAMES["dataflows"]
    machine = PeerMachine(file, str(file.value("general", "run_name", default="scale-sim")))
    machine.transfer, machine.folds = "systolic", "serial"
    word = str(file.value(presets, "dataflow"))
    if word not in flows:
        raise file.wrong((presets, "dataflow"), shown(word), ", ".join(flows))
    flow = shipped_dataflows()[flows[word]]
    machine.stationary = flow.stationary
    for key, loops in zip(("arrayheight", "arraywidth"), flow.unroll, strict=True):
        machine.add_axis(key, file.count(presets, key, most=_MOST_PES), loops, (presets, key))
    keys = [f"{operand}sramszkb" for operand in ("ifmap", "filter", "ofmap")]
    capacity = Number(1024.0 * sum(file.count(presets, key) for key in keys), (presets, keys[0]))
    machine.remark("the three SRAMs count as one, whose ports never stall the array", (presets, keys[0]))
    edge = 2.0 * sum(pes.value for pes in machine.axes.values()) or 2.0
    width = Number(edge)
    if str(file.value("run_presets", "interfacebandwidth", default="CALC")).upper() == "USER":
        width = Number(file.number(presets, "bandwidth"), (presets, "bandwidth"))
    else:
        machine.remark(f"memory never stalls (CALC); {width.value:g} B/cycle of DRAM [EST]", ("run_presets",))
    machine.memories = [
        Memory("register", _ELEMENT_BYTES, _ELEMENT_BYTES, [flow.stationary], []),
        Memory("sram", capacity, Number(4.0), banks=int(edge)),
        Memory("dram", _MAIN_BYTES, width),
    ]
    return machine


def _maestro(file: PeerFile, mapping: PeerFile | None) -> PeerMachine:
    machine, letters = PeerMachine(file, "maestro"), NAMES["loops"]["maestro_network"] | NAMES["mapped"]
    axes: list[tuple[int, list[str]]] = [(file.count("NumPEs", most=_MOST_PES), [])]
    for step in mapping.entries(0, "Dataflow") if mapping else ():
        (kind, word), (pes, loops) = step[:2], axes[-1]
        if kind == "SpatialMap" and word in letters:
            loops.append(letters[word])
        elif kind == "Cluster" and isinstance(word, int) and 0 < word <= pes:
            axes[-1:] = [(pes // word, loops), (word, [])]
    for place, (pes, loops) in enumerate(axes):
        machine.add_axis(f"cluster{place}", pes, loops or None, ("NumPEs",))
    width = file.number("NoC_BW")
    machine.remark("an element is a byte; DRAM has the bandwidth of the NoC [EST]", ("NoC_BW",))
    machine.memories = [
        Memory("l1", Number(file.number("L1Size"), ("L1Size",)), _ELEMENT_BYTES, shared_by=[]),
        Memory("l2", Number(file.number("L2Size"), ("L2Size",)), Number(width, ("NoC_BW",))),
        Memory("dram", _MAIN_BYTES, Number(width)),
    ]
    return machine


_READERS: Mapping[str, Callable[[PeerFile, PeerFile | None], PeerMachine]] = {
    "zigzag_hardware": _zigzag,
    "timeloop_architecture": lambda file, _: _hierarchy(file, "architecture", _timeloop_memory),
    "accelforge": _accelforge,
    "scalesim_configuration": _scalesim,
    "maestro_hardware": _maestro,
}


def peer_machine(file: PeerFile, mapping: PeerFile | None = None) -> PeerMachine:
    """Return the machine that a file describes, unrolled as a mapping file says.

    Raises
    ------
    ConfigError
        If it is no machine, if the mapping does not belong to it, or a value cannot be.
    """
    if file.kind not in _READERS:
        raise file.wrong((), f"a {file.title} file", ", ".join(NAMES["formats"][kind] for kind in _READERS))
    wanted = NAMES["mappings"].get(file.kind)
    if mapping is not None and mapping.kind != wanted:
        allowed = f"a {NAMES['formats'][wanted]} file" if wanted else f"no file after a {file.title} file"
        raise mapping.wrong((), f"a {mapping.title} file", allowed)
    machine = _READERS[file.kind](file, mapping)
    if not 1 <= len(machine.memories) <= LEVELS:
        raise file.wrong((), f"{len(machine.memories)} memories", f"1 to {LEVELS}")
    machine.remarks += file.unread()
    if not machine.axes:
        machine.axes["pes"], machine.unroll = Number(1.0), [[]]
    return machine


def sheet_text(machine: PeerMachine) -> str:
    """Return the data sheet of a machine, with what could not be said as comments at its top.

    On-chip memories that all PEs share become the SRAM, the outermost of each operand; those inside it are
    levels of the array.
    """
    data = read_yaml(resource("configs", "importers", "sheet.yaml")).data
    file, main, shared = machine.file, machine.memories[-1], _sram_of(machine)
    device, energy, largest = data["devices"]["array"], data["technology"]["energy"], shared[0]
    data |= {"name": machine.name, "title": f"{machine.name}, imported from a {file.title}"}
    data["sources"]["FILE"] = f"{file.name}, {file.title}"
    data["technology"]["node"] = machine.node
    device["vpu_clock"] = device["dpu"]["clock"] = machine.clock.at(file, "Hz")
    if machine.clock.path is None:
        machine.remark("it counts cycles; one takes 1 ns [EST]")
    device["dpu"]["dataflow"] = {"unroll": machine.unroll, "stationary": machine.stationary}
    inner = [memory for memory in machine.memories[:-1] if memory not in shared]
    sums = [machine.sum_bytes, *(memory.capacity for memory in inner if "outputs" in memory.operands)]
    device["dpu"]["grid"]["accumulator"] = min(sums, key=itemgetter(0)).at(file, "B")
    device["dpu"]["array"] = {
        "axes": {name: pes.at(file, "") | {"value": int(pes.value)} for name, pes in machine.axes.items()},
        "transfer": machine.transfer,
        "folds": machine.folds,
        "levels": {_word(memory.name, {}): machine.array_level(memory) for memory in inner},
    }
    capacity = largest.capacity._replace(value=sum(memory.capacity.value for memory in shared))
    device["sram"]["per_tile"] = capacity.at(file, "B")
    device["sram"]["word"] = max((memory.width for memory in shared), key=itemgetter(0)).at(file, "B")
    device["sram"]["read_ports"]["value"] = sum(memory.banks for memory in shared)
    device["dma"]["width"] = main.width.at(file, "B/cycle")
    data["dram"]["bandwidth"] = main.width.at(file, "B/s", machine.clock.value)
    data["dram"]["capacity"] = main.capacity.at(file, "B")
    if machine.mac_energy is not None:
        machine.remark("a multiply-accumulate's energy is without the memories of the array")
        energy["mac"] = dict.fromkeys(energy["mac"], machine.mac_energy.at(file, "pJ/MAC"))
    for part, memory in (("sram", largest), ("dram", main)):
        if memory.energy is not None:
            energy[part] = memory.energy.at(file, "pJ/B")
    validate_data(data, Soc)
    lines = [" ".join(printable(f"{file.name}:{remark}").split()) for remark in machine.remarks]
    comments = "".join(f"#   {line}\n" for line in lines)
    title = "# Imported by `npusim soc import`. What it could not say:\n"
    return title + comments + dump_data(data, flat=True)


def _sram_of(machine: PeerMachine) -> list[Memory]:
    """Return the memories that become the SRAM, the largest first: those that all PEs share."""
    *on_chip, main = machine.memories
    uncovered, shared = {*OPERANDS}, list[Memory]()
    for memory in reversed(on_chip):
        if memory.shared_by == "all" and uncovered.intersection(memory.operands):
            shared.append(memory)
            uncovered -= {*memory.operands}
    if not shared:
        machine.remark(f"no memory between PEs and `{main.name}`, which stands for both")
    elif uncovered:
        words = ", ".join(sorted(uncovered))
        machine.remark(f"{words} bypass the memories on the chip; here they pass through SRAM")
    if len(shared) > 1:
        words = ", ".join(memory.name for memory in shared)
        machine.remark(f"{words} count as one SRAM with a port each")
    return sorted(shared, key=lambda memory: -memory.capacity.value) or [main]
