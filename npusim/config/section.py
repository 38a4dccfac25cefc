"""The base of every typed configuration: frozen, strict about names, and documented field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from npusim.errors import shown

_LONGEST_NAME = 1000

if TYPE_CHECKING:
    from npusim.config.overrides import Override


def one_line(text: str) -> str:
    """Return a name; raise a ValueError, inside a validator, where it would not stand on one line."""
    if not text.isprintable() or len(text) > _LONGEST_NAME:
        raise ValueError(
            f"found {shown(text)}; allowed: a name on one line, at most {_LONGEST_NAME} characters"
        )
    return text


class Section(BaseModel):
    """A frozen model that refuses unknown keys; the text under a field is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    informative: ClassVar[str] = ""
    """Why no estimate reads any number of the section; empty where estimates do."""

    @classmethod
    def prepare(cls, data: Any, overrides: list[Override], base: Any) -> tuple[list[Override], Any]:
        """Return overrides in the order in which they apply, and the model whose paths they may name.

        Parameters
        ----------
        data : mapping
            Data of the file; a model may write into it what the overrides change but the file leaves out.
        """
        return overrides, base

    @classmethod
    def expand_override(cls, override: Override, base: Any, data: Any) -> Sequence[Override]:
        """Return the settings that one override stands for.

        Parameters
        ----------
        data : mapping
            Data of the file with the overrides before this one.
        """
        return [override]

    @classmethod
    def short_path(cls, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path of the file as users may write it; models with short names shorten it."""
        return path
