"""A network as a chain of blocks with their costs on each device (MaGNAS, Eq. 6 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.engines.parts import launch_each_s
from npusim.errors import InfeasibleError, NpusimError
from npusim.graph import Graph
from npusim.mapping import ChainProblem, Mapped
from npusim.scenario import Scenario


@dataclass(frozen=True)
class Chain:
    """Blocks in order of execution, and what each hands to the next."""

    blocks: tuple[str, ...]
    handed_bytes: tuple[float, ...]
    """Bytes that each block but the last hands to the next."""


def chain_of(graph: Graph) -> Chain:
    """Return the blocks of a network that is a chain of them.

    Raises
    ------
    NpusimError
        Where a block reads from another one than that before it.
    """
    number: dict[str, int] = {}
    of: dict[str, int] = {}
    for op in graph:
        of[op.name] = number.setdefault(graph.regions[op.name].block, len(number))
    blocks, handed = tuple(number), dict.fromkeys(range(len(number) - 1), 0.0)
    for op in graph:
        here = of[op.name]
        for name in op.outputs:
            readers = {of[reader.name] for reader in graph.readers(name)} - {here}
            if readers - {here + 1}:
                other = blocks[max(readers - {here + 1})]
                raise NpusimError(
                    f"{graph.name} is no chain of blocks: `{other}` reads {name!r} of `{blocks[here]}`, "
                    "which is not the block before it; two objectives are for chains, one is for all networks"
                )
            if readers:
                handed[here] += graph.tensors[name].bytes
    return Chain(blocks, tuple(handed.values()))


@dataclass(frozen=True)
class Passing:
    """What handing a result from device to device costs (MaGNAS, Eq. 6 and 7)."""

    launch_s: Any
    """Time to launch each device."""
    byte_s: Any
    """Time of a byte between each device and DRAM."""
    idle_w: float
    """Power of the package while results pass."""
    byte_j: float
    """Energy of a byte that DRAM moves."""

    def crossings(self, handed_bytes: Any) -> tuple[Any, Any]:
        """Return time and energy of handing results from device to device, shape (results, from, to).

        A result goes through DRAM, at the bandwidth of the device that writes and of the one that reads, and
        the latter is launched.
        """
        handed = np.asarray(handed_bytes)[:, None, None]
        time_s = handed * (self.byte_s[:, None] + self.byte_s[None, :]) + self.launch_s[None, None, :]
        return time_s, time_s * self.idle_w + 2.0 * handed * self.byte_j


@dataclass(frozen=True)
class BlockCosts:
    """Time and energy of each block where one device runs all of them."""

    time_s: Any
    """Shape (blocks, devices); infinite where a device cannot run the network."""
    energy_j: Any
    """The same for energy."""
    passing: Passing


def chain_problem(scenario: Scenario, chain: Chain, devices: Sequence[str]) -> ChainProblem:
    """Return the costs of a chain's blocks on devices, and of handing results from device to device.

    Raises
    ------
    InfeasibleError
        Where none of the devices can run the network.
    """
    found = block_costs(scenario, chain, devices)
    crossing_s, crossing_j = found.passing.crossings(chain.handed_bytes)
    return ChainProblem(chain.blocks, tuple(devices), found.time_s, found.energy_j, crossing_s, crossing_j)


def block_costs(scenario: Scenario, chain: Chain, devices: Sequence[str]) -> BlockCosts:
    """Return what each block costs where one device runs all of them; the first one holds the launch.

    Raises
    ------
    InfeasibleError
        Where none of the devices can run the network.
    """
    shape, soc = (len(chain.blocks), len(devices)), scenario.machine
    time_s, energy_j = np.full(shape, np.inf), np.full(shape, np.inf)
    launch_s = np.zeros(len(devices))
    reasons = []
    for d, device in enumerate(devices):
        try:
            mapped = scenario.with_(device=device).mapped
        except InfeasibleError as error:
            reasons.append(str(error))
            continue
        launch_s[d] = float(mapped.arch[device]["launch_s"])
        time_s[:, d], energy_j[:, d] = _on_one(mapped, chain)
    if not np.isfinite(time_s).any():
        raise InfeasibleError(reasons[0])
    byte_s = np.array([_seconds_per_byte(soc, device) for device in devices])
    byte_j = float(soc.technology.energy.dram) if soc.technology is not None else 0.0
    return BlockCosts(time_s, energy_j, Passing(launch_s, byte_s, soc.idle_w, byte_j))


def _on_one(mapped: Mapped, chain: Chain) -> tuple[Any, Any]:
    """Return time and energy of each block of a network that is mapped to one device.

    Launches, also those of a device that runs what this one cannot, are of the block that needs them; power
    that does not depend on the work goes with the time.
    """
    number, regions = {block: i for i, block in enumerate(chain.blocks)}, mapped.graph.regions
    groups, results = mapped.decisions.groups, mapped.results
    block = np.array([number[regions[group.main].block] for group in groups])
    launches_s = mapped.lowered.ops["launches"] * [launch_each_s(mapped, group) for group in groups]
    count = len(chain.blocks)
    time_s = np.bincount(block, results["critical_s"] + launches_s, count)
    energy_j = np.bincount(block, results["energy_j"], count)
    rest_j = float(mapped.total["energy_j"]) - float(energy_j.sum())
    return time_s, energy_j + rest_j * time_s / time_s.sum()


def _seconds_per_byte(soc: Soc, device: str) -> float:
    """Return the time of a byte between a device and DRAM."""
    bandwidth = soc.hosts[device].dram_bandwidth if device in soc.hosts else soc.dram.bandwidth
    return 1.0 / float(bandwidth)
