"""Finds shipped files, the user's data sets and the cache.

The machines, workloads and published figures that npusim ships lie beside the package in a checkout (and so
in an editable install), and inside the package in a wheel. The user's own data and the cache lie elsewhere.
Every other module asks here and never builds such a path itself.
"""

import os
import stat
import tempfile
from functools import cache
from pathlib import Path

from npusim.errors import FileError, UnknownNameError

DATA_VARIABLE = "NPUSIM_DATA"
"""The environment variable that names the folder of the user's raw datasets (Planetoid's layout)."""

DEFAULT_SOC = "core-ultra-series2"
"""The machine where none is named."""

CACHE_VARIABLE = "NPUSIM_CACHE"
"""The environment variable that names the folder for compiled kernels and whatever else can be made again."""


def data_root() -> Path:
    """Return the folder that holds ``configs/``, ``workloads/`` and ``validate/``.

    It is ``npusim/_data`` in a wheel, the repository's root in a checkout or an editable install. A
    `FileError` says that the installation is damaged.
    """
    return _data_root_of(Path(__file__).resolve().parent)


@cache
def _data_root_of(package: Path) -> Path:
    """Find the data folder that belongs to the package in the folder `package`."""
    shipped = package / "_data"
    if shipped.is_dir():
        return shipped
    import tomllib  # a wheel never needs it

    try:
        project = tomllib.loads((package.parent / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        project = {}
    if project.get("project", {}).get("name") == "npusim":  # not a site-packages with some `configs` in it
        return package.parent
    problem = f"npusim's data files are missing, and {package.parent} is no checkout of it"
    raise FileError(str(shipped), problem, "install npusim again")


def resource(*parts: str) -> Path:
    """Return the path of a shipped file or folder, such as ``"configs", "dataflows.yaml"``.

    Raises
    ------
    UnknownNameError
        If it does not exist; the message offers the nearest name in the same folder.
    ValueError
        If the parts lead out of the data folder.

    Examples
    --------
    >>> resource("configs").name
    'configs'
    """
    root = data_root()
    path = root.joinpath(*parts)
    if not path.resolve().is_relative_to(root.resolve()):
        raise ValueError(f"{'/'.join(parts)!r} leads out of npusim's data folder {root}")
    if path.exists():
        return path
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    raise UnknownNameError("/".join(["file in npusim", *parts[:-1]]), parts[-1], siblings)


def resource_names(folder: str, suffix: str) -> list[str]:
    """Return the names of the files with a suffix in a shipped folder, such as "configs/socs", sorted.

    The suffix, such as ".yaml", is left out. The list is empty where the folder does not exist.
    """
    place = data_root().joinpath(*folder.split("/"))
    if not place.is_dir():
        return []
    return sorted(
        entry.name.removesuffix(suffix)
        for entry in place.iterdir()
        if entry.is_file() and entry.name.endswith(suffix) and not entry.name.startswith((".", "_"))
    )


def dataset_root(explicit: Path | None = None) -> Path | None:
    """Return the folder of the user's raw data sets, which npusim does not ship; None where none is named.

    `explicit` (``--data``) takes precedence over the variable ``NPUSIM_DATA``. A `FileError` says that the
    named folder does not exist: nothing is downloaded instead.
    """
    named = os.environ.get(DATA_VARIABLE, "")
    if explicit is None and not named:
        return None
    origin = f"the environment variable {DATA_VARIABLE}" if explicit is None else "`--data`"
    folder = Path(named if explicit is None else explicit).expanduser()
    if not folder.is_dir():
        raise FileError(str(folder), f"not a folder, though {origin} names it")
    return folder


def cache_dir(*parts: str) -> Path:
    """Return a writable folder for cached data, created where it is missing.

    The variable ``NPUSIM_CACHE`` decides, else the platform's place for caches (``~/.cache/npusim`` on
    Linux). Where the home cannot be written to, as in many containers, it is this user's folder in the
    temporary folder. A `FileError` says that others can write to ``NPUSIM_CACHE``, or nobody can: compiled
    code is loaded from there.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        folder = Path(named).expanduser().joinpath(*parts)
        foreign = _foreign_folder(folder)
        if foreign is not None:
            problem = f"others can write to it ({foreign}), though {CACHE_VARIABLE} names it as the cache"
            raise FileError(named, problem, "name a folder of your own: code is loaded from there")
        if not _make_writable(folder):
            raise FileError(named, f"cannot be written to, though {CACHE_VARIABLE} names it as the cache")
        return folder
    import platformdirs  # only here, so that finding a shipped file costs no import

    folder = Path(platformdirs.user_cache_dir("npusim", appauthor=False)).joinpath(*parts)
    if _foreign_folder(folder) is not None or not _make_writable(folder):
        folder = _private_temporary_root().joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _foreign_folder(folder: Path) -> Path | None:
    """Return the parent of `folder`, or itself, that others than this user can change, if there is one.

    Folders of root and of this user are safe where nobody else can write to them, or can but not touch what
    others put there (the sticky bit of `/tmp`).
    """
    if not hasattr(os, "getuid"):
        return None
    user = os.getuid()
    for path in {folder.absolute(), folder.resolve()}:
        for parent in (path, *path.parents):
            try:
                status = parent.stat()
            except (OSError, ValueError):
                continue  # it is made below, by this user
            own_group = status.st_gid == os.getgid() == user  # many systems give each user such a group
            writable = stat.S_IWOTH | (0 if own_group else stat.S_IWGRP)
            shared = status.st_mode & writable and not status.st_mode & stat.S_ISVTX
            if status.st_uid not in (0, user) or shared:
                return parent
    return None


def _make_writable(folder: Path) -> bool:
    """Create `folder`, for this user alone, and return whether a file can be written in it."""
    try:
        for parent in (*reversed(folder.parents), folder):
            if not parent.exists():
                parent.mkdir(mode=0o700, exist_ok=True)
        # Permission bits do not show a read-only mount, so try it.
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def _private_temporary_root() -> Path:
    """Return this user's cache in the temporary folder, or a fresh folder if that is another's.

    Compiled kernels are loaded from here, so a folder another user can write to would run that user's code.
    """
    user = os.getuid() if hasattr(os, "getuid") else None
    root = Path(tempfile.gettempdir()) / ("npusim" if user is None else f"npusim-{user}")
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        status = root.lstat()
        is_private = user is None or (status.st_uid == user and not status.st_mode & 0o022)
        if is_private and not root.is_symlink() and _make_writable(root):
            return root
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="npusim-"))
