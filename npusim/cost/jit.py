"""Compiles the cost model once per machine; cached on disk by a fingerprint of all sources.

numba keeps compiled code on disk, but looks only at the file a function stands in: change an equation that
another file calls and the old answer comes back. So the folder of compiled code carries a fingerprint of
every source of `npusim.cost`, of numba's version and of the processor: whatever changes, a new folder is
used, and an installation that cannot be written to does not matter because the folder lies in the user's
cache. Nobody else can write to it (`npusim.locate.cache_dir`), and each file opens with its checksum.
Few calls run the same functions as plain Python instead (`npusim.cost.plain`).
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import platform
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys

from npusim.cost.compilation_notice import announce
from npusim.cost.plain import Choice, Duration, Ledger, is_compiling_allowed, is_plain, plain_kernels
from npusim.locate import cache_dir

_Function = TypeVar("_Function", bound=Callable[..., Any])
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


class _Cache(FunctionCache):
    """numba's cache of one function that tolerates damage and a full disk, and starts sooner."""

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


@cache
def fingerprint() -> str:
    """Return the fingerprint of everything that compiled code depends on.

    Returns
    -------
    str
        16 hexadecimal digits over the sources of this package, numba's version, Python's and the
        processor's name.
    """
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.relative_to(folder).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    cpu = llvmlite.binding.get_host_cpu_name()
    digest.update("|".join((numba.__version__, platform.python_version(), platform.machine(), cpu)).encode())
    return digest.hexdigest()[:16]


@cache
def _folder() -> str | None:
    try:
        return str(cache_dir("kernels", fingerprint()))
    except OSError:
        return None  # nowhere to write: compile again in each process


@cache
def _ledger() -> Ledger:
    folder = _folder()
    return Ledger(None if folder is None else Path(folder, "plain"))


class Kernel(Dispatcher):
    """A function that numba compiles, run as plain Python as long as that takes less."""

    _choice: Choice | None
    """How calls are run; None as soon as they are compiled."""
    _is_long: bool
    """Whether it is compiled even where what calls it runs as plain Python."""

    def __call__(self, *arguments: Any) -> Any:
        """Run the function."""
        if is_plain() and not (self._is_long and is_compiling_allowed()):
            return self.py_func(*arguments)
        if self._choice is not None and not is_plain():
            if self._choice.is_plain(arguments):
                with plain_kernels():
                    return self.py_func(*arguments)
            self._choice = None
        return super().__call__(*arguments)


def _compile(function: _Function, duration_ms: Duration | None, **options: Any) -> _Function:
    # Nobody calls a kernel from C.
    made = numba.njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    folder, index = _folder(), None
    if folder is not None:
        # numba fixes a function's cache folder when its cache is made; other users of numba in this
        # process keep theirs.
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, folder
        try:
            made._cache = _Cache(function)
        finally:
            numba.config.CACHE_DIR = before
        index = Path(made._cache._cache_file._index_path)
    made.__class__ = Kernel
    made._choice = Choice(duration_ms, _ledger(), index)
    made._is_long = False
    result: _Function = made
    return result


def compiled(function: _Function) -> _Function:
    """Compile a scalar equation or the loop over them; its `py_func` stays callable as plain Python."""
    return _compile(function, None)


def compiled_always(function: _Function) -> _Function:
    """Compile a search that takes too long as plain Python, also where an equation beside it runs so."""
    made = _compile(function, lambda *_: math.inf)
    made._is_long = True  # type: ignore[attr-defined]
    return made


def compiled_or_plain(duration_ms: Duration) -> Callable[[_Function], _Function]:
    """Compile a loop whose calls may also run as plain Python, as long as they take so many ms at most.

    Parameters
    ----------
    duration_ms : callable
        Tells from the arguments of a call, roughly, what it takes as plain Python (ms).
    """
    return lambda function: _compile(function, duration_ms)


def compiled_parallel(function: _Function) -> _Function:
    """Compile a loop that runs over all cores (`numba.prange`)."""
    return _compile(function, lambda *_: math.inf, parallel=True, nogil=True)
