"""Document of MaGNAS's tables and figures of mapping and clocks, predicted and published."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part


class MappingFigure(Part):
    """One number of a table or figure."""

    figure: str
    """Table or figure of the paper."""
    what: str
    """Subject of the number."""
    quantity: str
    """latency, energy, or the name of a ratio."""
    unit: str
    """s or J; empty for ratios."""
    ours: float
    """Value of the model."""
    paper: float | None
    """Value in the paper; null where it gives none."""


class MappingStatement(Part):
    """A statement of the paper about mappings."""

    figure: str
    """Table or figure of the paper."""
    says: str
    """The statement."""
    holds: bool
    """Whether it holds in the model."""


class MappingFigures(Document):
    """MaGNAS's tables and figures of mapping, operating points and search."""

    MAIN_TABLE = "figures"

    schema_: Literal["npusim.magnas-figures/1"] = Field("npusim.magnas-figures/1", alias="schema")
    """Version of this document."""
    title: str
    """What is compared."""
    figures: list[MappingFigure]
    """Numbers of the model and the paper."""
    statements: list[MappingStatement]
    """Statements of the paper, and whether they hold."""
