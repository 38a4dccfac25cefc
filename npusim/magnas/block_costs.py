"""Costs of Vision GNNs' blocks by their parameters, and of architectures made of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from npusim.arch import Soc
from npusim.errors import InfeasibleError, NpusimError, UnknownNameError
from npusim.magnas.documents import MappedArchitecture
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

    @classmethod
    def joined(cls, each: Iterable[Mappings]) -> Mappings:
        """Return several mappings one after the other."""
        return cls(*map(np.concatenate, zip(*each, strict=True)))

    def at(self, rows: Any) -> Mappings:
        """Return some of the mappings."""
        return Mappings(*(column[rows] for column in self))


@dataclass(frozen=True)
class BlockTable:
    """Time and energy of every kind of block on every unit, under every setting of operating points."""

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
        rows = []
        for name, kind in blocks_of(spec):
            if kind not in self.kinds:
                raise NpusimError(f"`{name}` is of a kind that the table of blocks does not hold")
            rows.append(self.kinds[kind])
        return np.array(rows, np.int64)

    def problem(self, rows: Any, setting: int = 0) -> ChainProblem:
        """Return the chain of the blocks of these rows to place under a setting."""
        names = tuple(map(str, range(len(rows))))
        own = np.moveaxis(self.costs[setting, rows], -1, 0)
        crossings = np.moveaxis(self.crossings[setting, rows[:-1]], -1, 0)
        return ChainProblem(names, self.units, *own, *crossings)

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
        every = Mappings.joined(fronts)
        return every.at(planar_front(np.stack([every.latency_s, every.energy_j], 1)))

    def on_single_units(self, spec: VisionGnnSpec) -> Mappings:
        """Return the mappings of all blocks to one unit, for each unit and setting that can run them."""
        rows, units, settings = self.rows(spec), len(self.units), len(self.settings)
        latency_s, energy_j = self.costs[:, rows].sum(1).reshape(-1, 2).T
        placements = np.repeat(np.tile(np.arange(units), settings)[:, None], len(rows), axis=1)
        every = Mappings(latency_s, energy_j, placements, np.repeat(np.arange(settings), units))
        return every.at(np.isfinite(latency_s))


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


def covering_specs(backbone: VisionGnnSpec, space: ArchitectureSpace) -> list[VisionGnnSpec]:
    """Return few networks that together hold every block of a space of architectures on a backbone."""
    percents = space.widths_percent
    widths = [sorted({round(one * channels / 100) for one in percents}) for channels in backbone.channels]
    pairs = list(itertools.product(space.operators, space.preprocess))
    specs = []
    for j in range(max(len(pairs), *map(len, widths))):
        operator, preprocess = pairs[j % len(pairs)]
        changed = {
            "operator": [operator] * len(widths),
            "preprocess": [preprocess] * len(widths),
            "ffn_hidden": [each[(i + j) % len(each)] for i, each in enumerate(widths)],
        }
        specs.append(VisionGnnSpec.model_validate(backbone.model_dump() | changed))
    return specs


class Costed(NamedTuple):
    """An architecture with its mappings."""

    points: list[MappedArchitecture]
    keeps_limits: bool

    @property
    def objectives(self) -> Any:
        """Error, logarithms of latency and energy, shape (mappings, 3); none where a limit is broken."""
        values = values_of(self.points if self.keeps_limits else [])
        return np.concatenate([values[:, :1], np.log(values[:, 1:])], 1)


def values_of(points: Sequence[MappedArchitecture]) -> Any:
    """Return error, latency (s) and energy (J) of points, shape (points, 3)."""
    rows = [(1.0 - point.accuracy, point.latency_s, point.energy_j) for point in points]
    return np.array(rows).reshape(-1, 3)


@dataclass(frozen=True)
class MappedSpace:
    """The architectures of a space on a backbone and a SoC.

    Examples
    --------
    >>> from npusim.arch import load_soc
    >>> from npusim.workloads import load_spec
    >>> backbone = load_spec("magnas-vig", ["workload.depth=1"])
    >>> space = ArchitectureSpace(operators=("max_relative",), widths_percent=(400,))
    >>> mapped = MappedSpace(backbone, space, load_soc("core-ultra-series2"), ("gpu", "npu"))
    >>> len(mapped.table.front(backbone).latency_s) > 1
    True
    """

    backbone: VisionGnnSpec
    space: ArchitectureSpace
    soc: Soc
    devices: tuple[str, ...] | None = None
    """Devices to choose from; None: all that the SoC has."""
    operating_points: bool = False
    """Whether every combination of the operating points of devices and DRAM is costed."""
    tell: Callable[[int, int], object] = field(default=lambda done, of: None, compare=False)
    """Progress callback (networks costed, in all) while the costs of blocks are computed."""

    @cached_property
    def table(self) -> BlockTable:
        """Costs of every kind of block of the space; InfeasibleError where no device runs a network."""
        units, specs = devices_of(self.soc, self.devices), covering_specs(self.backbone, self.space)
        points = tuple(combinations_of(self.soc, units)) if self.operating_points else ({},)
        machines = [at_points(self.soc, point) for point in points]
        blocks = [[kind for _, kind in blocks_of(spec)] for spec in specs]
        kinds = {kind: row for row, kind in enumerate(dict.fromkeys(itertools.chain(*blocks)))}
        sums, counts = np.zeros((len(points), len(kinds), len(units), 2)), np.zeros(len(kinds))
        handed_bytes, passing = np.zeros(len(kinds)), {}
        for n, (spec, own_kinds) in enumerate(zip(specs, blocks, strict=True)):
            scenario = Scenario(build_vig(spec, "vision-gnn"), self.soc)
            chain, rows = chain_of(scenario.graph), [kinds[kind] for kind in own_kinds]
            on_devices = ChainOnDevices(scenario, chain, units)
            handed_bytes[rows[:-1]] = chain.handed_bytes
            np.add.at(counts, rows, 1.0)
            for s, at_point in enumerate(machines):
                self.tell(n * len(points) + s, len(specs) * len(points))
                costs = on_devices.costs(at_point)
                np.add.at(sums[s], rows, np.stack([costs.time_s, costs.energy_j], -1))
                passing[s] = costs.passing
        crossings = [np.stack(passing[s].crossings(handed_bytes), -1) for s in range(len(points))]
        return BlockTable(units, points, kinds, sums / counts[:, None, None], np.stack(crossings))

    def refuse_impossible(self, limits: Limits) -> None:
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
        for unit in limits.shares:
            if unit not in units:
                raise UnknownNameError("device to limit", unit, units)
        self.table.rows(self.space.homogeneous(self.space.operators[0], True).spec(self.backbone))

    @cached_property
    def letters(self) -> dict[str, str]:
        """Letter of each unit."""
        return letters_of(self.table.units)

    def nested(self, architecture: Architecture, accuracy: float, limits: Limits) -> Costed:
        """Return an architecture with its exact front; on single units where no mapping keeps the limits."""
        spec = architecture.spec(self.backbone)
        try:
            return Costed(self._points(architecture, accuracy, self.table.front(spec, limits)), True)
        except InfeasibleError:
            return Costed(self._points(architecture, accuracy, self.table.on_single_units(spec)), False)

    def on_single_units(self, architecture: Architecture, accuracy: float, limits: Limits) -> Costed:
        """Return an architecture with all blocks on one unit, for each unit and setting."""
        every = self.table.on_single_units(architecture.spec(self.backbone))
        values = np.stack([every.latency_s, every.energy_j], 1)
        kept = limits.kept(values, every.placements, self.table.units)
        keeps_limits = bool(kept.any())
        return Costed(
            self._points(architecture, accuracy, every.at(kept) if keeps_limits else every), keeps_limits
        )

    def _points(
        self, architecture: Architecture, accuracy: float, mappings: Mappings
    ) -> list[MappedArchitecture]:
        blocks = [name for name, _ in blocks_of(architecture.spec(self.backbone))]
        texts = written(blocks, [self.letters[unit] for unit in self.table.units], mappings.placements)
        settings = [", ".join(map(" ".join, setting.items())) for setting in self.table.settings]
        return [
            MappedArchitecture(
                architecture=str(architecture),
                mapping=text,
                accuracy=accuracy,
                latency_s=latency_s,
                energy_j=energy_j,
                operating_points=settings[setting],
            )
            for text, latency_s, energy_j, _, setting in zip(texts, *mappings, strict=True)
        ]
