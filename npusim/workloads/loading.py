"""From the name of a workload to its operator graph.

The front desk: a name, an order slip (YAML) or a finished model (IR, ONNX) may be handed in, and a graph
comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from npusim.config import Section, load_model, validate_data
from npusim.config.overrides import Override, Settings, as_overrides
from npusim.errors import ConfigError, UnknownNameError
from npusim.graph import Editor, Graph, GraphStructure
from npusim.locate import resource, resource_names
from npusim.ops import DType
from npusim.workloads.gat import build_gat
from npusim.workloads.gcn import build_gcn
from npusim.workloads.sage import build_sage
from npusim.workloads.spec import WorkloadSpec
from npusim.workloads.statistics import load_statistics

__all__ = ["BUILDERS", "build", "load_spec", "load_workload", "workload_names"]

BUILDERS: Mapping[str, Callable[[WorkloadSpec, GraphStructure], Graph]] = {
    "gcn": build_gcn,
    "gat": build_gat,
    "sage-mean": build_sage,
    "sage-max": build_sage,
}
"""Who builds which model."""

_YAML = (".yaml", ".yml")
_MODELS = (".xml", ".onnx")
_NOT_WORKLOADS = {"stacks"}


class ImportSettings(Section):
    """What can be set for a model that comes from a file."""

    precision: Literal["fp16", "bf16", "fp32"] = "fp16"
    """Format in which wider floating-point tensors are held: NPU and GPU run an fp32 file in fp16."""

    @classmethod
    def expand_override(cls, override: Override, base: object) -> Sequence[Override]:
        """Take `workload.precision`, as the command line writes it, for `precision`."""
        within = (
            override.path[1:] if override.path[0] == "workload" and len(override.path) > 1 else override.path
        )
        return [override.at(within, override.value)]

    @classmethod
    def short_path(cls, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path as the command line writes it."""
        return ("workload", *path)


def workload_names() -> list[str]:
    """Names of the workloads that npusim ships."""
    return [name for name in resource_names("workloads", ".yaml") if name not in _NOT_WORKLOADS]


def build(spec: WorkloadSpec, structure: GraphStructure, name: str | None = None) -> Graph:
    """Return the operator graph of a network on a data graph.

    Parameters
    ----------
    spec : WorkloadSpec
        The network and its form.
    structure : GraphStructure
        Statistics of the data graph.
    name : str, optional
        Name of the graph; default "model-dataset".

    Returns
    -------
    Graph
        The baseline, before any technique.
    """
    graph = BUILDERS[spec.model](spec, structure)
    if name is not None and name != graph.name:
        editor = Editor.of(graph)
        editor.name = name
        graph = editor.finish()
    return graph


def load_spec(name: str | Path, overrides: Settings = ()) -> WorkloadSpec:
    """Read the specification of a workload by its name or the path of its YAML file."""
    return load_model(_yaml_of(str(name)), WorkloadSpec, overrides)


def load_workload(
    name: str | Path, overrides: Settings = (), shapes: Mapping[str, Sequence[int]] | None = None
) -> Graph:
    """Return the operator graph of a workload.

    Parameters
    ----------
    name : str or Path
        A shipped name (`workload_names`), a workload YAML, an OpenVINO IR (`.xml`) or an ONNX file.
    overrides : settings, optional
        Settings of the specification, such as "workload.hidden=128"; of an imported model, its precision.
    shapes : mapping of str to sequence of int, optional
        Fixed shapes for the inputs of an imported model that leaves them open.

    Returns
    -------
    Graph
        The graph before any technique.

    Raises
    ------
    UnknownNameError
        When there is no such workload.
    ConfigError
        When the specification, or a setting, says something impossible.
    NpusimError
        When a file cannot be read.

    Examples
    --------
    >>> load_workload("gcn-cora").structure.nodes
    2708
    """
    text = str(name)
    settings = as_overrides(overrides)
    if text.endswith(_MODELS):
        from npusim.frontends.openvino_ir import import_model  # openvino is needed for model files only

        precision = DType(validate_data({}, ImportSettings, settings).precision)
        return import_model(text, shapes, precision=precision)
    if shapes:
        raise ConfigError(
            f"shapes for {', '.join(shapes)}", file="--shape", allowed="only for a model file (.xml, .onnx)"
        )
    path = _yaml_of(text)
    spec = load_model(path, WorkloadSpec, settings)
    return build(spec, load_statistics(spec.dataset, path.parent), path.stem)


def _yaml_of(name: str) -> Path:
    """Return the YAML file of a workload."""
    if name.endswith(_YAML):
        return Path(name).expanduser()
    if name not in workload_names():
        raise UnknownNameError(
            "workload", name, workload_names(), "or the path of a .yaml, .xml or .onnx file"
        )
    return resource("workloads", f"{name}.yaml")
