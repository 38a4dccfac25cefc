"""A network as a chain of blocks with their costs on each device (MaGNAS, Eq. 6 and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npusim.arch import Soc
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.errors import InfeasibleError, NpusimError
from npusim.graph import Graph
from npusim.mapping import ChainProblem
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


def chain_problem(scenario: Scenario, chain: Chain, devices: Sequence[str]) -> ChainProblem:
    """Return the costs of a chain's blocks on devices, and of handing results from device to device.

    A block costs what it costs where all blocks run on that device. Where the next one runs on another, its
    result goes through DRAM, at the bandwidth of the one that writes and of the one that reads, and that one
    is launched.

    Raises
    ------
    InfeasibleError
        Where none of the devices can run the network.
    """
    count, units, soc = len(chain.blocks), len(devices), scenario.machine
    time_s, energy_j = np.full((count, units), np.inf), np.full((count, units), np.inf)
    launch_s = np.zeros(units)
    number = {block: i for i, block in enumerate(chain.blocks)}
    reasons = []
    for d, device in enumerate(devices):
        try:
            estimate = mapped_estimate(scenario.with_(device=device).mapped)
        except InfeasibleError as error:
            reasons.append(str(error))
            continue
        launch_s[d] = estimate.launch_s
        time_s[:, d], energy_j[:, d] = _block_costs(estimate, number)
    if not np.isfinite(time_s).any():
        raise InfeasibleError(reasons[0])
    idle_w = soc.idle_w
    time_s[0] += launch_s
    energy_j[0] += launch_s * idle_w
    per_byte_s = np.array([_seconds_per_byte(soc, device) for device in devices])
    handed = np.array(chain.handed_bytes)[:, None, None]
    crossing_s = handed * (per_byte_s[:, None] + per_byte_s[None, :]) + launch_s[None, None, :]
    dram_j = float(soc.technology.energy.dram) if soc.technology is not None else 0.0
    crossing_j = crossing_s * idle_w + 2.0 * handed * dram_j
    return ChainProblem(chain.blocks, tuple(devices), time_s, energy_j, crossing_s, crossing_j)


def _block_costs(estimate: Estimate, number: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return time and energy of each block: power that does not depend on the work goes with the time."""
    time_s, energy_j = np.zeros(len(number)), np.zeros(len(number))
    for op in estimate.operators:
        time_s[number[op.block]] += op.critical_s or 0.0
        energy_j[number[op.block]] += op.energy_j
    rest_j = (
        estimate.energy_j
        - float(energy_j.sum())
        - estimate.launch_s / estimate.latency_s * (estimate.energy.idle_j)
    )
    return time_s, energy_j + rest_j * time_s / time_s.sum()


def _seconds_per_byte(soc: Soc, device: str) -> float:
    """Return the time of a byte between a device and DRAM."""
    bandwidth = soc.hosts[device].dram_bandwidth if device in soc.hosts else soc.dram.bandwidth
    return 1.0 / float(bandwidth)
