"""Costs of Vision GNNs' blocks by their parameters, and of architectures made of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from npusim.arch import Soc
from npusim.cost import compiled
from npusim.errors import InfeasibleError, NpusimError, UnknownNameError
from npusim.magnas.graph import build_vig
from npusim.magnas.space import Architecture, ArchitectureSpace
from npusim.magnas.spec import VisionGnnSpec
from npusim.mapping import ChainProblem, chain_front, planar_front
from npusim.scenario import Scenario
from npusim.studies.chain import ChainOnDevices, chain_of, letters_of, written
from npusim.studies.map_front import Limits, at_points, combinations_of, devices_of

BlockKind = tuple[Any, ...]
"""Parameters of a block that its cost depends on."""


class Mappings(NamedTuple):
    """Mappings of one architecture: a placement of its blocks under a setting of operating points each."""

    latency_s: Any
    energy_j: Any
    placements: Any
    """Unit of each block, shape (mappings, blocks)."""
    settings: Any
    """Row of each mapping's setting in the table."""

    def at(self, rows: Any) -> Mappings:
        """Return some of the mappings."""
        return Mappings(*(column[rows] for column in self))


def _joined(each: Iterable[Mappings]) -> Mappings:
    return Mappings(*map(np.concatenate, zip(*each, strict=True)))


@dataclass(frozen=True)
class BlockTable:
    """Time and energy of every kind of block on every unit, under every setting of operating points.

    Examples
    --------
    >>> from npusim.workloads import load_spec
    >>> backbone = load_spec("magnas-vig", ["workload.depth=1"])
    >>> table = block_table(covering_specs(backbone), "core-ultra-series2", devices=["gpu", "npu"])
    >>> len(table.front(backbone).latency_s) > 1
    True
    """

    units: tuple[str, ...]
    settings: tuple[Mapping[str, str], ...]
    """Operating point of each device that is set; empty: the data sheet's."""
    kinds: Mapping[BlockKind, int]
    """Row of each kind of block."""
    costs: Any
    """Time (s) and energy (J), shape (settings, kinds, units, 2); infinite where a unit cannot run it."""
    crossings: Any
    """Time (s) and energy (J) to hand a block's result over, shape (settings, kinds, from, to, 2)."""

    def rows(self, spec: VisionGnnSpec) -> Any:
        """Return the rows of a network's blocks in order of execution, array of int64.

        Raises
        ------
        NpusimError
            Where a block is not in the table.
        """
        for name, kind in blocks_of(spec):
            if kind not in self.kinds:
                raise NpusimError(f"`{name}` is of a kind that the table of blocks does not hold")
        return np.array([self.kinds[kind] for _, kind in blocks_of(spec)], np.int64)

    def problem(self, rows: Any, setting: int = 0) -> ChainProblem:
        """Return the chain of the blocks of these rows to place under a setting."""
        names = tuple(map(str, range(len(rows))))
        time_s, energy_j = np.moveaxis(self.costs[setting, rows], -1, 0)
        crossing_s, crossing_j = np.moveaxis(self.crossings[setting, rows[:-1]], -1, 0)
        return ChainProblem(names, self.units, time_s, energy_j, crossing_s, crossing_j)

    def front(self, spec: VisionGnnSpec, limits: Limits | None = None) -> Mappings:
        """Return the mappings, under all settings, that no other dominates in latency and energy.

        Raises
        ------
        InfeasibleError
            Where no placement keeps the limits under any setting.
        """
        rows, limits = self.rows(spec), limits or Limits()
        fronts, refused = [], []
        for setting in range(len(self.settings)):
            problem = self.problem(rows, setting)
            try:
                front = chain_front(problem, limits.of(problem))
            except InfeasibleError as error:
                refused.append(error)
                continue
            settings = np.full(len(front.latency_s), setting)
            fronts.append(Mappings(front.latency_s, front.energy_j, front.placements, settings))
        if not fronts:
            raise refused[0]
        every = _joined(fronts)
        return every.at(planar_front(np.stack([every.latency_s, every.energy_j], 1)))

    def on_single_units(self, spec: VisionGnnSpec) -> Mappings:
        """Return the mappings of all blocks to one unit, for each unit and setting that can run them."""
        rows, units = self.rows(spec), np.arange(len(self.units))
        placements, each = np.repeat(units[:, None], len(rows), axis=1), []
        for setting in range(len(self.settings)):
            latency_s, energy_j = self.costs[setting, rows].sum(0).T
            each.append(Mappings(latency_s, energy_j, placements, np.full(len(units), setting)))
        every = _joined(each)
        return every.at(np.isfinite(every.latency_s))

    def encoded(self, specs: Sequence[VisionGnnSpec]) -> Any:
        """Return the rows of many networks' blocks, shape (networks, most blocks); -1 behind the last."""
        each = [self.rows(spec) for spec in specs]
        encoded = np.full((len(each), max(map(len, each), default=0)), -1, np.int64)
        for i, rows in enumerate(each):
            encoded[i, : len(rows)] = rows
        return encoded

    def evaluate(self, encoded: Any, networks: Any, placements: Any, setting: int = 0) -> Any:
        """Return latency (s) and energy (J) of pairs of a network and a placement.

        Parameters
        ----------
        encoded : array of int64, shape (networks, most blocks)
            As `encoded` returns it.
        networks : array of int64, shape (pairs,)
            Network of each pair.
        placements : array of integers, shape (pairs, most blocks)
            Unit of each block; entries behind the last block are ignored.

        Returns
        -------
        array of float64, shape (pairs, 2)
        """
        totals = np.zeros((len(networks), 2))
        rows = np.asarray(networks, np.int64)
        _add_up(encoded, rows, np.asarray(placements), self.costs[setting], self.crossings[setting], totals)
        return totals


@compiled
def _add_up(encoded: Any, networks: Any, placements: Any, costs: Any, crossings: Any, totals: Any) -> None:
    """Add the blocks and crossings of each pair of a network and a placement to `totals`."""
    for pair in range(networks.shape[0]):
        rows, units = encoded[networks[pair]], placements[pair]
        for i in range(rows.shape[0]):
            if rows[i] < 0:
                break
            for quantity in range(2):
                totals[pair, quantity] += costs[rows[i], units[i], quantity]
                if i > 0 and units[i] != units[i - 1]:
                    totals[pair, quantity] += crossings[rows[i - 1], units[i - 1], units[i], quantity]


def blocks_of(spec: VisionGnnSpec) -> Iterator[tuple[str, BlockKind]]:
    """Yield name and kind of each block of a network, in order of execution."""
    whole = (spec.model, spec.image, spec.batch, spec.precision)
    yield "stem", ("stem", *whole, spec.channels[0])
    stages, block = spec.stages, 0
    for i, stage in enumerate(stages):
        if i and stage.size < stages[i - 1].size:
            before = stages[i - 1]
            yield f"downsample{i}", ("downsample", *whole, before.size, before.channels, stage.channels)
        for knn in stage.knn:
            nodes = (*whole, stage.size, stage.channels)
            chosen = (stage.operator, stage.preprocess, knn, stage.dilation, stage.reduction)
            yield f"grapher{block}", ("grapher", *nodes, *chosen)
            if stage.ffn_hidden:
                yield f"ffn{block}", ("ffn", *nodes, stage.ffn_hidden)
            block += 1
    yield "head", ("head", *whole, stages[-1].size, stages[-1].channels, spec.classes)


def covering_specs(
    backbone: VisionGnnSpec,
    operators: Sequence[str] | None = None,
    preprocess: Sequence[bool] | None = None,
    hidden: Sequence[Sequence[int]] | None = None,
) -> list[VisionGnnSpec]:
    """Return few networks that together hold every block of a space of architectures.

    Parameters
    ----------
    backbone : VisionGnnSpec
        All else, such as channels and neighbours.
    operators, preprocess : sequence, optional
        Choices of every superblock; None: those of the backbone.
    hidden : sequence of sequences of int, optional
        Widths of feed-forward networks by superblock; None: those of the backbone.
    """
    keys, count = backbone.model_dump(), len(backbone.depth)
    operators = operators if operators is not None else sorted(set(backbone.operator))
    preprocess = preprocess if preprocess is not None else sorted(set(backbone.preprocess))
    widths = hidden if hidden is not None else [sorted(set(backbone.ffn_hidden))] * count
    pairs = list(itertools.product(operators, preprocess))
    specs = []
    for j in range(max(len(pairs), *(len(each) for each in widths))):
        operator, pre = pairs[j % len(pairs)]
        turned = [each[(i + j) % len(each)] if each else 0 for i, each in enumerate(widths)]
        changed = {"operator": [operator] * count, "preprocess": [pre] * count, "ffn_hidden": turned}
        specs.append(VisionGnnSpec.model_validate(keys | changed))
    return specs


def block_table(
    specs: Sequence[VisionGnnSpec],
    soc: Soc | str,
    *,
    devices: Sequence[str] | None = None,
    operating_points: bool = False,
    tell: Callable[[int, int], object] = lambda done, of: None,
) -> BlockTable:
    """Cost every kind of block that some networks have, on every device of a SoC.

    Parameters
    ----------
    specs : sequence of VisionGnnSpec
        Networks that hold the blocks, as `covering_specs` makes them.
    devices : sequence of str, optional
        Devices to choose from; None: all that the SoC has.
    operating_points : bool
        Whether every combination of the operating points of devices and DRAM is costed.
    tell : callable
        Progress callback (estimates done, in all).

    Raises
    ------
    InfeasibleError
        Where none of the devices can run a network.
    """
    machine = Scenario("magnas-vig", soc).machine
    units = devices_of(machine, devices)
    points = tuple(combinations_of(machine, units)) if operating_points else ({},)
    machines = [at_points(machine, point) for point in points]
    blocks = [[kind for _, kind in blocks_of(spec)] for spec in specs]
    kinds = {kind: row for row, kind in enumerate(dict.fromkeys(itertools.chain(*blocks)))}
    sums, counts = np.zeros((2, len(points), len(kinds), len(units))), np.zeros(len(kinds))
    handed_bytes, passing = np.zeros(len(kinds)), {}
    for n, (spec, own_kinds) in enumerate(zip(specs, blocks, strict=True)):
        scenario = Scenario(build_vig(spec, "vision-gnn"), machine)
        chain, rows = chain_of(scenario.graph), [kinds[kind] for kind in own_kinds]
        on_devices = ChainOnDevices(scenario, chain, units)
        handed_bytes[rows[:-1]] = chain.handed_bytes
        np.add.at(counts, rows, 1.0)
        for s, at_point in enumerate(machines):
            tell(n * len(points) + s, len(specs) * len(points))
            costs = on_devices.costs(at_point)
            np.add.at(sums[0, s], rows, costs.time_s)
            np.add.at(sums[1, s], rows, costs.energy_j)
            passing[s] = costs.passing
    means = np.moveaxis(sums / counts[:, None], 0, -1)
    crossings = [np.stack(passing[s].crossings(handed_bytes), -1) for s in range(len(points))]
    return BlockTable(units, points, kinds, np.ascontiguousarray(means), np.stack(crossings))


@dataclass(frozen=True)
class Points:
    """Architectures under mappings."""

    values: Any
    """Error, latency (s) and energy (J), shape (points, 3)."""
    names: list[tuple[str, str, str]]
    """Architecture, letters of the mapping, and operating points."""


@dataclass(frozen=True)
class Costed(Points):
    """An architecture with its mappings."""

    accuracy: float
    keeps_limits: bool

    @property
    def objectives(self) -> Any:
        """Error, logarithms of latency and energy, shape (mappings, 3); none where a limit is broken."""
        values = self.values if self.keeps_limits else self.values[:0]
        return np.concatenate([values[:, :1], np.log(values[:, 1:])], 1)


@dataclass(frozen=True)
class MappedSpace:
    """The architectures of a space on a backbone and a SoC."""

    backbone: VisionGnnSpec
    space: ArchitectureSpace
    soc: Soc
    devices: tuple[str, ...] | None = None
    limits: Limits = field(default_factory=Limits)
    operating_points: bool = False
    tell: Callable[[int, int], object] = field(default=lambda done, of: None, compare=False)
    """Progress callback (networks costed, in all) while the costs of blocks are computed."""

    @cached_property
    def table(self) -> BlockTable:
        """Costs of every kind of block."""
        widths = [
            sorted({round(percent * channels / 100) for percent in self.space.widths_percent})
            for channels in self.backbone.channels
        ]
        specs = covering_specs(self.backbone, self.space.operators, self.space.preprocess, widths)
        return block_table(
            specs, self.soc, devices=self.devices, operating_points=self.operating_points, tell=self.tell
        )

    def refuse_impossible(self) -> None:
        """Refuse limits on units that are not there, and backbones whose depth is no choice.

        Raises
        ------
        UnknownNameError
            For a limit on the share of an unknown unit.
        ConfigError
            For a backbone that states neighbours block by block.
        InfeasibleError
            Where no unit runs the backbone.
        """
        units = devices_of(self.soc, self.devices)
        for unit in self.limits.shares:
            if unit not in units:
                raise UnknownNameError("device to limit", unit, units)
        spec = self.space.homogeneous(self.space.operators[0], True).spec(self.backbone)
        self.table.rows(spec)

    def within(self, limits: Limits) -> MappedSpace:
        """Return the same space, with the same table, under other limits."""
        other = replace(self, limits=limits)
        other.__dict__["table"] = self.table
        return other

    @cached_property
    def letters(self) -> dict[str, str]:
        """Letter of each unit."""
        return letters_of(self.table.units)

    def nested(self, architecture: Architecture, accuracy: float) -> Costed:
        """Return an architecture with its exact front; on single units where no mapping keeps the limits."""
        spec = architecture.spec(self.backbone)
        try:
            return self._costed(architecture, accuracy, True, self.table.front(spec, self.limits))
        except InfeasibleError:
            return self._costed(architecture, accuracy, False, self.table.on_single_units(spec))

    def on_single_units(self, architecture: Architecture, accuracy: float) -> Costed:
        """Return an architecture with all blocks on one unit, for each unit and setting."""
        mappings = self.table.on_single_units(architecture.spec(self.backbone))
        values = np.stack([mappings.latency_s, mappings.energy_j], 1)
        kept = self.limits.kept(values, mappings.placements, self.table.units)
        some = mappings.at(kept) if kept.any() else mappings
        return self._costed(architecture, accuracy, bool(kept.any()), some)

    def _costed(self, architecture: Architecture, accuracy: float, keeps: bool, some: Mappings) -> Costed:
        blocks = [name for name, _ in blocks_of(architecture.spec(self.backbone))]
        texts = written(blocks, [self.letters[unit] for unit in self.table.units], some.placements)
        points = [", ".join(map(" ".join, setting.items())) for setting in self.table.settings]
        names = [(str(architecture), text, points[s]) for text, s in zip(texts, some.settings, strict=True)]
        error = np.full(len(texts), 1.0 - accuracy)
        values = np.stack([error, some.latency_s, some.energy_j], 1)
        return Costed(values, names, accuracy, keeps)
