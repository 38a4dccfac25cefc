"""How numba keeps compiled code on disk: behind a checksum, tolerant of damage and of a full disk.

Imported when something is compiled or loaded: numba takes a fifth of the time of a short command.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)
from numba.core.runtime import rtsys

from npusim.cost.compilation_notice import announce

_DIGEST = 32
"""Bytes of the checksum that opens a file."""


class _CheckedFile(IndexDataCacheFile):
    """numba's files of one function, each behind its checksum: what is damaged is compiled anew."""

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(_checksum(filepath, content.getvalue()) + content.getvalue())

    def _load_index(self) -> dict[Any, str]:
        content = io.BytesIO(_content(self._index_path))
        if not content.getvalue() or pickle.load(content) != self._version:
            return {}
        stamp, overloads = pickle.load(content)
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        content = _content(self._data_path(name))
        if not content:
            raise OSError  # numba compiles anew
        return pickle.loads(content)


def _checksum(path: str, content: bytes) -> bytes:
    return hashlib.blake2b(os.path.basename(path).encode() + b"\0" + content, digest_size=_DIGEST).digest()


def _content(path: str) -> bytes:
    """Return what a file holds behind its checksum; nothing where it is missing, damaged or another's."""
    with suppress(OSError):
        status = os.stat(path)
        is_own = not hasattr(os, "getuid") or status.st_uid in (0, os.getuid())
        if stat.S_ISREG(status.st_mode) and is_own and not status.st_mode & stat.S_IWOTH:
            data = Path(path).read_bytes()
            if data[:_DIGEST] == _checksum(path, data[_DIGEST:]):
                return data[_DIGEST:]
    return b""


class _Locator(_CacheLocator):
    """One place for all installations of the same sources: the folder is that of their fingerprint."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._path = str(Path(numba.config.CACHE_DIR, function.__module__.rpartition(".")[0] or "main"))
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., Any], source: str) -> _Locator:
        """Return where code of a function is kept."""
        return cls(function)

    def get_cache_path(self) -> str:
        """Return the folder: one for each package."""
        return self._path

    def get_source_stamp(self) -> None:
        """Tell nothing: the fingerprint is of the sources' content."""

    def get_disambiguator(self) -> str:
        """Tell functions of one name in one file apart."""
        return str(self._line)


class _Impl(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Cache(FunctionCache):
    """numba's cache of one function that tolerates damage and a full disk, and starts sooner."""

    _impl_class = _Impl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _CheckedFile(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load compiled code without the tables of a compiler that may never be needed.

        numba first imports all that it could compile with, linear algebra of scipy included, which takes a
        third of a fresh process's time. Finished code needs no more than the runtime's symbols; compiling
        imports the rest.
        """
        rtsys.initialize(target_context)
        found = None
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is None:
            announce()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code where that is possible."""
        with suppress(OSError):
            super().save_overload(sig, data)


def dispatcher_of(function: Callable[..., Any], folder: str | None, options: dict[str, Any]) -> Any:
    """Return what numba calls a dispatcher: compiles a function for the types of each call, or loads it."""
    # Nobody calls a kernel from C.
    made = numba.njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    if options.get("parallel"):
        function.__globals__["prange"] = numba.prange
    if folder is not None:
        # numba fixes a function's cache folder when its cache is made; other users of numba in this
        # process keep theirs.
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
        try:
            made._cache = _Cache(function)
        finally:
            numba.config.CACHE_DIR = before
    return made
