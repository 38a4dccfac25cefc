"""The manifest of a directory of results: which space, inputs and equations, cut into which chunks.

A sweep is resumed only where the manifest says that the rest will be computed from the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

import npusim
from npusim.arch import Npu, load_soc
from npusim.config import dump_model
from npusim.documents import Document
from npusim.errors import NpusimError
from npusim.explore.axes import Axis
from npusim.explore.networks import overrides_of
from npusim.explore.spaces import Space, networks_of
from npusim.explore.store import Store
from npusim.locate import data_root
from npusim.plugins import plugin_packages
from npusim.scenario import load_network, name_of

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
    """Hash of the space."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Fingerprints of all else that the results depend on, by name; see `inputs_of`."""
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


def inputs_of(space: Space) -> dict[str, str]:
    """Return fingerprints of what the results of a space depend on beside the space itself, by name.

    Those are the source code of the equations, packages that add to npusim, the data sheet of each machine
    with its library of DSP kernels, the graph of each network (a file's, a data set's statistics), and
    toolchains.
    """
    found = {"equations": equations(), "packages": _digest(*plugin_packages())}
    of_workload, of_soc = (overrides_of(space, {}, of_workload=which) for which in (True, False))
    for name in _named(space, "soc", space.soc):
        soc = load_soc(name, of_soc)
        found[f"data sheet {name}"] = _digest(dump_model(soc))
        for device in soc.devices.values():
            if isinstance(device, Npu) and device.dsp.library is not None:
                found[f"DSP library {device.dsp.library}"] = _files(f"dsp/{device.dsp.library}")
    networks = networks_of(space)
    for network in networks[1:] or networks:
        found[f"workload {name_of(network)}"] = load_network(network, of_workload).digest
    return found | {"toolchains": _files("toolchains")}


def _named(space: Space, axis: str, usual: str) -> list[str]:
    """Return the values of an axis of names; where there is none, the usual one."""
    spec = space.axes.get(axis)
    return [usual] if spec is None or spec.values is None else [str(value) for value in spec.values]


def _files(folder: str) -> str:
    paths = sorted((data_root() / "configs" / folder).glob("*.yaml"))
    return _digest(*(part for path in paths for part in (path.name, path.read_text(encoding="utf-8"))))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def space_hash(space: Space) -> str:
    """Return 16 hexadecimal digits over a space."""
    return _digest(json.dumps(space.model_dump(mode="json", by_alias=True), sort_keys=True))


def manifest_of(space: Space, axes: Iterable[Axis], points: int, chunk: int) -> Manifest:
    """Return the manifest of a space's results, made by this npusim."""
    return Manifest(
        npusim=npusim.__version__,
        equations=equations(),
        hash=space_hash(space),
        inputs=inputs_of(space),
        points=points,
        chunk=chunk,
        space=space,
        units={axis.path: axis.unit for axis in axes if axis.unit},
    )


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a directory of results."""
    manifest = Manifest.read(directory / MANIFEST, "`npusim sweep` and `npusim search`")
    Store(directory).check(directory / MANIFEST, remedy="sweep into another directory")
    return manifest


def refuse_other(found: Manifest, wanted: Manifest, directory: Path) -> None:
    """Refuse to resume where what is there was made of something else; the message says of what."""
    reasons: list[str] = []
    if found.hash != wanted.hash:
        reasons.append(f"the space has changed ({_difference(found.space, wanted.space)})")
    if found.npusim != wanted.npusim or found.equations != wanted.equations:
        reasons.append(f"npusim has changed (it was {found.npusim}, equations {found.equations})")
    others = [name for name in changed_inputs(found.inputs, wanted.inputs) if name != "equations"]
    if others and found.hash == wanted.hash:
        reasons.append(f"what it reads has changed ({', '.join(others)})")
    if not reasons and found.points != wanted.points:
        reasons.append(f"its manifest says {found.points:,} points where there are {wanted.points:,}")
    if reasons:
        raise NpusimError(
            f"{directory}: cannot be resumed: {' and '.join(reasons)}; sweep into another directory"
        )


def changed_inputs(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of what differs between two sets of inputs."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def _difference(a: Space, b: Space) -> str:
    one, other = _plain(a), _plain(b)
    changed = [key for key in one if one[key] != other.get(key)]
    return ", ".join(changed) or "the order of its keys"


def _plain(space: Space) -> dict[str, Any]:
    return space.model_dump(mode="json", by_alias=True)
