"""Results of a sweep on disk: a manifest, and one Parquet file per chunk with its checksum."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

import npusim
from npusim import files
from npusim.arch import Npu, load_soc
from npusim.config import dump_model
from npusim.documents import Document
from npusim.errors import FileError, NpusimError
from npusim.explore.axes import Axis
from npusim.explore.campaign import overrides_of
from npusim.explore.spaces import Space, networks_of
from npusim.locate import data_root
from npusim.metrics import METRICS, unit_of
from npusim.plugins import plugin_packages
from npusim.scenario import load_network, name_of

MANIFEST = "manifest.json"
POINT = "point"
"""Column with the number of a point."""
_BEGINNING = ("manifest.json", "checksums")
_LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
_ANEW = "the sweep with --resume computes it again"
_PACKAGES = "arch config cost explore graph mapping ops techniques units workloads"
"""Packages whose source code the results depend on."""


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
    for package in _PACKAGES.split():
        for source in sorted((root / package).rglob("*.py")):
            digest.update(str(source.relative_to(root)).encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def inputs_of(space: Space) -> dict[str, str]:
    """Return fingerprints of what the results of a space depend on beside the space itself, by name.

    Those are the source code of the equations, packages that add to npusim, the data sheet of each machine
    with its library of DSP kernels, the graph of each network (a file's, a data set's statistics), laws of
    silicon, and toolchains.
    """
    inputs = {"equations": equations(), "packages": _digest_of(*plugin_packages())}
    of_workload, of_soc = (overrides_of(space, {}, of_workload=which) for which in (True, False))
    machines = space.axes.get("soc")
    for name in [space.soc] if machines is None else map(str, machines.values or ()):
        soc = load_soc(name, of_soc)
        inputs[f"data sheet {name}"] = _digest_of(dump_model(soc))
        for device in soc.devices.values():
            if isinstance(device, Npu) and device.dsp.library is not None:
                inputs[f"DSP library {device.dsp.library}"] = _digest_of_folder(f"dsp/{device.dsp.library}")
    networks = networks_of(space)
    for network in networks[1:] or networks:
        inputs[f"workload {name_of(network)}"] = load_network(network, of_workload).digest
    return inputs | {name: _digest_of_folder(name) for name in ("technology", "toolchains")}


def _digest_of_folder(folder: str) -> str:
    paths = sorted((data_root() / "configs" / folder).glob("*.yaml"))
    return _digest_of(*(part for path in paths for part in (path.name, path.read_text(encoding="utf-8"))))


def _digest_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def space_hash(space: Space) -> str:
    """Return 16 hexadecimal digits over a space."""
    return _digest_of(json.dumps(_plain(space), sort_keys=True))


def _plain(space: Space) -> dict[str, Any]:
    return space.model_dump(mode="json", by_alias=True)


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


def refuse_other(stored: Manifest, wanted: Manifest, directory: Path) -> None:
    """Refuse to resume results of another space, npusim or input; the message names what has changed."""
    reasons: list[str] = []
    if stored.hash != wanted.hash:
        old, new = _plain(stored.space), _plain(wanted.space)
        changed = ", ".join(key for key in old if old[key] != new.get(key))
        reasons.append(f"the space has changed ({changed or 'the order of its keys'})")
    if stored.npusim != wanted.npusim or stored.equations != wanted.equations:
        reasons.append(f"npusim has changed (it was {stored.npusim}, equations {stored.equations})")
    others = [name for name in changed_inputs(stored.inputs, wanted.inputs) if name != "equations"]
    if others and stored.hash == wanted.hash:
        reasons.append(f"what it reads has changed ({', '.join(others)})")
    if not reasons and stored.points != wanted.points:
        reasons.append(f"its manifest says {stored.points:,} points where there are {wanted.points:,}")
    if reasons:
        raise NpusimError(
            f"{directory}: cannot be resumed: {' and '.join(reasons)}; sweep into another directory"
        )


def changed_inputs(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of what differs between two sets of inputs."""
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


write_whole = partial(files.write_whole, remedy="what is written already stays valid: make room and resume")


def not_empty(directory: Path) -> FileError:
    """Return the error of a directory that holds something, where a new one is named."""
    return FileError(
        str(directory), "is not empty", "add --resume to go on with it, or name another directory"
    )


class Store:
    """A directory of results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.chunks = directory / "chunks"
        self.result = directory / "kept.parquet"
        self.checksums = directory / "checksums"

    def make(self) -> None:
        """Make the directory where it is missing; FileError where that fails."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(str(self.directory), f"cannot be made ({error.strerror})") from None

    def refuse_impossible(self) -> None:
        """Refuse a directory whose name the system does not take or that is a file, before any work."""
        try:
            if self.directory.exists() and not self.directory.is_dir():
                raise FileError(str(self.directory), "cannot be made (a file has this name)")
        except OSError as error:
            raise FileError(str(self.directory), f"cannot be made ({error.strerror})") from None

    def is_begun(self) -> bool:
        """Whether a chunk of an earlier sweep is there."""
        return self.chunks.is_dir() and any(self.chunks.glob("*.parquet"))

    def refuse_full(self) -> None:
        """Refuse a directory that holds more than the beginning of a sweep that never finished a chunk."""
        if self.chunks.is_file():
            raise FileError(str(self.chunks), "is a file", "remove it, or name another directory")
        for entry in self.directory.iterdir():
            empty = entry == self.chunks and entry.is_dir() and not self.is_begun()
            if entry.name[:1] != "." and entry.name not in _BEGINNING and not empty:
                raise not_empty(self.directory)

    def chunk(self, index: int) -> Path:
        """Return the file of a chunk."""
        return self.chunks / f"{index:08d}.parquet"

    def done(self, total: int) -> list[bool]:
        """Return for each chunk whether its file is there, and is what was written."""
        listed = self._listed()
        return [self._is_whole(self.chunk(i), listed) for i in range(total)]

    def damaged(self, done: Sequence[bool]) -> int:
        """Return how many chunks have a file that is not what was written."""
        return sum(not whole and os.path.lexists(self.chunk(i)) for i, whole in enumerate(done))

    def write_chunk(self, index: int, content: bytes) -> None:
        """Write a chunk; FileError where the disk takes no more."""
        self.chunks.mkdir(exist_ok=True)
        if self.chunk(index).is_dir():
            raise FileError(str(self.chunk(index)), "is a directory", "remove it")
        write_whole(self.chunk(index), content)
        self.record(self.chunk(index))

    def record(self, *paths: Path) -> None:
        """Note the checksums of files that are written; FileError where the disk takes no more."""
        try:
            with self.checksums.open("a", encoding="ascii") as file:
                file.writelines(f"{files.sha256_of(path)}  {self._name(path)}\n" for path in paths)
        except OSError as error:
            raise FileError(str(self.checksums), f"cannot be written ({error.strerror})", _ANEW) from None

    def finish(self, *paths: Path) -> None:
        """Write the checksums of these files and of all chunks that are whole, sorted; no others."""
        listed = self._listed()
        chunks = [path for path in sorted(self.chunks.glob("*.parquet")) if self._name(path) in listed]
        digests = {self._name(path): files.sha256_of(path) for path in paths}
        digests |= {self._name(path): listed[self._name(path)] for path in chunks}
        lines = (f"{digests[name]}  {name}\n" for name in sorted(digests))
        write_whole(self.checksums, "".join(lines).encode())

    def check(self, *paths: Path, remedy: str = _ANEW) -> None:
        """Refuse files of the results that are not what was written.

        Raises
        ------
        FileError
            It names the first of them.
        """
        listed = self._listed()
        for path in paths:
            if not self._is_whole(path, listed):
                raise FileError(str(path), "is damaged, changed, or of other results", remedy)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps and searches out of the directory, where the system knows locks.

        Raises
        ------
        FileError
            Where one is at work there.
        """
        try:
            import fcntl
        except ImportError:  # not on Windows
            yield
            return
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            with suppress(OSError):  # some network drives know no locks
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    problem = "another sweep or search is writing to it"
                    raise FileError(str(self.directory), problem, "wait until it ends") from None
            yield
        finally:
            os.close(descriptor)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.directory).as_posix()

    def _listed(self) -> dict[str, str]:
        """Return the checksum of each file that is listed; a line cut off by a crash counts for nothing."""
        try:
            text = files.read_bounded(self.checksums).decode("ascii", "replace")
        except OSError:
            return {}
        lines = (_LINE.fullmatch(line) for line in text.split("\n"))
        return {line[2]: line[1] for line in lines if line}

    def _is_whole(self, path: Path, listed: dict[str, str]) -> bool:
        wanted = listed.get(self._name(path))
        return wanted is not None and path.is_file() and files.sha256_of(path) == wanted

    def clear_drafts(self) -> None:
        """Remove what a killed run left half-written."""
        for draft in [*self.directory.glob(".*.draft"), *self.chunks.glob(".*.draft")]:
            with suppress(OSError):
                draft.unlink()

    def files(self, total: int) -> list[Path]:
        """Return the files that hold the points that were kept: the merged one, or all chunks so far.

        Parameters
        ----------
        total : int
            Chunks of the sweep.

        Raises
        ------
        FileError
            Where one is not what was written, or none of the sweep's, or where one that was written is lost.
        """
        if os.path.lexists(self.result):
            self.check(self.result)
            return [self.result]
        chunks = sorted(self.chunks.glob("*.parquet"))
        self.check(*chunks)
        lost = [name for name in self._listed() if not os.path.lexists(self.directory / name)]
        if chunks and lost:
            problem = f"is lost, with {len(lost) - 1} others" if len(lost) > 1 else "is lost"
            raise FileError(str(self.directory / min(lost)), problem, _ANEW)
        for path in chunks:
            if not (path.stem.isdigit() and int(path.stem) < total):
                raise FileError(str(path), f"is none of the {total} chunks of the sweep", "remove it")
        return chunks

    def swept(self, manifest: Manifest) -> int:
        """Return how many points of the space are swept so far."""
        if self.result.exists():
            return manifest.points
        begins = (int(path.stem) * manifest.chunk for path in self.chunks.glob("*.parquet"))
        return sum(min(manifest.chunk, manifest.points - begin) for begin in begins)

    def tables(self, total: int) -> Iterator[Any]:
        """Yield the chunks, so many in all, as Arrow tables, in order."""
        return (pq.read_table(self.chunk(index)) for index in range(total))

    def rows(self, total: int) -> int:
        """Return how many points all chunks hold."""
        return sum(pq.read_metadata(self.chunk(index)).num_rows for index in range(total))


def table_of(
    axes: tuple[Axis, ...], numbers: Any, coordinates: Any, scores: Any, asked: Collection[str]
) -> Any:
    """Return points as an Arrow table: number, axes by path, metrics.

    Parameters
    ----------
    coordinates : array of float, shape (points, axes)
    scores : mapping of metric to array, or array of TOTAL_DTYPE; shape (points,)
    asked : collection of str
        Metrics that the space names; of those that need to be asked for, only these get a column.
    """
    columns: dict[str, Any] = {POINT: _column(np.asarray(numbers, np.int64))}
    for axis, coordinate in zip(axes, np.transpose(coordinates), strict=True):
        values = axis.values_at(coordinate)
        if axis.numbers is None:
            columns[axis.path] = pa.array(values, pa.string())
        else:
            columns[axis.path] = _column(values.astype(np.int64) if axis.is_whole else values)
    columns |= {
        name: _column(metric.values(scores))
        for name, metric in METRICS.items()
        if name in asked or not metric.is_asked
    }
    units = {name: unit_of(name) for name in METRICS} | {axis.path: axis.unit for axis in axes}
    fields = [
        pa.field(name, column.type, metadata={"unit": units.get(name) or "1"})
        for name, column in columns.items()
    ]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def _column(values: Any) -> Any:
    """Return numbers as an Arrow array; `pyarrow.array` would import pandas first."""
    numbers = np.ascontiguousarray(values)
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, pa.py_buffer(numbers)]
    )


def numbers_in(table: Any, name: str) -> Any:
    """Return a column of numbers without gaps as a numpy array; without pandas, as `_column`."""
    return np.from_dlpack(table[name].combine_chunks()) if table.num_rows else np.zeros(0)
