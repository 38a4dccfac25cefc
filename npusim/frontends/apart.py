"""Graphs of foreign model files and modules, made in a child process under limits of memory and time.

OpenVINO's readers and torch's tracer run there: a file that makes them end their process, or take all memory
or time of the machine, is refused in one message. The answer is a pickle of which only npusim's own classes
are read.
"""

import io
import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from npusim.confined import confined
from npusim.errors import NpusimError, shown
from npusim.frontends.openvino_ir import (
    fix_shapes,
    import_model,
    openvino,
    optimise,
    refuse_missing_openvino,
)
from npusim.graph import Graph
from npusim.ops import DType, Role

_LEAST_BYTES = 4 << 30
"""Memory for a file however small, and for a module."""
_COPIES = 3
"""Memory for a file, in multiples of its own size with weights: the reader's, the model's, a conversion's."""
_LEAST_S, _BYTES_PER_S = 60.0, 20e6
"""Time for a file however small, and what is read of a large one in a second on a slow machine."""
_MODULE_S = 900.0
"""Time to run a user's Python file and to trace its module."""


def graph_of_file(
    path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    precision: DType | None = DType.FP16,
    roles: Mapping[str, Role] | None = None,
) -> Graph:
    """Read a model file in a child process.

    Parameters and errors are those of `npusim.frontends.openvino_ir.import_model`; an `NpusimError` also
    says that the reader died or exceeded its limits.
    """
    return _graph(str(Path(path).expanduser()), shapes or {}, precision, roles or {}, **_limits_of_file(path))


def try_model_file(path: Path, shapes: Mapping[str, Sequence[int]]) -> None:
    """Read a model file and fold its constants in a child process, and drop the result.

    A process that then reads the file itself is not the first to find out what it holds.

    Raises
    ------
    NpusimError
        Where the reader refuses the file, dies, or exceeds its limits.
    RuntimeError
        As OpenVINO raises it.
    """
    shapes = {name: list(shape) for name, shape in shapes.items()}
    confined("npusim.frontends.apart:fold_model_file", str(path), shapes, **_limits_of_file(path))


def fold_model_file(_: BinaryIO, path: str, shapes: dict[str, list[int]]) -> None:
    """Read a model file, fix its shapes and fold its constants."""
    try:
        model = openvino().Core().read_model(path)
        fix_shapes(model, Path(path).name, shapes, {})
        optimise(model)
    except RuntimeError as error:
        if "bad_alloc" in str(error):  # as readers report it
            raise MemoryError from None
        raise


def _limits_of_file(path: str | Path) -> dict[str, Any]:
    size = _bytes_of(Path(path).expanduser())
    return {
        "seconds": round(_LEAST_S + size / _BYTES_PER_S),
        "most_bytes": _most_bytes(_COPIES * size),
        "what": f"reading {shown(str(path))}",
        "remedy": "export it again, or a part of it",
    }


def graph_of_module(
    what: str, precision: DType | None = DType.FP16, roles: Mapping[str, Role] | None = None
) -> Graph:
    """Run a user's Python file, such as `model.py:net`, and trace its module, both in a child process.

    Errors are those of `npusim.frontends.pyg.module_at` and `from_pyg`; an `NpusimError` also says that the
    child died or exceeded its limits.
    """
    return _graph(
        what,
        {},
        precision,
        roles or {},
        seconds=_MODULE_S,
        most_bytes=_most_bytes(_memory() // 2),
        what=f"tracing {shown(what)}",
        remedy="trace a part of it, or hand the module over in Python: npusim.estimate(module, inputs=...)",
    )


def _graph(
    source: str,
    shapes: Mapping[str, Sequence[int]],
    precision: DType | None,
    roles: Mapping[str, Role],
    **limits: Any,
) -> Graph:
    refuse_missing_openvino()
    request = source, {name: list(shape) for name, shape in shapes.items()}, precision, dict(roles)
    written = confined("npusim.frontends.apart:write_graph", *request, **limits)
    answer = _OwnClasses(io.BytesIO(written)).load()
    if isinstance(answer, NpusimError):
        raise answer
    assert isinstance(answer, Graph)
    return answer


def write_graph(
    stream: BinaryIO, source: str, shapes: dict[str, list[int]], precision: str | None, roles: dict[str, str]
) -> None:
    """Write the graph of a model file, or of a module in a Python file, or why there is none."""
    from npusim.frontends.pyg import MODULE, from_pyg, module_at

    meant, held = {name: Role(role) for name, role in roles.items()}, DType(precision) if precision else None
    answer: Graph | NpusimError
    try:
        if MODULE.fullmatch(source):
            found = module_at(source)
            answer = from_pyg(found.module, found.inputs, found.name, meant, held)
        else:
            answer = import_model(source, shapes, meant, held)
    except NpusimError as error:
        if "bad_alloc" in str(error):  # as readers report it
            raise MemoryError from None
        answer = error
    pickle.dump(answer, stream)


class _OwnClasses(pickle.Unpickler):
    """Reads npusim's own classes alone, whatever became of the process that wrote them."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that a pickle names, or refuse it."""
        if (module, name) == ("functools", "partial"):
            return partial
        named = super().find_class(module, name) if module.startswith("npusim.") else None
        if isinstance(named, type) and named.__module__.startswith("npusim."):
            return named
        raise pickle.UnpicklingError(f"{module}.{name} is no class of npusim")


def _bytes_of(path: Path) -> int:
    """Return the size of a model file with the weights that may belong to it; 0 where it is none."""
    if not path.is_file():
        return 0
    weights = path.parent.iterdir() if path.suffix == ".onnx" else [path, path.with_suffix(".bin")]
    return sum(file.stat().st_size for file in weights if file.is_file())


def _most_bytes(wanted: int) -> int:
    return max(_LEAST_BYTES, min(_LEAST_BYTES + wanted, _memory()))


def _memory() -> int:
    """Return the memory of this machine in bytes."""
    import psutil

    return int(psutil.virtual_memory().total)
