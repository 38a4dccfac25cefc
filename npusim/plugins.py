"""Registries that other installed packages add to through Python entry points.

A package names in its `pyproject.toml` what it adds, one entry a member or a sequence of members:

    [project.entry-points."npusim.techniques"]
    mine = "my_package:MY_TECHNIQUE"

The packages of npusim that hold one paper's system (`npusim.llm`, `npusim.magnas`, `npusim.pruning`,
`npusim.decomposition`) are announced in the same way. `GROUPS` lists the groups.

Entries are found without an import, and loaded when their name is asked for. A package that cannot be read or
loaded is one warning, and stops nothing of npusim's own. `NPUSIM_NO_PLUGINS=1` leaves all other packages out.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from threading import Timer
from typing import Any, Generic, TypeVar

from npusim.errors import NpusimError, UnknownNameError

T = TypeVar("T")
_READ_FILES = ("entry_points.txt", "METADATA")
"""What is read of the metadata of every installed package."""

GROUPS = {
    "npusim.workloads": "a `WorkloadKind`",
    "npusim.techniques": "a `Technique`",
    "npusim.operators": "an operator type",
    "npusim.reports": "a `Supplement` below the page of a document",
    "npusim.displays": "a `Display`: text and HTML of any document",
    "npusim.documents": "a `DocumentKind`: a JSON document and its pages",
    "npusim.commands": "a `Command`, several below one name, or a typer application: `npusim NAME`",
    "npusim.calls": "a function: `npusim.NAME(...)`",
    "npusim.schedulers": "a `Scheduler` of `npusim mix`",
    "npusim.engines": "a function of a `Scenario`: an `Estimate`, as `estimate --engine NAME`",
    "npusim.equations": "a function of an operator, its graph and an NPU: cycles; `npu.equations` names it",
    "npusim.mappings": "a function of a graph and a machine: loop nests, as `estimate --mapping NAME`",
    "npusim.suites": "a `Predictor`; the suite is `validate/NAME.yaml` in the package",
    "npusim.token_times": "a function: seconds of a token that a suite's row names, and their interval",
    "npusim.fits": "a `Fit` of numbers of data sheets: `python -m npusim.calibration NAME`",
    "npusim.lessons": "a lesson, by its module",
    "npusim.measured_folders": "a `MeasuredFolder`: what `npusim measure FOLDER` runs",
}
"""Groups of entry points that npusim reads, and what an entry of each names."""
NO_PLUGINS = "NPUSIM_NO_PLUGINS"
"""Environment variable: anything but the empty text leaves all packages but npusim out."""
_LONG_S = 3.0
"""Time to load a package after which its name is shown."""
_OWN = "npusim"  # distribution whose entries are npusim's own


class PluginError(NpusimError):
    """An installed package adds something to npusim that cannot be used."""


class PluginWarning(UserWarning):
    """An installed package cannot be used, and is left out."""


class Registry(Mapping[str, T], Generic[T]):
    """Members by name: npusim's own, and those of other packages from the first time that they matter.

    Looking up a name loads its own entry; listing all, or asking for an unknown name, loads every package.
    `group` is one of `GROUPS`, `noun` the word for a member in messages, such as "technique"; a member's name
    is its attribute `name`, or what `name_of` returns.
    """

    def __init__(self, group: str, noun: str, member: type[T]) -> None:
        self.group, self.noun, self.member = group, noun, member
        self._members: dict[str, Any] = {}
        self._added: set[metadata.EntryPoint] = set()
        self._packages: dict[str, str] = {}
        self._broken: dict[str, PluginError] = {}
        self._complete = False

    def register(self, member: T) -> T:
        """Add a member and return it.

        Raises
        ------
        NpusimError
            Where it is of another type, or its name is taken.
        """
        if not isinstance(member, self.member):
            raise NpusimError(f"{member!r} is no {self.member.__name__}")
        name = _name_of(member)
        if name in self._members:
            raise NpusimError(f"{self.noun} {name!r}: there is one of that name already")
        self._members[name] = member
        return member

    def announce(self, *places: str) -> None:
        """Add members of npusim's own, each as `module:NAME`, which are imported on first use."""
        self._members |= {place.rpartition(":")[2].lower(): place for place in places}

    def remove(self, name: str) -> None:
        """Take a member out."""
        del self._members[name]

    def own_names(self) -> tuple[str, ...]:
        """Names of the members so far; no other package is loaded for it."""
        return tuple(self._members)

    def rank(self, name: str) -> tuple[bool, int, str]:
        """Return a sort key: members of npusim's core in order of registration, then entries by name."""
        is_entry = name in self._packages
        return is_entry, 0 if is_entry else self.own_names().index(name), name

    def package_of(self, name: str) -> str:
        """Return name and version of the package that a member comes from; '' for npusim's own."""
        return self._packages.get(name, "")

    @contextmanager
    def blamed(self, name: str, what: str) -> Iterator[None]:
        """Turn what a member of another package raises into a `PluginError` that names the package."""
        try:
            yield
        except Exception as error:
            package = self.package_of(name)
            if not package or isinstance(error, NpusimError):
                raise
            raise PluginError(f"package {package}: its {what}: {type(error).__name__}: {error}") from error

    def find(self, name: str) -> T:
        """Return a member by its name; an `UnknownNameError` names the nearest one."""
        try:
            return self[name]
        except KeyError:
            raise UnknownNameError(self.noun, name, tuple(self)) from None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member by its name, or a default."""
        return self._own(name) if name in self._members else super().get(name, default)

    def __getitem__(self, name: str) -> T:
        if name not in self._members:
            self._load(name)
        if name in self._broken:
            raise self._broken[name]
        if name not in self._members:
            self._load()
        return self._own(name)

    def _own(self, name: str) -> T:
        """Return a member that is there, imported if it is only announced."""
        if isinstance(self._members[name], str):
            self._members[name] = resolve_name(self._members[name])
        member: T = self._members[name]
        return member

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._members)

    def __len__(self) -> int:
        self._load()
        return len(self._members)

    def _load(self, only: str | None = None) -> None:
        """Add what installed packages register: the entry of one name, or all; what is broken is left out."""
        if self._complete:
            return
        self._complete = only is None  # before: a package that is being loaded may look at the registry
        for entry in _entries(self.group):
            if entry in self._added or only not in (None, entry.name):
                continue
            self._added.add(entry)
            try:
                loaded = load(entry, self.noun)
                with named(entry, self.noun):
                    for member in loaded if isinstance(loaded, list | tuple) else (loaded,):
                        self._packages[_name_of(self.register(member))] = _package_of(entry)
            except PluginError as error:
                self._broken[entry.name] = error
                if only is None:
                    warnings.warn(f"{error}; it is left out", PluginWarning, stacklevel=2)


@contextmanager
def named(entry: metadata.EntryPoint, noun: str) -> Iterator[None]:
    """Turn what the package of an entry raises, or how it exits, into a `PluginError` that names it."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = str(error) if isinstance(error, NpusimError) else f"{type(error).__name__}: {error}"
        raise PluginError(
            f"package {_package_of(entry) or _OWN}: its {noun} `{entry.name}` ({entry.value}) cannot be used"
            f": {' '.join(why.split())}; mend the package or uninstall it"
        ) from error


def load(entry: metadata.EntryPoint, noun: str) -> Any:
    """Return what an entry names; a `PluginError` names its package, a warning too where it takes long."""
    about = f"package {_package_of(entry)}: still loading after {_LONG_S:g} s; --no-plugins leaves it out"
    timer = Timer(_LONG_S, warnings.warn, [about, PluginWarning])
    timer.daemon = True
    if _package_of(entry):
        timer.start()
    try:
        with named(entry, noun):
            return entry.load()
    finally:
        timer.cancel()


def _name_of(member: Any) -> str:
    return str(member.name)


def announced(group: str) -> dict[str, metadata.EntryPoint]:
    """Return the entry points of a group by name, npusim's own before others; nothing is imported."""
    entries = sorted(_entries(group), key=lambda entry: (not _package_of(entry), entry.name))
    found = {entry.name: entry for entry in entries}
    return {name: found[name] for name in sorted(found)}


def folder_of(entry: metadata.EntryPoint) -> Path:
    """Return the folder with the module of an entry point, without importing the module."""
    package = entry.module.rpartition(".")[0] or entry.module
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise PluginError(f"package {_package_of(entry) or _OWN}: `{entry.value}` does not exist")
    return Path(spec.origin).parent


def plugin_packages() -> list[str]:
    """Return name and version of each installed package that adds to a registry of npusim, sorted."""
    return sorted({entry["package"] for entry in plugins()})


def plugins() -> list[dict[str, str]]:
    """Return what other installed packages announce: package, group, name and object; nothing is imported."""
    return [
        {"package": _package_of(entry), "group": group, "name": entry.name, "object": entry.value}
        for group in GROUPS
        for entry in _entries(group)
        if _package_of(entry)
    ]


def _entries(group: str) -> list[metadata.EntryPoint]:
    """Return the entry points of a group; packages are looked for once while folders stay as they are."""
    folders = tuple((folder, os.stat(folder).st_mtime_ns) for folder in sys.path if os.path.isdir(folder))
    entries = _all_entries(folders).get(group, [])
    return [entry for entry in entries if not (os.environ.get(NO_PLUGINS) and _package_of(entry))]


@lru_cache(maxsize=1)
def _all_entries(folders: tuple[tuple[str, int], ...]) -> dict[str, list[metadata.EntryPoint]]:
    """Return the entry points of npusim's groups; of two installations of a package the first counts.

    Packages whose metadata cannot be read are hidden: other libraries (pydantic, numba) look for entry
    points, too, and would fail.
    """
    entries: dict[str, list[metadata.EntryPoint]] = {group: [] for group in GROUPS}
    broken, seen = set[Any](), set[str]()
    for package in metadata.distributions():
        folder = getattr(package, "_path", None)
        try:
            if isinstance(folder, Path) and any((folder / name).is_fifo() for name in _READ_FILES):
                raise OSError("a pipe, which would wait for a writer")
            found = [entry for entry in package.entry_points if entry.group in GROUPS]
            name = package.metadata["Name"] if found else getattr(folder, "name", "").partition("-")[0]
        except Exception as error:
            broken.add(folder)
            problem = f"its metadata cannot be read ({type(error).__name__})"
            warnings.warn(f"package {folder or '?'}: {problem}; it is left out", PluginWarning, stacklevel=2)
            continue
        for entry in found if name not in seen else ():
            entries[entry.group].append(entry)
        seen.add(name)
    if broken:
        every = metadata.distributions
        metadata.distributions = lambda **of: (
            package for package in every(**of) if getattr(package, "_path", None) not in broken
        )
    return entries


def _package_of(entry: metadata.EntryPoint) -> str:
    """Return name and version of the package of an entry; '' for npusim's own."""
    package = None if entry.dist is None else _described(entry.dist)
    return entry.value if package is None else package


@lru_cache(maxsize=256)
def _described(package: metadata.Distribution) -> str | None:
    """Return name and version of a package; '' for npusim itself, None where its metadata cannot be read."""
    try:
        name, version = package.metadata["Name"], package.metadata["Version"]
    except Exception:  # no METADATA, or none that can be read
        return None
    return "" if name == _OWN else name and f"{name} {version or ''}".strip()
