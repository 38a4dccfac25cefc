"""Costs of Vision GNNs' blocks by their parameters, and of architectures made of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.cost import compiled
from npusim.errors import InfeasibleError, NpusimError, UnknownNameError
from npusim.magnas.graph import build_vig
from npusim.magnas.space import Architecture, ArchitectureSpace
from npusim.magnas.spec import VisionGnnSpec
from npusim.mapping import ChainProblem, chain_front
from npusim.scenario import Scenario
from npusim.studies.chain import BlockCosts, Chain, ChainOnDevices, chain_of
from npusim.studies.map_front import Limits, at_points, combinations_of, devices_of
from npusim.studies.mapping_letters import letters_of, parts_of

BlockKind = tuple[Any, ...]
"""Parameters of a block that its cost depends on."""


@dataclass(frozen=True)
class ArchitectureFront:
    """Pareto-optimal placements of an architecture by rising latency, under all settings of a table."""

    latency_s: Any
    energy_j: Any
    placements: Any
    """Unit of each block, shape (placements, blocks)."""
    settings: Any
    """Which setting of the table each placement has."""


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
    """Operating point of each device that has been set; nothing: those of the data sheet."""
    kinds: Mapping[BlockKind, int]
    """Row of each kind of block."""
    time_s: Any
    """Shape (settings, kinds, units); infinite where a unit cannot run it."""
    energy_j: Any
    """The same for energy."""
    crossing_s: Any
    """Time for the block's result to pass from unit to unit, shape (settings, kinds, units, units)."""
    crossing_j: Any
    """The same for energy."""

    def rows(self, spec: VisionGnnSpec) -> Any:
        """Return the rows of a network's blocks in order of execution, array of int64.

        Raises
        ------
        NpusimError
            Where a block is not in the table.
        """
        kinds = self.kinds
        try:
            return np.array([kinds[kind] for _, kind in blocks_of(spec)], np.int64)
        except KeyError:
            missing = next(name for name, kind in blocks_of(spec) if kind not in kinds)
            raise NpusimError(f"`{missing}` is of a kind that the table of blocks does not hold") from None

    def problem(self, rows: Any, setting: int = 0) -> ChainProblem:
        """Return the chain of the blocks of these rows to place under a setting."""
        passed = rows[:-1]
        return ChainProblem(
            tuple(map(str, range(len(rows)))),
            self.units,
            self.time_s[setting, rows],
            self.energy_j[setting, rows],
            self.crossing_s[setting, passed],
            self.crossing_j[setting, passed],
        )

    def alone(self, spec: VisionGnnSpec, setting: int = 0) -> Any:
        """Return latency (s) and energy (J) of all blocks on each unit, shape (units, 2)."""
        rows = self.rows(spec)
        return np.stack([self.time_s[setting, rows].sum(0), self.energy_j[setting, rows].sum(0)], -1)

    def front(self, spec: VisionGnnSpec, limits: Limits | None = None) -> ArchitectureFront:
        """Return every placement, under any setting, that no other beats in latency and energy.

        Raises
        ------
        InfeasibleError
            Where no placement keeps the limits under any setting.
        """
        rows, limits = self.rows(spec), limits or Limits()
        found, refused = [], []
        for setting in range(len(self.settings)):
            problem = self.problem(rows, setting)
            try:
                found.append((setting, chain_front(problem, limits.of(problem))))
            except InfeasibleError as error:
                refused.append(error)
        if not found:
            raise refused[0]
        latency_s = np.concatenate([front.latency_s for _, front in found])
        energy_j = np.concatenate([front.energy_j for _, front in found])
        settings = np.repeat([setting for setting, _ in found], [len(one.latency_s) for _, one in found])
        order = np.lexsort((energy_j, latency_s))
        before = np.concatenate(([np.inf], np.minimum.accumulate(energy_j[order])[:-1]))
        kept = order[energy_j[order] < before]
        placements = np.concatenate([front.placements for _, front in found])
        return ArchitectureFront(latency_s[kept], energy_j[kept], placements[kept], settings[kept])

    def encoded(self, specs: Sequence[VisionGnnSpec]) -> Any:
        """Return the rows of many networks' blocks, shape (networks, most blocks); -1 behind the last."""
        each = [self.rows(spec) for spec in specs]
        found = np.full((len(each), max(map(len, each), default=0)), -1, np.int64)
        for i, rows in enumerate(each):
            found[i, : len(rows)] = rows
        return found

    def evaluate(self, encoded: Any, which: Any, placements: Any, setting: int = 0) -> Any:
        """Return latency (s) and energy (J) of pairs of a network and a placement.

        Parameters
        ----------
        encoded : array of int64, shape (networks, most blocks)
            As `encoded` returns it.
        which : array of int64, shape (pairs,)
            Network of each pair.
        placements : array of integers, shape (pairs, most blocks)
            Unit of each block; what stands behind the last block is not looked at.

        Returns
        -------
        array of float64, shape (pairs, 2)
        """
        found = np.empty((len(which), 2))
        _evaluate_pairs(
            encoded, np.asarray(which, np.int64), np.asarray(placements), self.time_s[setting],
            self.energy_j[setting], self.crossing_s[setting], self.crossing_j[setting], found,
        )  # fmt: skip
        return found


@compiled
def _evaluate_pairs(
    encoded: Any, which: Any, placements: Any, time_s: Any, energy_j: Any, crossing_s: Any, crossing_j: Any,
    found: Any,
) -> None:  # fmt: skip
    """Add up the blocks and crossings of each pair of a network and a placement."""
    for pair in range(which.shape[0]):
        network = which[pair]
        row, last = encoded[network, 0], placements[pair, 0]
        latency, energy = time_s[row, last], energy_j[row, last]
        for i in range(1, encoded.shape[1]):
            before, row, unit = row, encoded[network, i], placements[pair, i]
            if row < 0:
                break
            latency += time_s[row, unit]
            energy += energy_j[row, unit]
            if unit != last:
                latency += crossing_s[before, last, unit]
                energy += crossing_j[before, last, unit]
            last = unit
        found[pair, 0], found[pair, 1] = latency, energy


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
    """Return few networks that hold every block of a space of architectures.

    Parameters
    ----------
    backbone : VisionGnnSpec
        All else, such as channels and neighbours.
    operators, preprocess : sequence, optional
        Choices of every superblock; None: those of the backbone.
    hidden : sequence of sequences of int, optional
        Widths of feed-forward networks by superblock; None: those of the backbone.
    """
    made, count = backbone.model_dump(), len(backbone.depth)
    operators = operators if operators is not None else sorted(set(backbone.operator))
    preprocess = preprocess if preprocess is not None else sorted(set(backbone.preprocess))
    widths = hidden if hidden is not None else [sorted(set(backbone.ffn_hidden))] * count
    pairs = list(itertools.product(operators, preprocess))
    found = []
    for j in range(max(len(pairs), *(len(each) for each in widths))):
        operator, pre = pairs[j % len(pairs)]
        turned = [each[(i + j) % len(each)] if each else 0 for i, each in enumerate(widths)]
        changed = {"operator": [operator] * count, "preprocess": [pre] * count, "ffn_hidden": turned}
        found.append(VisionGnnSpec.model_validate(made | changed))
    return found


def block_table(
    specs: Sequence[VisionGnnSpec],
    soc: Soc | str,
    *,
    devices: Sequence[str] | None = None,
    operating_points: bool = False,
    settings: Sequence[str] = (),
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
    settings : sequence of str
        Of the SoC, as `--set` takes them.
    tell : callable
        Called with estimates done, and in all.

    Raises
    ------
    InfeasibleError
        Where none of the devices can run a network.
    """
    machine = Scenario("magnas-vig", soc, settings=settings).machine
    units = devices_of(machine, devices)
    points = tuple(combinations_of(machine, units)) if operating_points else ({},)
    machines = [at_points(machine, point) for point in points]
    sums = _Sums(len(points), len(units))
    for n, spec in enumerate(specs):
        scenario = Scenario(build_vig(spec, "vision-gnn"), machine)
        chain, kinds = chain_of(scenario.graph), [kind for _, kind in blocks_of(spec)]
        on_devices = ChainOnDevices(scenario, chain, units)
        for s, at_point in enumerate(machines):
            tell(n * len(points) + s, len(specs) * len(points))
            sums.add(s, kinds, chain, on_devices.costs(at_point))
    return sums.table(units, points)


@dataclass
class _Sums:
    """Adds up what the blocks of each kind cost."""

    settings: int
    units: int
    kinds: dict[BlockKind, int] = field(default_factory=dict)
    costs: list[Any] = field(default_factory=list)
    """Time and energy on each unit by setting, shape (settings, 2, units), of each kind."""
    counts: list[Any] = field(default_factory=list)
    handed: list[float] = field(default_factory=list)
    passing: dict[int, Any] = field(default_factory=dict)

    def add(self, setting: int, kinds: Sequence[BlockKind], chain: Chain, found: BlockCosts) -> None:
        """Take in the blocks of a network under a setting."""
        for i, kind in enumerate(kinds):
            if kind not in self.kinds:
                self.kinds[kind] = len(self.kinds)
                self.costs.append(np.zeros((self.settings, 2, self.units)))
                self.counts.append(np.zeros(self.settings))
                self.handed.append(chain.handed_bytes[i] if i < len(chain.handed_bytes) else 0.0)
            at = self.kinds[kind]
            self.costs[at][setting] += [found.time_s[i], found.energy_j[i]]
            self.counts[at][setting] += 1.0
        self.passing[setting] = found.passing

    def table(self, units: tuple[str, ...], settings: tuple[Mapping[str, str], ...]) -> BlockTable:
        """Return the means."""
        mean = np.stack(self.costs, 1) / np.stack(self.counts, 1)[:, :, None, None]
        crossings = [self.passing[s].crossings(self.handed) for s in range(self.settings)]
        return BlockTable(
            units, settings, self.kinds,
            np.ascontiguousarray(mean[:, :, 0]), np.ascontiguousarray(mean[:, :, 1]),
            np.stack([time_s for time_s, _ in crossings]), np.stack([joules for _, joules in crossings]),
        )  # fmt: skip


@dataclass(frozen=True)
class Costed:
    """An architecture's points: one for each mapping that no other beats in latency and energy."""

    architecture: str
    accuracy: float
    keeps_limits: bool
    latency_s: Any
    energy_j: Any
    mappings: tuple[str, ...]
    settings: tuple[str, ...]
    """Operating points of each."""

    @property
    def objectives(self) -> Any:
        """Error, logarithms of latency and energy, shape (points, 3); no points where a limit is broken."""
        count = len(self.mappings) if self.keeps_limits else 0
        error = np.full(count, 1.0 - self.accuracy)
        return np.stack([error, np.log(self.latency_s[:count]), np.log(self.energy_j[:count])], 1)


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
    """Told of networks costed, and of how many, while the costs of blocks are made."""

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
        largest = self.space.homogeneous(self.space.operators[0], True)
        spec = largest.spec(self.backbone)
        self.table.rows(spec)

    def within(self, limits: Limits) -> MappedSpace:
        """Return the same space under other limits."""
        other = replace(self, limits=limits)
        other.__dict__["table"] = self.table
        return other

    @cached_property
    def letters(self) -> dict[str, str]:
        """Letter of each unit."""
        return letters_of(self.table.units)

    def nested(self, architecture: Architecture, accuracy: float) -> Costed:
        """Return an architecture with its exact front; alone on each unit where nothing keeps the limits."""
        spec = architecture.spec(self.backbone)
        try:
            found = self.table.front(spec, self.limits)
        except InfeasibleError:
            return self._costed(architecture, accuracy, False, self._alone(spec))
        return self._costed(
            architecture, accuracy, True,
            (found.latency_s, found.energy_j, found.placements, found.settings),
        )  # fmt: skip

    def on_single_units(self, architecture: Architecture, accuracy: float) -> Costed:
        """Return an architecture with all blocks on one unit, for each unit and setting."""
        alone = self._alone(architecture.spec(self.backbone))
        kept = self._keeps(*alone[:2], alone[2])
        some = kept if kept.any() else np.ones(len(kept), bool)
        latency_s, energy_j, placements, settings = (part[some] for part in alone)
        return self._costed(
            architecture, accuracy, bool(kept.any()), (latency_s, energy_j, placements, settings)
        )

    def _alone(self, spec: VisionGnnSpec) -> tuple[Any, Any, Any, Any]:
        count = len(self.table.rows(spec))
        each = [self.table.alone(spec, setting) for setting in range(len(self.table.settings))]
        values = np.concatenate(each)
        units = np.tile(np.arange(len(self.table.units)), len(each))
        settings = np.repeat(np.arange(len(each)), len(self.table.units))
        can = np.isfinite(values[:, 0])
        placements = np.repeat(units[can][:, None], count, axis=1)
        return values[can, 0], values[can, 1], placements, settings[can]

    def _keeps(self, latency_s: Any, energy_j: Any, placements: Any) -> Any:
        """Return which placements on single units keep the limits."""
        limits = self.limits
        kept = np.ones(len(latency_s), bool)
        for most, values in (
            (limits.latency_s, latency_s),
            (limits.energy_j, energy_j),
            (limits.power_w, energy_j / latency_s),
        ):
            if most is not None:
                kept &= values <= most
        for device, share in limits.shares.items():
            kept &= (placements[:, 0] != self.table.units.index(device)) | (share >= 1.0)
        return kept

    def _costed(
        self, architecture: Architecture, accuracy: float, keeps: bool, points: tuple[Any, Any, Any, Any]
    ) -> Costed:
        latency_s, energy_j, placements, settings = points
        names = [name for name, _ in blocks_of(architecture.spec(self.backbone))]
        return Costed(
            str(architecture),
            accuracy,
            keeps,
            latency_s,
            energy_j,
            written(names, [self.letters[unit] for unit in self.table.units], placements),
            tuple(told_points(self.table.settings[int(setting)]) for setting in settings),
        )


def written(blocks: Sequence[str], letters: Sequence[str], placements: Any) -> tuple[str, ...]:
    """Return placements as letters, the parts of a network parted by `/`.

    Parameters
    ----------
    letters : sequence of str
        Of the units.
    placements : array of int64, shape (placements, blocks)
    """
    columns = [column for part in parts_of(blocks) for column in (*part, -1)][:-1]
    codes = np.array([*map(ord, letters), ord("/")], np.uint8)
    extended = np.concatenate([placements, np.full((len(placements), 1), len(letters))], axis=1)
    text = codes[extended[:, columns]]
    return tuple(row.tobytes().decode() for row in text)


def told_points(points: Mapping[str, str]) -> str:
    """Return operating points as one text."""
    return ", ".join(f"{device} {name}" for device, name in points.items())
