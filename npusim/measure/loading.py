"""From what a row names to a model that OpenVINO compiles."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.errors import ModelFileError, NpusimError
from npusim.measure.document import ModelFile, ModelRef, Workload
from npusim.measure.inputs import graph_tensors, input_tensors

if TYPE_CHECKING:
    from npusim.measure.suites import Item

__all__ = ["called_by_name", "footprint_bytes", "model_of", "telling", "without_folders"]

_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?(?:~|\.{1,2})?[/\\](?:[^\s'\"`:;,/\\]+[/\\])+")
_YAML = (".yaml", ".yml")
_PLACES = ("Exception from", "Check ", "src/", "FrontEnd API failed")


def model_of(core: Any, ref: ModelRef, precision: str, files: Mapping[str, Path]) -> tuple[Any, list[Any]]:
    """Return the model that a row names, and values for its inputs.

    Parameters
    ----------
    core : openvino.Core
    ref : ModelRef
        What it names.
    precision : str
        Format of floating point that the device computes in; a model from a file keeps its own and leaves it
        to the device.
    files : mapping of str to Path
        Where model files lie, by their name.

    Returns
    -------
    tuple of openvino.Model and list of openvino.Tensor
        With fixed shapes, and a value for each input.

    Raises
    ------
    NpusimError
        Where it cannot be built or read.
    """
    if isinstance(ref, ModelFile):
        model = _from_file(core, ref.name, files)
        return model, input_tensors(model)
    from npusim.frontends.openvino_write import model_of_graph
    from npusim.measure.models import graph_of

    graph = graph_of(ref, precision, files)
    model = model_of_graph(graph)
    return model, graph_tensors(graph, model)


def _from_file(core: Any, name: str, files: Mapping[str, Path]) -> Any:
    if name not in files:
        raise ModelFileError(name, "is not at hand", "name the file itself")
    try:
        model = core.read_model(str(files[name]))
    except RuntimeError as error:
        raise ModelFileError(name, f"cannot be read as a model: {telling(error, files.values())}") from None
    if model.is_dynamic():
        open_shapes = ", ".join(f"{port.get_any_name()} {port.get_partial_shape()}" for port in model.inputs)
        raise ModelFileError(
            name,
            f"has dynamic shapes: {open_shapes}",
            "save it with fixed ones (openvino.Model.reshape, openvino.save_model)",
        )
    return model


def called_by_name(items: Sequence[Item], files: Mapping[str, Path]) -> tuple[list[Item], dict[str, Path]]:
    """Return rows that call workload files by their names alone, and where those lie.

    Parameters
    ----------
    items : sequence of Item
        Their workloads may be paths of YAML files.
    files : mapping of str to Path
        Files that are known already.

    Raises
    ------
    NpusimError
        For two files of one name.
    """
    found = dict(files)
    renamed = []
    for item in items:
        named = item.model.workload if isinstance(item.model, Workload) else ""
        path = Path(named).expanduser()
        if path.suffix in _YAML and named not in found:
            if found.setdefault(path.name, path) != path:
                raise NpusimError(
                    f"two different files are called {path.name}; rename one: rows tell no folders"
                )
            model = item.model.model_copy(update={"workload": path.name})
            item = replace(item, id=item.id.replace(named, path.name), model=model)
        renamed.append(item)
    return renamed, found


def footprint_bytes(model: Any) -> int:
    """Return about how much memory a model takes while it runs: all its tensors, constants twice (B).

    A compiler lays constants out anew; what it reuses of the other tensors is not counted on.
    """
    total = 0
    for node in model.get_ops():
        share = 2 if node.get_type_name() == "Constant" else 1
        for port in node.outputs():
            if port.get_partial_shape().is_static:
                width = max(1, port.get_element_type().bitwidth // 8)
                total += share * math.prod(map(int, port.get_shape())) * width
    return total


def telling(error: BaseException, files: Iterable[Path] = ()) -> str:
    r"""Return the last line of an error that says something, without folders: they tell whose machine it is.

    Parameters
    ----------
    error : exception
    files : iterable of Path, optional
        Files that it may speak of.

    Examples
    --------
    >>> telling(RuntimeError("Exception from src/a.cpp:3:\nCannot open /home/ann/models/a.bin here"))
    'Cannot open a.bin here'
    """
    lines = [line.strip() for line in str(error).splitlines()]
    saying = [line for line in lines if line and not line.startswith(_PLACES)]
    text = saying[-1] if saying else str(error).strip() or type(error).__name__
    for path in files:  # by name first: the general rule stops at a blank
        for folder in (path.parent, path.parent.resolve()):
            text = text.replace(f"{folder}{os.sep}", "")
    return without_folders(text)[:300]


def without_folders(text: str) -> str:
    """Return a text in which files are called by their names alone."""
    return _FOLDERS.sub("", text)
