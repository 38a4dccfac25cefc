"""A network as a chain of blocks with their costs on each device (MaGNAS, Eq. 6 and 7).

Placements of the blocks are written as letters, a letter a device, as in Table 3 of MaGNAS.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np

from npusim.arch import Soc
from npusim.engines.analytical import launch_each_s
from npusim.errors import ConfigError, InfeasibleError, NpusimError
from npusim.graph import Graph
from npusim.mapping import ChainProblem, Mapped, PreparedGraph, prepared
from npusim.scenario import Scenario

_KIND = re.compile(r"(grapher|ffn)\d+$")


def parts_of(blocks: Sequence[str]) -> list[list[int]]:
    """Return which blocks each part of a mapping stands for: four parts of a Vision GNN, else one of all."""
    kinds = [match[1] if (match := _KIND.match(block)) else "stem" for block in blocks]
    if "grapher" not in kinds:
        return [list(range(len(blocks)))]
    first = kinds.index("grapher")
    kinds[first:] = ["head" if kind == "stem" else kind for kind in kinds[first:]]
    names = ("stem", "grapher", "ffn", "head")
    parts = ([i for i, kind in enumerate(kinds) if kind == name] for name in names)
    return [part for part in parts if part]


def letters_of(devices: Sequence[str]) -> dict[str, str]:
    """Return a letter for each device: the first of its name that no other has.

    If names begin alike up to a `_`, such as `dsa_k` and `dsa_y`, it is the first letter behind that.

    Examples
    --------
    >>> letters_of(["npu", "gpu", "cpu"]), letters_of(["dsa_k", "dsa_y", "dsa_d"])
    ({'npu': 'N', 'gpu': 'G', 'cpu': 'C'}, {'dsa_k': 'K', 'dsa_y': 'Y', 'dsa_d': 'D'})
    """
    letters: dict[str, str] = {}
    families = Counter(device.partition("_")[0] for device in devices)
    for device in devices:
        family, _, own = device.partition("_")
        name = f"{own}{family}" if families[family] > 1 else device
        candidates = [c.upper() for c in (*name, *ascii_lowercase) if c.isalpha()]
        letters[device] = next(c for c in candidates if c not in letters.values())
    return letters


def written(blocks: Sequence[str], letters: Sequence[str], placements: Any) -> list[str]:
    """Return placements as letters, parts parted by `/`.

    Parameters
    ----------
    letters : sequence of str
        Of the units.
    placements : array of int64, shape (placements, blocks)
    """
    columns = [column for part in parts_of(blocks) for column in (*part, -1)][:-1]
    codes = np.array([*map(ord, letters), ord("/")], np.uint8)
    extended = np.concatenate([placements, np.full((len(placements), 1), len(letters))], axis=1)
    return [row.tobytes().decode() for row in codes[extended[:, columns]]]


def placement_of(
    blocks: Sequence[str], units: Sequence[str], texts: Sequence[str], source: str | None = None
) -> np.ndarray:
    """Return the unit of each block by letters, a text for each part; a `-` between letters is ignored.

    Raises
    ------
    ConfigError
        Where there are more or fewer letters than blocks, or one stands for no device.
    """
    parts, texts = parts_of(blocks), [text.upper().replace("-", "") for text in texts]
    whole = "/".join(texts)
    needed, given = ("/".join(str(len(each)) for each in sequence) for sequence in (parts, texts))
    if needed != given:
        raise ConfigError(f"`{whole}`, {given} letters", file=source, allowed=f"{needed} letters")
    letters = letters_of(units)
    unit_of = {letter: i for i, letter in enumerate(letters.values())}
    placement = np.zeros(len(blocks), np.int64)
    for part, text in zip(parts, texts, strict=True):
        for i, letter in zip(part, text, strict=True):
            if letter not in unit_of:
                known = ", ".join(f"{letter} ({unit})" for unit, letter in letters.items())
                raise ConfigError(f"`{letter}` in `{whole}`", file=source, allowed=known)
            placement[i] = unit_of[letter]
    return placement


class Chain(NamedTuple):
    """Blocks in order of execution, and what each passes to the next."""

    blocks: tuple[str, ...]
    handed_bytes: tuple[float, ...]
    """Bytes that each block but the last hands to the next."""


def chain_of(graph: Graph) -> Chain:
    """Return the blocks of a network; NpusimError where one reads from any but the previous block."""
    block_of = {op.name: graph.regions[op.name].block for op in graph}
    blocks = tuple(dict.fromkeys(block_of.values()))
    number = {block: i for i, block in enumerate(blocks)}
    handed_bytes = [0.0] * len(blocks)
    for op in graph:
        here = number[block_of[op.name]]
        for name in op.outputs:
            readers = {number[block_of[reader.name]] for reader in graph.readers(name)} - {here}
            if readers - {here + 1}:
                other = blocks[max(readers - {here + 1})]
                raise NpusimError(
                    f"{graph.name} is no chain of blocks: `{other}` reads {name!r} of `{blocks[here]}`, "
                    "which is not the block before it; two objectives are for chains, one is for all networks"
                )
            if readers:
                handed_bytes[here] += graph.tensors[name].bytes
    return Chain(blocks, tuple(handed_bytes[:-1]))


class Passing(NamedTuple):
    """Cost of passing a result from device to device (MaGNAS, Eq. 6 and 7)."""

    launch_s: Any
    """Time to launch each device."""
    byte_s: Any
    """Time of a byte between each device and DRAM."""
    idle_w: float
    """Power of the package while results pass."""
    byte_j: float
    """Energy of a byte that DRAM moves."""

    def crossings(self, handed_bytes: Any) -> tuple[Any, Any]:
        """Return time and energy of passing results between devices, shape (results, from, to).

        A result goes through DRAM at the bandwidths of the writing and the reading device; the reading device
        is launched.
        """
        handed = np.asarray(handed_bytes)[:, None, None]
        time_s = handed * (self.byte_s[:, None] + self.byte_s[None, :]) + self.launch_s[None, None, :]
        return time_s, time_s * self.idle_w + 2.0 * handed * self.byte_j


class BlockCosts(NamedTuple):
    """Time and energy of each block where one device runs all of them."""

    time_s: Any
    """Shape (blocks, devices); infinite where a device cannot run the network."""
    energy_j: Any
    """The same for energy."""
    passing: Passing

    def problem(self, chain: Chain, devices: Sequence[str]) -> ChainProblem:
        """Return the blocks as a chain to place on the devices."""
        crossing_s, crossing_j = self.passing.crossings(chain.handed_bytes)
        return ChainProblem(chain.blocks, tuple(devices), self.time_s, self.energy_j, crossing_s, crossing_j)


class ChainOnDevices:
    """A chain of blocks on devices, for machines that differ in clocks and voltages."""

    def __init__(self, scenario: Scenario, chain: Chain, devices: Sequence[str]) -> None:
        """Prepare the network of a scenario, whose machine is one of these, on each device."""
        self._chain, self._devices = chain, tuple(devices)
        self._prepared: dict[str, PreparedGraph] = {}
        self._refused: list[InfeasibleError] = []
        for device in devices:
            alone = scenario.with_(device=device)
            try:
                self._prepared[device] = prepared(alone.graph, alone.machine, alone.run)
            except InfeasibleError as error:
                self._refused.append(error)

    def costs(self, soc: Soc) -> BlockCosts:
        """Return the costs of each block where one device runs all; the first block holds the launch.

        Raises
        ------
        InfeasibleError
            Where none of the devices can run the network.
        """
        mapped: dict[str, Mapped | None] = dict.fromkeys(self._devices)
        refused = list(self._refused)
        for device, graph in self._prepared.items():
            try:
                mapped[device] = graph.on(soc)
            except InfeasibleError as error:
                refused.append(error)
        if not any(mapped.values()):
            raise refused[0]
        return costs_of_mapped(mapped, self._chain, soc)

    def problem(self, soc: Soc) -> ChainProblem:
        """Return the chain as a placement problem with the costs of passing results; errors as `costs`."""
        return self.costs(soc).problem(self._chain, self._devices)


def chain_problem(scenario: Scenario, chain: Chain, devices: Sequence[str]) -> ChainProblem:
    """Return the costs of a chain's blocks and transfers; errors as for `ChainOnDevices.costs`."""
    return ChainOnDevices(scenario, chain, devices).problem(scenario.machine)


def costs_of_mapped(mapped: Mapping[str, Mapped | None], chain: Chain, soc: Soc) -> BlockCosts:
    """Return the costs of each block on the devices of a mapped network; None where one cannot run it."""
    shape = (len(chain.blocks), len(mapped))
    time_s, energy_j = np.full(shape, np.inf), np.full(shape, np.inf)
    launch_s = np.zeros(len(mapped))
    byte_s = np.zeros(len(mapped))
    for d, (device, alone) in enumerate(mapped.items()):
        bandwidth = soc.hosts[device].dram_bandwidth if device in soc.hosts else soc.dram.bandwidth
        byte_s[d] = 1.0 / (float(bandwidth) * soc.dram.clock_ratio)
        if alone is not None:
            launch_s[d] = float(alone.arch[device]["launch_s"])
            time_s[:, d], energy_j[:, d] = _on_one(alone, chain)
    byte_j = float(soc.technology.energy.dram) if soc.technology is not None else 0.0
    passing = Passing(launch_s, byte_s, soc.idle_w, byte_j * soc.dram.voltage_ratio**2)
    return BlockCosts(time_s, energy_j, passing)


def _on_one(mapped: Mapped, chain: Chain) -> tuple[Any, Any]:
    """Return time and energy of each block of a network that is mapped to one device.

    A launch counts for the block that needs it, also on a device that runs what this one cannot. Static power
    of an array device counts while it works, idle power of the package all the time.
    """
    number, regions = {block: i for i, block in enumerate(chain.blocks)}, mapped.graph.regions
    groups, results, arch = mapped.decisions.groups, mapped.results, mapped.arch
    block = np.array([number[regions[group.main].block] for group in groups])
    static_w = {name: float(arch[name]["static_w"]) for name in arch.arrays}
    launches_s = mapped.lowered.ops["launches"] * [launch_each_s(mapped, group) for group in groups]
    static_j = results["critical_s"] * [static_w.get(group.device, 0.0) for group in groups]
    count = len(chain.blocks)
    time_s = np.bincount(block, results["critical_s"] + launches_s, count)
    energy_j = np.bincount(block, results["energy_j"] + static_j, count)
    return time_s, energy_j + float(arch.shared["idle_w"]) * time_s
