"""Workload kinds, and from the name of a workload, its file or a model file to the operator graph."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, RootModel

from npusim.config import validate_data
from npusim.config.overrides import Settings, as_overrides
from npusim.config.reading import read_yaml
from npusim.errors import ConfigError, UnknownNameError, nearest, shown
from npusim.files import OPEN_PIPES
from npusim.graph import Graph
from npusim.graph.editor import with_meta
from npusim.graph.formats import with_formats
from npusim.locate import resource, resource_names
from npusim.ops import DType, Role
from npusim.plugins import PluginError, Registry
from npusim.workloads.gnn.spec import GnnSpec
from npusim.workloads.spec import (
    WorkloadKind,
    WorkloadSettings,
    WorkloadSpec,
    published_variants,
    variant_file,
    variants,
)

DEFAULT_KIND = "gnn"
"""Kind of a file that names none."""

KINDS = Registry("npusim.workloads", "workload kind", WorkloadKind)

KINDS.announce("npusim.workloads.gnn:GNN", "npusim.workloads.cnn:CNN")
KINDS.announce("npusim.workloads.transformer:TRANSFORMER", "npusim.workloads.cnn.table:BLOCKS")


def kind_of(data: Any, file: str, line: int | None = None) -> WorkloadKind:
    """Return the kind that the data of a workload file names.

    Raises
    ------
    ConfigError
        When there is no such kind, or the model is of another.
    """
    keys: Mapping[str, Any] = data if isinstance(data, dict) else {}
    name, model = keys.get("kind", DEFAULT_KIND), keys.get("model")
    refused = partial(ConfigError, file=file, line=line, key="kind")
    if not isinstance(name, str) or name not in KINDS:
        raise refused(shown(name), allowed=", ".join(KINDS), suggestion=nearest(str(name), KINDS))
    if not _has_model(KINDS[name], model):
        owners = [kind.name for kind in KINDS.values() if _has_model(kind, model)]
        if owners:
            stated = f"kind `{name}`" if "kind" in keys else f"no kind, which is `{name}`"
            raise refused(f"{stated}, and model `{model}`", allowed=f"kind: {owners[0]}")
    return KINDS[name]


def _has_model(kind: WorkloadKind, model: object) -> bool:
    return model in get_args(kind.spec.model_fields["model"].annotation)


def workload_file() -> type[BaseModel]:
    """Return the model of a workload file of any kind, for its JSON schema."""
    specs: Any = reduce(or_, (kind.spec for kind in KINDS.values()))
    return RootModel[specs]


_YAML = (".yaml", ".yml")
_MODELS = (".xml", ".onnx")
_TABLES = (".csv", ".m")
"""Endings of networks that only other tools write; those in YAML are known by their content."""
_Spec = TypeVar("_Spec", bound=WorkloadSpec)
_MODULE = re.compile(r".+\.py:\w+")
_NOT_WORKLOADS = {"stacks"}


class ImportSettings(WorkloadSettings):
    """What can be set for a model that comes from a file."""

    precision: Literal["fp16", "bf16", "fp32"] = "fp16"
    """Format in which wider floating-point tensors are held: NPU and GPU run an fp32 file in fp16."""
    roles: str = ""
    """What inputs mean where it is not what is done with them: `links:edges,kind:features`."""
    chunks: Annotated[int, Field(ge=1, le=1024)] = 1
    """Parts that are compiled and launched one by one; a part takes less memory to compile."""


def import_settings(settings: Settings) -> tuple[DType, Mapping[str, Role], Callable[[Graph], Graph]]:
    """Return the format that an imported model is held in, roles of its inputs, and what adds the rest.

    Raises
    ------
    ConfigError
        Where a role is none of `Role`.
    """
    read, roles = validate_data({}, ImportSettings, settings), dict[str, Role]()
    for pair in filter(None, read.roles.split(",")):
        name, _, role = (part.strip() for part in pair.partition(":"))
        if not name or role not in [each for each in Role if each]:
            allowed = "NAME:ROLE with a role of " + ", ".join(each for each in Role if each)
            raise ConfigError(f"`{pair}`", file="--set workload.roles", allowed=allowed)
        roles[name] = Role(role)

    def finished(graph: Graph) -> Graph:
        graph = with_formats(graph, read.formats)
        return graph if read.chunks == 1 else with_meta(graph, chunks=read.chunks)

    return DType(_precision(read, read.precision)), roles, finished


def _precision(settings: WorkloadSettings, precision: str) -> str:
    """Return the precision to build in: of the activations, or 8 bits where narrow ones take their place."""
    allowed = get_args(type(settings).model_fields["precision"].annotation)
    built = "int8" if settings.formats.is_narrow else settings.activations
    if settings.activations is not None and not settings.formats.is_narrow and built not in allowed:
        raise ConfigError(f"`{built}`", file="--set workload.activations", allowed=", ".join(allowed))
    return built if built is not None and built in allowed else precision


def workload_names(kind: str | None = None) -> list[str]:
    """Names of the workloads that npusim and other packages ship, of one kind or of all."""
    theirs = (file.stem for one in KINDS.values() if one.folder for file in one.folder.glob("*.yaml"))
    names = [*_own_names(), *sorted(set(theirs).difference(_own_names()))]
    return names if kind is None else [name for name in names if load_spec(name).kind == kind]


def is_workload(name: str) -> bool:
    """Whether npusim or another package ships a workload; others are loaded for a name that is not ours."""
    return name in _own_names() or name in variants() or name in workload_names()


def workload_published_as(name: str) -> str | None:
    """Return the shipped workload that others publish figures of under a name; None where there is none.

    Upper case, underscores and hyphens make no difference, nor does what follows a point in no known name:
    the tag of timm's weights, the ending of a file.

    Examples
    --------
    >>> workload_published_as("ssd_mobilenet_v1_coco")
    'ssd-mobilenet-v1'
    >>> workload_published_as("resnet18.a1_in1k")
    'resnet18'
    """
    known, plain = _published_names(), _plain(name)
    return known.get(plain, known.get(plain.partition(".")[0]))


@cache
def _published_names() -> dict[str, str]:
    specs = {name: load_spec(name) for name in _own_names()}
    aliases = {_plain(alias): name for name, spec in specs.items() for alias in spec.published_as}
    aliases |= {_plain(alias): name for alias, name in published_variants().items()}
    return {_plain(name): name for name in variants()} | aliases | {_plain(name): name for name in specs}


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def load_spec(name: str | Path, overrides: Settings = ()) -> WorkloadSpec:
    """Read the specification of a workload by its name or the path of its YAML file."""
    is_variant = str(name) not in _own_names() and str(name) in variants()
    document = variant_file(str(name)) if is_variant else read_yaml(workload_path(str(name)))
    kind = kind_of(document.data, document.name, document.line(("kind",)))
    return validate_data(document, kind.spec, overrides)


def load_gnn(name: str | Path, overrides: Settings = ()) -> GnnSpec:
    """Read the specification of a workload that has to be a GNN; a `ConfigError` refuses other kinds."""
    if str(name).endswith(_MODELS) or _MODULE.fullmatch(str(name)):
        raise ConfigError(
            f"the {'model file' if str(name).endswith(_MODELS) else 'module'} `{name}`",
            allowed="a named workload or a workload YAML of kind gnn (model, layers, hidden, dataset), which "
            "npusim trains itself: a model file says nothing of its data graph",
        )
    return load_of_kind(name, GnnSpec, overrides)


def load_of_kind(name: str | Path, wanted: type[_Spec], overrides: Settings = ()) -> _Spec:
    """Read the specification of a workload of a kind; a `ConfigError` refuses other kinds."""
    spec = load_spec(name, overrides)
    if not isinstance(spec, wanted):
        (kind,) = get_args(wanted.model_fields["kind"].annotation)
        allowed = f"one of kind {kind}, such as {', '.join(workload_names(kind))}"
        raise ConfigError(f"`{name}`, a workload of kind {spec.kind}", allowed=allowed)
    return spec


def load_workload(
    name: str | Path, settings: Settings = (), shapes: Mapping[str, Sequence[int]] | None = None
) -> Graph:
    """Return the operator graph of a workload, before any technique.

    Parameters
    ----------
    name : str or Path
        A shipped name (`workload_names`), a workload YAML, an OpenVINO IR (`.xml`) or an ONNX file.
    settings : settings, optional
        Settings of the specification, such as "workload.hidden=128"; of an imported model, its precision
        and the roles of its inputs (workload.roles=kind:edges).
    shapes : mapping of str to sequence of int, optional
        Fixed shapes for the inputs of an imported model that leaves them open.

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
    settings = as_overrides(settings)
    if text.endswith(_MODELS) or _MODULE.fullmatch(text):
        from npusim.frontends.apart import graph_of_file, graph_of_module  # most networks need no reader

        dtype, roles, finished = import_settings(settings)
        if text.endswith(_MODELS):
            return finished(graph_of_file(text, shapes, dtype, roles))
        return finished(graph_of_module(text, dtype, roles))
    if shapes:
        allowed = "only for a model file (.xml, .onnx)"
        raise ConfigError(f"shapes for {', '.join(shapes)}", file="--shape", allowed=allowed)
    if text.endswith((*_YAML, *_TABLES)):
        from npusim.frontends.peer_files import peer_network  # most networks need no reader

        peer = peer_network(Path(text).expanduser())
        if peer is not None:
            from npusim.frontends.peer_files import peer_graph

            validate_data({}, ImportSettings, settings)
            return peer_graph(peer, Path(text).stem)
    spec, path = load_spec(text, settings), workload_path(text)
    spec = spec.model_copy(update={"precision": _precision(spec, spec.precision)})
    title = path.stem if text.endswith(_YAML) or text.startswith(OPEN_PIPES) else text
    what = f"workload kind `{spec.kind}` cannot build {title}"
    with KINDS.blamed(spec.kind, what):
        graph: object = KINDS[spec.kind].build(spec, title, path.parent)
    if isinstance(graph, Graph):
        return with_formats(graph, spec.formats)
    why = f"it builds a {type(graph).__name__}, not a Graph"
    raise PluginError(f"package {KINDS.package_of(spec.kind)}: its {what}: {why}")


def workload_path(name: str) -> Path:
    """Return the YAML file of a workload; of a variant, its family's."""
    if name.endswith(_YAML) or name.startswith(OPEN_PIPES):
        return Path(name).expanduser()
    if name in _own_names():
        return resource("workloads", f"{name}.yaml")
    for kind in KINDS.values():
        if kind.folder is not None and name in {path.stem for path in kind.folder.glob("*.yaml")}:
            return kind.folder / f"{name}.yaml"
    if name in variants():
        return variants()[name]
    known = [*workload_names(), *variants()]
    raise UnknownNameError("workload", name, known, "or the path of a .yaml, .xml or .onnx file")


def _own_names() -> list[str]:
    return [name for name in resource_names("workloads", ".yaml") if name not in _NOT_WORKLOADS]
