"""The calls of `import npusim`, by what they are for; `npusim/__init__.pyi` lists them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def as_list(texts: str | Sequence[Any] | None) -> list[str]:
    """Return the texts of a list, or of one text that parts them by commas; none for None."""
    if texts is None:
        return []
    return [str(text).strip() for text in (texts.split(",") if isinstance(texts, str) else texts)]
