"""Accuracy, latency and energy of architectures: scores as handed in, and every mapping worth having."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from npusim.arch import Soc
from npusim.errors import InfeasibleError, UnknownNameError
from npusim.magnas.block_table import BlockTable, block_table, blocks_of, covering_specs
from npusim.magnas.space import Architecture, ArchitectureSpace
from npusim.magnas.spec import VisionGnnSpec
from npusim.studies.map_front import Limits, devices_of
from npusim.studies.mapping_letters import letters_of, parts_of


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
