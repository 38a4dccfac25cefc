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
import math
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, cached_property, partial, update_wrapper
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from npusim.cost.plain import (
    Choice,
    Duration,
    Ledger,
    is_compiling_allowed,
    is_plain,
    plain_kernels,
    run_in_lists,
)
from npusim.cost.threads import start_threads
from npusim.locate import cache_dir

_Function = TypeVar("_Function", bound=Callable[..., Any])


@cache
def fingerprint(beside: Path | None = None) -> str:
    """Return the fingerprint of everything that compiled code depends on.

    Parameters
    ----------
    beside : Path, optional
        Folder of further sources: of kernels that stand elsewhere.

    Returns
    -------
    str
        16 hexadecimal digits over the sources of this package, numba's version, Python's and the
        processor's name.
    """
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, *([beside] if beside is not None else ())):
        for source in sorted(folder.rglob("*.py")):
            name = source.relative_to(folder).as_posix()
            digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update("|".join((version("numba"), platform.python_version(), *_processor())).encode())
    return digest.hexdigest()[:16]


def _processor() -> tuple[str, str]:
    """Return the processor's kind and name; numba itself looks at what it can do."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        return platform.machine(), next((line for line in file if line.startswith("model name")), "")
    return platform.machine(), platform.processor()


@cache
def _folder(source: str = __file__) -> str | None:
    """Return where compiled code of a source file is kept."""
    home, beside = Path(__file__).parent, Path(source).parent
    try:
        return str(cache_dir("kernels", fingerprint(None if beside.is_relative_to(home) else beside)))
    except OSError:
        return None  # nowhere to write: compile again in each process


@cache
def _ledger() -> Ledger:
    folder = _folder()
    return Ledger(None if folder is None else Path(folder, "plain"))


class Kernel:
    """A function that numba compiles, run as plain Python as long as that takes less.

    Compiled functions that call it see numba's dispatcher in it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        duration_ms: Duration | None,
        in_lists: bool = False,
        **options: Any,
    ) -> None:
        update_wrapper(self, function)
        self.py_func, self._in_lists = function, in_lists
        self._duration_ms, self._options = duration_ms, options
        self._is_compiled = False
        self.is_long = False
        """Whether it is compiled even where what calls it runs as plain Python."""

    @cached_property
    def _choice(self) -> Choice:
        function = self.py_func
        folder = _folder(function.__code__.co_filename)
        module = Path(function.__code__.co_filename).stem
        return Choice(self._duration_ms, _ledger(), folder, f"{module}.{function.__qualname__}-")

    @cached_property
    def dispatcher(self) -> Any:
        """What numba compiles and loads it with."""
        from npusim.cost.compiler import dispatcher_of

        if self._options.get("parallel"):
            start_threads()
        return dispatcher_of(self.py_func, _folder(self.py_func.__code__.co_filename), self._options)

    @cached_property
    def _inlined(self) -> Any:
        from npusim.cost.inlined import inlined_dispatcher_of

        return inlined_dispatcher_of(self.py_func, self._options)

    @property
    def _numba_type_(self) -> Any:
        return self._inlined._numba_type_

    @property
    def stats(self) -> Any:
        """Hits and misses of the cache on disk."""
        return self.dispatcher.stats

    def __call__(self, *arguments: Any) -> Any:
        """Run the function."""
        if is_plain() and not (self.is_long and is_compiling_allowed()):
            return self.plain(*arguments)
        if not self._is_compiled and not self.is_long:
            if self._choice.is_plain(arguments):
                with plain_kernels():
                    return self.plain(*arguments)
            self._is_compiled = True
        return self.dispatcher(*arguments)

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """The function as plain Python, which calls other kernels as such without coming by here."""
        function = self.py_func
        names = _plain_names(function.__module__)
        plain = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, function.__closure__
        )
        return partial(run_in_lists, plain) if self._in_lists else plain


_PLAIN: dict[str, dict[str, Any]] = {}


def _plain_names(module: str) -> dict[str, Any]:
    """Return what a module's names mean where kernels run as plain Python."""
    names = _PLAIN.get(module)
    if names is None:
        names = _PLAIN[module] = dict(vars(sys.modules[module]))
        for name, one in list(names.items()):
            if isinstance(one, Kernel) and not one.is_long:
                names[name] = one.plain
    return names


def _compile(function: _Function, duration_ms: Duration | None, **options: Any) -> _Function:
    return cast(_Function, Kernel(function, duration_ms, **options))


def compiled(function: _Function) -> _Function:
    """Compile a scalar equation or the loop over them; its `py_func` stays callable as plain Python.

    It makes no array and returns none, so references to those that it is given are not counted: that took a
    quarter of a sweep. numba refuses to make an array in it.
    """
    return _compile(function, None, _nrt=False)


def compiled_making_arrays(function: _Function) -> _Function:
    """Compile a function that makes arrays, or calls another that returns some; as `compiled` otherwise."""
    return _compile(function, None, _nrt=True)


def compiled_always(function: _Function) -> _Function:
    """Compile a search that takes too long as plain Python, also where an equation beside it runs so."""
    made: Any = Kernel(function, None, _nrt=True)
    made.is_long = True
    return cast(_Function, made)


def compiled_or_plain(duration_ms: Duration, in_lists: bool = False) -> Callable[[_Function], _Function]:
    """Compile a loop whose calls may also run as plain Python, as long as they take so many ms at most.

    Parameters
    ----------
    duration_ms : callable
        Tells from the arguments of a call, roughly, what it takes as plain Python (ms).
    in_lists : bool
        Whether plain Python gets arrays of numbers as lists, which it reads faster.
    """

    def declare(function: _Function) -> _Function:
        return _compile(function, duration_ms, in_lists=in_lists, _nrt=True)

    return declare


def compiled_parallel(function: _Function) -> _Function:
    """Compile a loop that runs over all cores (`numba.prange`); as plain Python it runs over a range."""
    return compiled_parallel_or_plain(lambda *_: math.inf)(function)


def compiled_parallel_or_plain(duration_ms: Duration) -> Callable[[_Function], _Function]:
    """Compile a loop over all cores whose calls may also run as plain Python, as `compiled_or_plain`."""

    def declare(function: _Function) -> _Function:
        function.__globals__.setdefault("prange", range)
        return _compile(function, duration_ms, parallel=True, nogil=True, _nrt=True)

    return declare
