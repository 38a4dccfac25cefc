"""Import of an OpenVINO IR or ONNX file as an operator graph."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from npusim.errors import DynamicShapeError, FileError, ModelFileError, ShapeError, UnknownNameError
from npusim.frontends.translation import translate
from npusim.graph import Graph
from npusim.ops import DType, Role

__all__ = ["SUFFIXES", "graph_of_model", "import_model", "openvino", "unreported"]

_NO_REPORTS = "TF_BUILD"
"""Set where programs are built and tested; OpenVINO's telemetry is silent there."""
_READERS = {".xml": "ir", ".onnx": "onnx"}
SUFFIXES = tuple(_READERS)
"""Endings of the files that `import_model` reads."""


@contextmanager
def unreported() -> Iterator[None]:
    """Keep OpenVINO from reporting imports and conversions to its maker, by a variable that it looks at.

    A simulator tells nobody what it is used for. Besides, reports are sent by processes that threads fork,
    which numba's own threads may not survive.
    """
    before = os.environ.get(_NO_REPORTS)
    os.environ[_NO_REPORTS] = "npusim"
    try:
        yield
    finally:
        os.environ.pop(_NO_REPORTS)
        if before is not None:
            os.environ[_NO_REPORTS] = before


def openvino(purpose: str = "model files are read with it") -> Any:
    """Return the module openvino, or say how to install it.

    Raises
    ------
    FileError
        Where it is not installed.
    """
    try:
        with unreported():
            import openvino as module
    except ImportError:
        raise FileError(
            "openvino", f"is not installed, and {purpose}", 'install it: pip install "npusim[openvino]"'
        ) from None
    return module


def import_model(
    path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    roles: Mapping[str, Role] | None = None,
    precision: DType | None = DType.FP16,
) -> Graph:
    """Read a model file.

    Parameters
    ----------
    path : str or Path
        An OpenVINO IR (`.xml`, with its `.bin` beside it) or an ONNX file.
    shapes : mapping of str to sequence of int, optional
        Fixed shapes for inputs, by name; needed where the model leaves a dimension open.
    roles : mapping of str to Role, optional
        What inputs mean, by name, where their name does not say it (x, edge_index, adj, norm, mask ... are
        known).
    precision : DType, optional
        Format in which floating-point tensors wider than it are held: NPU and GPU run an fp32 file in fp16.
        None keeps the file's formats.

    Returns
    -------
    Graph
        One operator for each of the file's, but for constants (tensors), shape arithmetic and other constant
        subgraphs (folded), decompression Converts (folded) and operators that change nothing.

    Raises
    ------
    ModelFileError
        When the file is missing, empty, truncated or no model.
    DynamicShapeError
        When an input has no fixed shape.
    ShapeError
        When a tensor inside has no fixed shape although the inputs have, or `shapes` does not fit.
    UnknownNameError
        When `shapes` or `roles` name an input that the model does not have.
    """
    path = Path(path)
    _check_file(path)
    openvino()
    from openvino.frontend import FrontEndManager

    # The reader of the format is asked for by name: Core.read_model would try every reader on a damaged file,
    # and some of them write to standard error by themselves.
    reader = FrontEndManager().load_by_framework(_READERS[path.suffix])
    try:
        model = reader.convert(reader.load(str(path)))
    except Exception as error:  # the readers raise exceptions of their own, without a common base
        reason = _reason(error)
        raise ModelFileError(str(path), f"cannot be read as a model: {reason}", _remedy(path)) from None
    _fix_shapes(model, path.stem, shapes or {}, roles or {})
    optimise(model)
    return translate(model, path.stem, roles or {}, precision)


def graph_of_model(
    model: Any,
    name: str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    roles: Mapping[str, Role] | None = None,
    precision: DType | None = DType.FP16,
) -> Graph:
    """Translate an `openvino.Model` in memory as it is; parameters and errors as for `import_model`."""
    _fix_shapes(model, name, shapes or {}, roles or {})
    return translate(model, name, roles or {}, precision)


def _fix_shapes(
    model: Any, name: str, shapes: Mapping[str, Sequence[int]], roles: Mapping[str, Role]
) -> None:
    """Give inputs their shapes, and refuse a model that has names or open dimensions that nobody knows."""
    known = {input_name(port): port for port in model.inputs}
    for given in (*shapes, *roles):
        if given not in known:
            raise UnknownNameError("input", given, known)
    if shapes:
        try:
            model.reshape({known[key]: list(shape) for key, shape in shapes.items()})
        except RuntimeError as error:
            raise ShapeError(f"{name}: the model does not take these shapes: {_reason(error)}") from None
    dynamic = {
        key: str(port.get_partial_shape())
        for key, port in known.items()
        if port.get_partial_shape().is_dynamic
    }
    if dynamic:
        raise DynamicShapeError(dynamic)


def optimise(model: Any) -> None:
    """Run OpenVINO's common optimisations on a model in place, which every plugin runs before its own.

    They fold batch normalisation, division by constants and identities, and join the parts of GELU, layer
    normalisation and their kin, so that an ONNX file and the IR that OpenVINO makes of it give one graph.
    """
    from openvino._offline_transformations import apply_moc_transformations

    apply_moc_transformations(model, cf=False, smart_reshape=False)


def input_name(port: Any) -> str:
    """Name of a model's input: its tensor name, or its node's where the file gives none."""
    return str(port.get_any_name()) if port.get_names() else str(port.get_node().get_friendly_name())


def _check_file(path: Path) -> None:
    """Refuse early what OpenVINO reports badly: no file, no content, an IR without its weights."""
    if path.suffix not in SUFFIXES:
        raise ModelFileError(
            str(path), f"is not one of {', '.join(SUFFIXES)}", "export the model as OpenVINO IR or ONNX"
        )
    if not path.is_file():
        raise ModelFileError(
            str(path), "is a directory" if path.is_dir() else "does not exist", "check the path"
        )
    if path.stat().st_size == 0:
        raise ModelFileError(str(path), "is empty", _remedy(path))
    weights = path.with_suffix(".bin")
    if path.suffix == ".xml" and not weights.is_file() and b'type="Const"' in path.read_bytes():
        raise ModelFileError(
            str(path), f"its weights {weights.name} are missing", "put the .bin file beside the .xml"
        )


def _remedy(path: Path) -> str:
    pair = " with its .bin file" if path.suffix == ".xml" else ""
    return f"export or copy it again{pair}"


def _reason(error: Exception) -> str:
    """Return the last informative line of OpenVINO's message; the first ones are source places."""
    lines = [line.strip() for line in str(error).splitlines()]
    places = ("Exception from", "Check ", "src/", "FrontEnd API failed")
    telling = [line for line in lines if line and not line.startswith(places)]
    return (telling[-1] if telling else str(error).strip())[:300]
