"""Registries that other installed packages add to through Python entry points.

A package names in its `pyproject.toml` what it adds, one entry a member or a sequence of members:

    [project.entry-points."npusim.techniques"]
    mine = "my_package:MY_TECHNIQUE"

The packages of npusim that hold one paper's system (`npusim.llm`, `npusim.magnas`, `npusim.pruning`,
`npusim.decomposition`) are announced in the same way. `GROUPS` lists the groups.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from npusim.errors import NpusimError, UnknownNameError

T = TypeVar("T")

GROUPS = {
    "npusim.workloads": "a `WorkloadKind`",
    "npusim.techniques": "a `Technique`",
    "npusim.operators": "an operator type",
    "npusim.reports": "a `Supplement` below the page of a document",
    "npusim.displays": "a `Display`: text and HTML of any document",
    "npusim.documents": "a `DocumentKind`: a JSON document and its pages",
    "npusim.commands": "a `Command`, several below one name, or a typer application: `npusim NAME`",
    "npusim.calls": "a function: `npusim.NAME(...)`",
    "npusim.suites": "a `Predictor`; the suite is `validate/NAME.yaml` in the package",
    "npusim.fits": "a `Fit` of numbers of data sheets: `python -m npusim.calibration NAME`",
    "npusim.lessons": "a marimo notebook, by its module",
    "npusim.measured_folders": "a `MeasuredFolder`: what `npusim measure FOLDER` runs",
}
"""Groups of entry points that npusim reads, and what an entry of each names."""
_OWN = "npusim"  # distribution whose entries are npusim's own


class PluginError(NpusimError):
    """An installed package adds something to npusim that cannot be used."""


class Registry(Mapping[str, T], Generic[T]):
    """Members by name: npusim's own, and those of other packages from the first time that they matter.

    Looking up a name loads its own entry; listing all, or asking for an unknown name, loads every package.
    `group` is one of `GROUPS`, `noun` the word for a member in messages, such as "technique"; a member's name
    is its attribute `name`, or what `name_of` returns.
    """

    def __init__(self, group: str, noun: str, member: type[T]) -> None:
        self.group, self.noun, self.member = group, noun, member
        self._members: dict[str, T] = {}
        self._added: set[metadata.EntryPoint] = set()
        self._packages: dict[str, str] = {}
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

    def remove(self, name: str) -> None:
        """Take a member out."""
        del self._members[name]

    def own_names(self) -> tuple[str, ...]:
        """Names of the members so far; no other package is loaded for it."""
        return tuple(self._members)

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
        own = self._members.get(name)
        return own if own is not None else super().get(name, default)

    def __getitem__(self, name: str) -> T:
        if name not in self._members:
            self._load(name)
        if name not in self._members:
            self._load()
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._members)

    def __len__(self) -> int:
        self._load()
        return len(self._members)

    def _load(self, only: str | None = None) -> None:
        """Add what installed packages register: the entry of one name, or all.

        Raises
        ------
        PluginError
            Where one cannot be loaded or adds what does not belong here; it names the package.
        """
        if self._complete:
            return
        self._complete = only is None  # before: a package that is being loaded may look at the registry
        for entry in _entries(self.group):
            if entry in self._added or only not in (None, entry.name):
                continue
            try:
                loaded = entry.load()
                self._added.add(entry)
                for member in loaded if isinstance(loaded, list | tuple) else (loaded,):
                    self._packages[_name_of(self.register(member))] = _package_of(entry)
            except (Exception, SystemExit) as error:
                self._complete = False
                self._added.discard(entry)
                package = f"package {_package_of(entry) or _OWN}"
                why = str(error) if isinstance(error, NpusimError) else f"{type(error).__name__}: {error}"
                raise PluginError(
                    f"{package}: its {self.noun} `{entry.name}` ({entry.value}) cannot be used: {why}; "
                    "mend the package or uninstall it"
                ) from error


def _name_of(member: Any) -> str:
    return str(member.name)


def announced(group: str) -> dict[str, metadata.EntryPoint]:
    """Return the entry points of a group by name; nothing is imported."""
    return {entry.name: entry for entry in sorted(_entries(group), key=lambda entry: entry.name)}


def folder_of(entry: metadata.EntryPoint) -> Path:
    """Return the folder with the module of an entry point, without importing the module."""
    package = entry.module.rpartition(".")[0] or entry.module
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise PluginError(f"package {_package_of(entry) or _OWN}: `{entry.value}` does not exist")
    return Path(spec.origin).parent


def plugin_packages() -> list[str]:
    """Return name and version of each installed package that adds to a registry of npusim, sorted."""
    return sorted({_package_of(entry) for group in GROUPS for entry in _entries(group)} - {""})


def _entries(group: str) -> Any:
    """Return the entry points of a group; packages are looked for once while folders stay as they are."""
    folders = tuple((folder, os.stat(folder).st_mtime_ns) for folder in sys.path if os.path.isdir(folder))
    return _all_entries(folders).select(group=group)


@lru_cache(maxsize=1)
def _all_entries(folders: tuple[tuple[str, int], ...]) -> Any:
    return metadata.entry_points()


def _package_of(entry: metadata.EntryPoint) -> str:
    """Return name and version of the package of an entry; '' for npusim's own."""
    if entry.dist is None:
        return entry.value
    return "" if entry.dist.name == _OWN else f"{entry.dist.name} {entry.dist.version}"
