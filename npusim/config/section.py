"""The base of every typed configuration: frozen, strict about names, and documented field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from npusim.config.overrides import Override

__all__ = ["Section"]


class Section(BaseModel):
    """A frozen model that refuses unknown keys; the text under a field is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)

    @classmethod
    def expand_override(cls, override: Override, base: Any) -> Sequence[Override]:
        """Return the settings that one override stands for.

        Parameters
        ----------
        override : Override
            What the user wrote.
        base : Section
            The model as the file alone describes it.

        Returns
        -------
        sequence of Override
            The same override, unless a model knows short names or macros.
        """
        return [override]

    @classmethod
    def short_path(cls, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path of the file as users may write it; models with short names shorten it."""
        return path
