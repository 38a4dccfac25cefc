"""Lets numba lower a kernel that other kernels call without compiling it by itself.

numba compiles each function to machine code together with all that it calls, so a function below ten others
is optimised eleven times, and ten results never run. Here only what Python calls is optimised; its
callees are lowered once and become part of it. Without this, compiling takes at least 1.6 times as long
(docs/performance.md). npusim derives from no other classes of numba; the version of numba is bounded.

In symbols, a hash stands for the type of a named tuple: the names of its fields, in every symbol, were three
quarters of a kernel's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from llvmlite.binding import Linkage, parse_assembly
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.types import containers


def _symbol(tuple_type: Any) -> tuple[str, tuple[str]]:
    """Return how symbols name a type of named tuples, as numba does it for records."""
    return tuple_type.instance_class.__name__, (hashlib.sha256(tuple_type.name.encode()).hexdigest()[:16],)


for each in (containers.NamedTuple, containers.NamedUniTuple):
    each.mangling_args = property(_symbol)


def generate_for(level: str) -> None:
    """Have numba generate code for a level of processors, unless it generates code already.

    numba reads its configuration when it makes the code generator, and again for the key of cached code.
    """
    before = config.CPU_NAME, config.CPU_FEATURES
    config.CPU_NAME, config.CPU_FEATURES = level, ""
    try:
        generator = cpu_target.target_context.codegen()
    finally:
        config.CPU_NAME, config.CPU_FEATURES = before
    if not generator.magic_tuple()[2]:  # no single features: made here
        generator._get_host_cpu_name = lambda: level


class _InlinedCode(JITCodeLibrary):
    """Code of a kernel and its callees, not optimised and not run."""

    def finalize(self) -> None:
        """Link the code, so that it can become part of its callers."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"  # several callers of one caller bring the same code
        self._shared_module = self._final_module
        self._finalized = True


class _StandaloneCode(JITCodeLibrary):
    """Code of a kernel that Python calls.

    No caller links it, so its file needs no LLVM IR, which takes six times the memory of the machine code.
    """

    def serialize_using_object_code(self) -> Any:
        """Return the machine code with a module that defines the same symbols and holds nothing."""
        name, kind, (code, _) = super().serialize_using_object_code()
        module = self._get_module_for_linking()
        symbols = (
            symbol.name
            for symbol in (*module.functions, *module.global_variables)
            if not symbol.is_declaration and symbol.linkage not in (Linkage.internal, Linkage.private)
        )
        text = "".join(f'@"{symbol}" = global i8 0\n' for symbol in symbols)
        return name, kind, (code, parse_assembly(text).as_bitcode())


class Standalone(Compiler):
    """numba's compiler, for kernels that no other kernel links."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, names: Any
    ):
        code = _StandaloneCode(target.codegen(), "standalone")
        code.enable_object_caching()
        super().__init__(typing, target, code, args, result, flags, names)


class _Lowering(Compiler):
    """numba's compiler, stopped before machine code."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, names: Any
    ):
        flags.no_compile = flags.no_cpython_wrapper = True
        code = _InlinedCode(target.codegen(), "inlined")
        super().__init__(typing, target, code, args, result, flags, names)


class _InlinedDispatcher(CPUDispatcher):
    """A kernel as compiled kernels see it; Python cannot call it."""

    def add_overload(self, compiled: Any) -> None:
        """Register code for some types of arguments with the compiler of callers."""
        key = object()
        self.targetctx.insert_user_function(key, compiled.fndesc, [compiled.library])
        self.overloads[tuple(compiled.signature.args)] = compiled._replace(entry_point=key)


def inlined_dispatcher_of(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return a function as compiled kernels see it.

    Parameters
    ----------
    options : dict
        Options of numba's `njit`.

    Returns
    -------
    Dispatcher
        Compiles the function for the types of each call. Keep a reference while callers may be compiled.
    """
    return _InlinedDispatcher(
        function, targetoptions={"nopython": True, "boundscheck": None, **options}, pipeline_class=_Lowering
    )
