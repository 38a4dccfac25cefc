"""Kernels: functions that numba compiles once per machine, or that run as plain Python.

Each equation is one Python function. Compiling all that an estimate needs takes `COMPILING_MS`, running it as
Python a fraction of that. So calls run as plain Python until their predicted time exceeds a fixed limit per
kernel and process; the limit is lower where compiled code lies on disk. Both ways give the same numbers to
the last bit (`tests/test_plain_kernels.py`).

numba keeps compiled code by the source file of a function, and does not notice changes of other files. So
each kernel is compiled from a copy of its source in a folder of the user's cache. The folder's name is a
fingerprint of all sources of `npusim.cost`, of numba's version and of the processor. Installations of the
same sources share it, and none can load outdated code. Nobody else can write to it (`npusim.locate`).

Processors with the instructions of `x86-64-v3` share one compiled form. The package ships it in `SHIPPED`, an
archive per fingerprint (`scripts/ship_kernels.py`), so that a new installation need not compile.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial, update_wrapper
from glob import escape
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeVar, cast
from zipfile import ZipFile

import numpy as np

from npusim.compiling.notice import listeners
from npusim.compiling.records import with_attributes
from npusim.errors import FileError
from npusim.files import write_whole
from npusim.locate import cache_dir

_COST = Path(__file__).parents[1] / "cost"
SHIPPED = Path(__file__).parents[1] / "shipped_kernels"
_LEVEL = "x86-64-v3"
_LEVEL_FLAGS = {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
"""The level of processors and what Linux calls the instructions that it adds."""
VARIABLE = "NPUSIM_KERNELS"
"""Environment variable: `compiled` compiles at the first call, `plain` never compiles. `checked` compiles
code that raises an IndexError where an index is out of bounds, and runs on one core."""
_COMPILING_MS, _STARTING_MS, _LOADING_MS = 10_000.0, 250.0, 40.0
"""Plain Python time of a kernel before it is compiled; loaded, starting numba; loaded, numba running."""
_EQUATION_MS, _RECORDS = 0.1, 8
"""Time of an equation as plain Python; most records among its arguments."""

Duration = Callable[..., float]
"""Predicts the time of a call as plain Python from its arguments (ms)."""
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _is_checked() -> bool:
    return os.environ.get(VARIABLE) == "checked"


class _State(threading.local):
    is_plain = False


_state = _State()


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Context in which all kernels of this thread run as plain Python, where a debugger can follow them.

    Division by 0 gives infinity, as in compiled code.
    """
    was_plain, _state.is_plain = _state.is_plain, True
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _state.is_plain = was_plain


@cache
def fingerprint(folder: Path | None = None) -> str:
    """Return 16 hexadecimal digits over everything that compiled code depends on.

    Parameters
    ----------
    folder : Path, optional
        Folder of kernels outside `npusim.cost`.
    """
    digest = hashlib.sha256()
    for root in (Path(__file__).parent, _COST, *([folder] if folder is not None else ())):
        for source in sorted(root.rglob("*.py")):
            name = source.relative_to(root).as_posix()
            digest.update(name.encode() + b"\0" + source.read_bytes() + b"\0")
    system = (platform.system(), platform.machine(), _processor())
    parts = [version("numba"), sys.implementation.cache_tag or platform.python_version(), *system]
    parts += ["checked"] if _is_checked() else []
    digest.update("|".join(parts).encode())
    return digest.hexdigest()[:16]


@cache
def _processor() -> str:
    """Return the processor that kernels are compiled for: a common level where this one has it.

    Where the user names one, or other code in this process has numba generate code already, that stays.
    """
    chosen = [os.environ[name] for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES") if name in os.environ]
    if chosen:
        return " ".join(chosen)
    lines: dict[str, str] = {}
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            lines.setdefault(name.strip(), value.strip())
    registry = sys.modules.get("numba.core.registry")
    is_free = registry is None or "_toplevel_target_context" not in vars(registry.cpu_target)
    if is_free and set(lines.get("flags", "").split()) >= _LEVEL_FLAGS:
        return _LEVEL
    return lines.get("model name", platform.processor())


@cache
def _shared_source(source: str) -> Path | None:
    """Return the copy of a source file that numba compiles from; None where the cache is not writable."""
    home, path = _COST, Path(source)
    root = home if path.is_relative_to(home) else path.parent
    name = fingerprint(None if root == home else root)
    _unpack(SHIPPED / f"{name}.zip", cache_dir("kernels") / name)
    copy = cache_dir("kernels", name) / root.name / path.relative_to(root)
    try:
        if not copy.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            write_whole(copy, path.read_bytes())
    except (OSError, FileError):  # a full disk: compiled in each process
        return None
    return copy


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive, if there is a good one, into a new folder, whole or not at all."""
    if folder.exists() or not archive.is_file():
        return
    # A damaged archive and a missing codec raise errors of many kinds; kernels are compiled then.
    with suppress(Exception), TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as parts:
        with ZipFile(archive) as file:
            file.extractall(parts)
        Path(parts).rename(folder)  # fails where another process was faster


def _checksum(path: Path) -> bytes:
    return hashlib.blake2b(path.name.encode() + b"\0" + path.read_bytes()).hexdigest().encode()


class Kernel:
    """A function that numba compiles, and that runs as plain Python while that takes less time.

    Compiled functions that call it see numba's dispatcher in it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        duration_ms: Duration | None = None,
        in_lists: bool = False,
        **options: Any,
    ) -> None:
        update_wrapper(self, function)
        self.py_func, self._duration_ms, self._in_lists = function, duration_ms, in_lists
        self._options: dict[str, Any] = {
            "error_model": "numpy",
            "no_cfunc_wrapper": True,
            "_nrt": True,
        } | options
        if _is_checked():  # an exception would not leave threads of a loop
            self._options |= {"boundscheck": True, "parallel": False}
        self._is_compiled, self._plain_ms, self._overloads = False, 0.0, 0
        self.is_long = False
        """Whether it is compiled even where its caller runs as plain Python."""

    @cached_property
    def _source(self) -> Path | None:
        return _shared_source(self.py_func.__code__.co_filename)

    def _files(self) -> list[Path]:
        """Return numba's files of this kernel on disk."""
        if self._source is None:
            return []
        name = f"{self._source.stem}.{self.py_func.__qualname__}-{self.py_func.__code__.co_firstlineno}"
        return sorted(self._source.parent.glob(f"*/{escape(name)}.*.nb[ic]"))

    @cached_property
    def dispatcher(self) -> Any:
        """The function as compiled code, kept on disk."""
        numba = _numba()
        if self._options.get("parallel"):
            start_threads()
            self.py_func.__globals__["prange"] = numba.prange
        for path in self._files():
            record = path.with_suffix(path.suffix + ".sum")
            if record.is_file() and record.read_bytes() != _checksum(path):
                path.unlink(missing_ok=True)  # damaged: compiled again
        if not self._files():
            while listeners:
                listeners.pop()()
        if self._source is None:
            return numba.njit(**self._options)(self.py_func)
        code = self.py_func.__code__.replace(co_filename=str(self._source))
        from npusim.compiling.inlined import Standalone

        function = FunctionType(
            code, self.py_func.__globals__, self.py_func.__name__, self.py_func.__defaults__
        )
        update_wrapper(function, self.py_func)
        # numba fixes the folder of a function's code here, beside its source; others keep theirs.
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, ""
        try:
            return numba.njit(cache=True, pipeline_class=Standalone, **self._options)(function)
        finally:
            numba.config.CACHE_DIR = before

    @cached_property
    def callee(self) -> Any:
        """The function as compiled callers see it: part of their code."""
        from npusim.compiling.inlined import inlined_dispatcher_of

        return inlined_dispatcher_of(self.py_func, self._options)

    def __call__(self, *arguments: Any) -> Any:
        """Run the function."""
        if _state.is_plain and not (self.is_long and os.environ.get(VARIABLE) != "plain"):
            return self.plain(*arguments)
        if not self._is_compiled and not self.is_long:
            if self._runs_plain(arguments):
                with plain_kernels():
                    return self.plain(*arguments)
            self._is_compiled = True
        try:
            result = self.dispatcher(*arguments)
        except OSError:  # numba could not write the code, but has it in memory now
            result = self.dispatcher(*arguments)
        if len(self.dispatcher.overloads) > self._overloads:
            self._overloads = len(self.dispatcher.overloads)
            with suppress(OSError):
                for path in self._files():
                    path.with_suffix(path.suffix + ".sum").write_bytes(_checksum(path))
        return with_attributes(result)

    def _runs_plain(self, arguments: tuple[Any, ...]) -> bool:
        """Whether a call runs as plain Python; its predicted time is then added up."""
        wanted = os.environ.get(VARIABLE) or "auto"
        if wanted != "auto":
            return wanted == "plain"
        if self._duration_ms is not None:
            self._plain_ms += self._duration_ms(*arguments)
        elif any(map(_holds_array, arguments)):
            return False
        else:
            self._plain_ms += _EQUATION_MS
        return self._plain_ms <= self._limit_ms

    @property
    def _limit_ms(self) -> float:
        if not self._is_on_disk:
            return _COMPILING_MS
        return _LOADING_MS if "numba" in sys.modules else _STARTING_MS

    @cached_property
    def _is_on_disk(self) -> bool:
        return bool(self._files())

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """The function as plain Python, which calls the plain form of other kernels."""
        function = self.py_func
        names = _plain_names(function.__module__)
        plain = FunctionType(
            function.__code__, names, function.__name__, function.__defaults__, function.__closure__
        )
        return partial(_run_in_lists, plain) if self._in_lists else plain


def _holds_array(value: Any) -> bool:
    """Return whether a value holds arrays, not only numbers and a few records."""
    if isinstance(value, tuple):
        return any(map(_holds_array, value))
    return isinstance(value, np.ndarray) and (value.dtype.names is None or value.size > _RECORDS)


def _run_in_lists(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a kernel with lists for arrays and objects for records; copy back what it writes into them."""
    copies: list[tuple[Any, list[Any]]] = []
    result = function(*(_in_lists(value, copies) for value in arguments))
    for array, values in copies:
        if array.dtype.names is not None:
            values = [tuple(vars(row).values()) for row in values]
        if array.size:
            array[...] = values
    return result


def _in_lists(value: Any, copies: list[tuple[Any, list[Any]]]) -> Any:
    """Return an array, or a named tuple of arrays, as lists; add the pairs to `copies`."""
    if isinstance(value, tuple):
        return type(value)(*(_in_lists(part, copies) for part in value))
    if not isinstance(value, np.ndarray):
        return value
    values, names = value.tolist(), value.dtype.names
    if names is not None:
        values = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in values]
    copies.append((value, values))
    return values


_PLAIN: dict[str, dict[str, Any]] = {}


def _plain_names(module: str) -> dict[str, Any]:
    """Return the names of a module, with kernels as plain Python, also those of modules of the cost model."""
    names = _PLAIN.get(module)
    if names is None:
        names = _PLAIN[module] = dict(vars(sys.modules[module]))
        for name, value in list(names.items()):
            if isinstance(value, Kernel) and not value.is_long:
                names[name] = value.plain
            elif isinstance(value, ModuleType) and value.__name__.startswith("npusim.cost."):
                names[name] = ModuleType(name)  # Python calls functions of modules faster than of objects
                vars(names[name]).update(_plain_names(value.__name__))
    return names


@cache
def _numba() -> Any:
    """Return numba, which sees the dispatcher in a kernel; its import takes a fifth of a short command."""
    import numba
    from numba.extending import typeof_impl

    if _processor() == _LEVEL:
        from npusim.compiling.inlined import generate_for

        generate_for(_LEVEL)

    @typeof_impl.register(Kernel)
    def _(kernel: Kernel, context: Any) -> Any:
        return numba.typeof(kernel.callee)

    return numba


@cache
def start_threads() -> None:
    """Start the threads of parallel kernels so that idle ones sleep.

    OpenMP's would wait busily, which took half the processor time of a search. It reads the policy when it is
    loaded; other users of OpenMP keep theirs.
    """
    policy = "OMP_WAIT_POLICY"
    is_set = policy in os.environ
    os.environ.setdefault(policy, "PASSIVE")
    try:
        _numba().get_num_threads()
    finally:
        if not is_set:
            del os.environ[policy]


def thread_count() -> int:
    """Return the number of threads of parallel kernels."""
    start_threads()
    return int(_numba().get_num_threads())


def compiled(function: _Function) -> _Function:
    """Compile a scalar equation, or a loop over scalar equations.

    The function makes no array and returns none, so numba need not count references to arrays.
    """
    return cast(_Function, Kernel(function, _nrt=False))


def compiled_making_arrays(function: _Function) -> _Function:
    """Compile a function that creates arrays, or calls another that returns arrays."""
    return cast(_Function, Kernel(function))


def compiled_always(function: _Function) -> _Function:
    """Compile a function that is too slow as plain Python, even if its caller runs as plain Python."""
    kernel = Kernel(function)
    kernel.is_long = True
    return cast(_Function, kernel)


def compiled_or_plain(duration_ms: Duration, in_lists: bool = False) -> Callable[[_Function], _Function]:
    """Compile a loop whose short calls run as plain Python.

    Parameters
    ----------
    in_lists : bool
        Whether plain Python gets arrays of numbers as lists, which it reads faster.
    """

    def declare(function: _Function) -> _Function:
        return cast(_Function, Kernel(function, duration_ms, in_lists))

    return declare


def compiled_parallel_or_plain(duration_ms: Duration) -> Callable[[_Function], _Function]:
    """Compile a loop over all cores (`prange`) whose short calls run as plain Python."""

    def declare(function: _Function) -> _Function:
        function.__globals__.setdefault("prange", range)
        return cast(_Function, Kernel(function, duration_ms, parallel=True, nogil=True))

    return declare
