"""MaGNAS's search space: the choices of each superblock, written as text, as genes, as workload keys."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from npusim.api import as_numbers
from npusim.errors import ConfigError, UnknownNameError, as_list
from npusim.magnas.spec import SUPERBLOCKS, GraphOperator, VisionGnnSpec

LETTERS: dict[GraphOperator, str] = {"max_relative": "M", "edgeconv": "E", "graphsage": "S", "gin": "G"}
"""Letter of each graph operator in the text of an architecture (MaGNAS, Table 2)."""
_OPERATOR = {letter: operator for operator, letter in LETTERS.items()}
_SUPERBLOCK = re.compile(r"([MESG])([1-9]\d{0,3})(p?)(?:f([1-9]\d{0,3}))?")
_EXAMPLE = "S2pf100-G2f60-S3-G4p"
GENES = 5
"""Genes of a superblock: depth, operator, pre-processing, whether there are feed-forward networks, width."""


class Superblock(NamedTuple):
    """Choices of one superblock."""

    depth: int
    operator: GraphOperator
    preprocess: bool
    ffn_percent: int
    """Hidden features of its feed-forward networks in % of its channels; 0: none."""

    @property
    def text(self) -> str:
        """Operator, depth, `p` with pre-processing, `f` and the width of feed-forward networks: S2pf60."""
        ffn = f"f{self.ffn_percent}" if self.ffn_percent else ""
        return f"{LETTERS[self.operator]}{self.depth}{'p' if self.preprocess else ''}{ffn}"


@dataclass(frozen=True)
class Architecture:
    """One point of a search space."""

    superblocks: tuple[Superblock, ...]

    def __str__(self) -> str:
        return "-".join(one.text for one in self.superblocks)

    def keys(self, backbone: VisionGnnSpec) -> dict[str, Any]:
        """Return the workload keys that make a backbone this architecture."""
        depth, operator, preprocess, percents = map(list, zip(*self.superblocks, strict=True))
        hidden = [
            round(share * width / 100) for share, width in zip(percents, backbone.channels, strict=True)
        ]
        return {"depth": depth, "operator": operator, "preprocess": preprocess, "ffn_hidden": hidden}

    def spec(self, backbone: VisionGnnSpec) -> VisionGnnSpec:
        """Return the workload of this architecture on a backbone.

        Raises
        ------
        ConfigError
            Where the backbone states neighbours for each block: their number is a choice here.
        """
        if len(backbone.knn) not in (1, SUPERBLOCKS):
            allowed = f"1 or {SUPERBLOCKS} values, for depths are a choice"
            raise ConfigError(f"{len(backbone.knn)} values", key="knn", allowed=allowed)
        return VisionGnnSpec.model_validate(backbone.model_dump() | self.keys(backbone))


def parse_architecture(text: str) -> Architecture:
    """Return the architecture that a text such as ``S2pf100-G2f60-S3-G4p`` names.

    Raises
    ------
    ConfigError
        Where it names none.

    Examples
    --------
    >>> parse_architecture("S2pf100-G2f60-S3-G4p").superblocks[1]
    Superblock(depth=2, operator='gin', preprocess=False, ffn_percent=60)
    """
    parts = text.split("-")
    matches = [match for part in parts if (match := _SUPERBLOCK.fullmatch(part))]
    if not len(parts) == len(matches) == SUPERBLOCKS:
        letters = ", ".join(f"{letter} {operator}" for operator, letter in LETTERS.items())
        raise ConfigError(
            f"`{text}`",
            file="architecture",
            allowed=f"{SUPERBLOCKS} superblocks such as {_EXAMPLE}: an operator ({letters}), the depth, p "
            "for pre-processing, f and the hidden features in % of the channels",
        )
    return Architecture(
        tuple(Superblock(int(one[2]), _OPERATOR[one[1]], bool(one[3]), int(one[4] or 0)) for one in matches)
    )


@dataclass(frozen=True)
class ArchitectureSpace:
    """The choices there are in each superblock; the defaults are MaGNAS's (Table 1), 144 of them."""

    depths: tuple[int, ...] = (2, 3, 4)
    operators: tuple[GraphOperator, ...] = get_args(GraphOperator)
    preprocess: tuple[bool, ...] = (False, True)
    ffn: tuple[bool, ...] = (False, True)
    widths_percent: tuple[int, ...] = (30, 60, 100)
    """Hidden features of feed-forward networks in % of the channels: 96, 192 and 320 of 320."""

    @property
    def text(self) -> str:
        """The choices, for labels and messages."""
        return ", ".join(f"{name} {'|'.join(map(str, values))}" for name, values in vars(self).items())

    @property
    def sizes(self) -> list[int]:
        """Values of each gene, superblock by superblock."""
        return [len(values) for values in vars(self).values()] * SUPERBLOCKS

    @property
    def points(self) -> float:
        """Points of the space as MaGNAS counts them: the width counts also where there is no network."""
        return float(np.prod(self.sizes, dtype=float))

    def architecture(self, genes: Sequence[int]) -> Architecture:
        """Return the architecture of genes, `GENES` a superblock."""
        superblocks = []
        for own in np.reshape(genes, (SUPERBLOCKS, GENES)).tolist():
            depth, operator, preprocess, ffn, width = (
                values[gene] for values, gene in zip(vars(self).values(), own, strict=True)
            )
            superblocks.append(Superblock(depth, operator, preprocess, width if ffn else 0))
        return Architecture(tuple(superblocks))

    def homogeneous(self, operator: GraphOperator, largest: bool) -> Architecture:
        """Return the largest or the smallest architecture of one operator throughout."""
        most = max if largest else min
        percent = most(self.widths_percent) if most(self.ffn) else 0
        return Architecture(
            (Superblock(most(self.depths), operator, most(self.preprocess), percent),) * SUPERBLOCKS
        )

    def drawn(self, random: np.random.Generator) -> Architecture:
        """Return an architecture drawn at random, all values of a gene alike."""
        return self.architecture([int(random.integers(size)) for size in self.sizes])


def space_of(
    depths: str | Sequence[int], operators: str | Sequence[str], widths: str | Sequence[int]
) -> ArchitectureSpace:
    """Return the space of architectures that arguments say."""

    def numbers(flag: str, listed: str | Sequence[int], most: int) -> tuple[int, ...]:
        allowed = f"whole numbers of 1 to {most} parted by commas"
        values = sorted(set(as_numbers(listed, int, flag, allowed, most)))
        if not values or values[0] < 1:
            raise ConfigError(f"`{listed}`", file=flag, allowed=allowed)
        return tuple(values)

    names = as_list(operators)
    for name in names:
        if name not in LETTERS:
            raise UnknownNameError("graph operator", name, LETTERS)
    chosen = tuple(name for name in LETTERS if name in names)
    return ArchitectureSpace(
        numbers("--depths", depths, 64), chosen, widths_percent=numbers("--widths", widths, 1000)
    )
