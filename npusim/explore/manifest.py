"""The manifest of a directory of results: which space, inputs and equations, cut into which chunks.

A sweep is resumed only where the manifest says that the rest will be computed from the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

import npusim
from npusim.config import dump_model
from npusim.documents import Document
from npusim.errors import NpusimError
from npusim.explore.axes import Axis
from npusim.explore.spaces import Space
from npusim.explore.variants import base_soc, graph_at

__all__ = ["MANIFEST", "Manifest", "equations", "manifest_of", "read_manifest", "refuse_other", "space_hash"]

MANIFEST = "manifest.json"
_PACKAGES = (
    "arch",
    "config",
    "cost",
    "explore",
    "graph",
    "mapping",
    "ops",
    "techniques",
    "units",
    "workloads",
)


class Manifest(Document):
    """What a directory of results is."""

    schema_: Literal["npusim.manifest/1"] = Field("npusim.manifest/1", alias="schema")
    """Version of this file format."""
    npusim: str
    """Version of npusim that made it."""
    equations: str
    """Fingerprint of the model's source code."""
    hash: str
    """Hash of the space and of the machine it starts from."""
    points: Annotated[int, Field(ge=1)]
    """Points of the space."""
    chunk: Annotated[int, Field(ge=1)]
    """Points of a chunk; the last one may have fewer."""
    space: Space
    """The space itself."""
    units: dict[str, str] = Field(default_factory=dict)
    """SI units of the axes that have one, by path."""

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.points // self.chunk)


@cache
def equations() -> str:
    """Return 16 hexadecimal digits over the source code that results depend on."""
    root = Path(npusim.__file__).parent
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for source in sorted((root / package).rglob("*.py")):
            digest.update(str(source.relative_to(root)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def space_hash(space: Space) -> str:
    """Return 16 hexadecimal digits over a space and the machine it starts from."""
    text = json.dumps(space.model_dump(mode="json", by_alias=True), sort_keys=True) + dump_model(
        base_soc(space)
    )
    if not isinstance(space.workload, str):  # a file holds its name alone
        text += graph_at(space, {}).digest
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def manifest_of(space: Space, axes: Iterable[Axis], points: int, chunk: int) -> Manifest:
    """Return the manifest of a space's results, made by this npusim."""
    return Manifest(
        npusim=npusim.__version__,
        equations=equations(),
        hash=space_hash(space),
        points=points,
        chunk=chunk,
        space=space,
        units={axis.path: axis.unit for axis in axes if axis.unit},
    )


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a directory of results.

    Raises
    ------
    FileError
        Where there is none.
    """
    return Manifest.read(directory / MANIFEST, "`npusim sweep` and `npusim search`")


def refuse_other(found: Manifest, wanted: Manifest, directory: Path) -> None:
    """Refuse to resume where what is there was made of something else; the message says of what."""
    reasons: list[str] = []
    if found.hash != wanted.hash:
        reasons.append(f"the space has changed ({_difference(found.space, wanted.space)})")
    if found.npusim != wanted.npusim or found.equations != wanted.equations:
        reasons.append(f"npusim has changed (it was {found.npusim}, equations {found.equations})")
    if reasons:
        raise NpusimError(
            f"{directory}: cannot be resumed: {' and '.join(reasons)}; sweep into another directory"
        )


def _difference(a: Space, b: Space) -> str:
    one, other = _plain(a), _plain(b)
    changed = [key for key in one if one[key] != other.get(key)]
    return ", ".join(changed) or "the machine's data sheet"


def _plain(space: Space) -> dict[str, Any]:
    return space.model_dump(mode="json", by_alias=True)
