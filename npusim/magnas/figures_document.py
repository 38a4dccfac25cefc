"""Document of MaGNAS's tables and figures of mapping and clocks, ours beside the published ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from npusim.documents import Document, Part


class MappingFigure(Part):
    """One number of a table or figure."""

    figure: str
    """Table or figure of the paper."""
    what: str
    """What the number is of."""
    quantity: str
    """What it is: latency, energy, or a ratio by its name."""
    unit: str
    """s or J; empty for ratios."""
    ours: float
    """What the model says."""
    paper: float | None
    """What the paper says; null where that is not given."""


class MappingStatement(Part):
    """Something that the paper says of mappings."""

    figure: str
    """Table or figure of the paper."""
    says: str
    """What it says."""
    holds: bool
    """Whether the model says so too."""


class MappingFigures(Document):
    """MaGNAS's tables and figures of mapping, operating points and search."""

    MAIN_TABLE = "figures"

    schema_: Literal["npusim.magnas-figures/1"] = Field("npusim.magnas-figures/1", alias="schema")
    """Version of this document."""
    title: str
    """What is compared."""
    figures: list[MappingFigure]
    """Numbers, ours and the paper's."""
    statements: list[MappingStatement]
    """What the paper says of them, and whether it holds here."""
