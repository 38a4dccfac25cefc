"""What every workload file says, whatever its kind, and what a kind of workload declares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from npusim.config import Override, Section
from npusim.config.reading import ParsedFile, read_yaml
from npusim.errors import ConfigError, NpusimError
from npusim.graph import Graph
from npusim.locate import resource, resource_names
from npusim.ops.formats import FormatName, Formats


def _as_text(value: Any) -> Any:
    """Return a share of non-zeros, which YAML reads as a number, as the text that it was."""
    return str(value) if isinstance(value, float | int) and not isinstance(value, bool) else value


class WorkloadSettings(Section):
    """Keys that the command line writes behind `workload.`: of a file, or of an imported model."""

    model_config = ConfigDict(strict=True)

    weights: FormatName | None = None
    """Format of the weights of products, of at most the activations' bits. None: that of the activations."""
    activations: FormatName | None = None
    """Format of what products read besides weights; below 16 bits where 8-bit integers could stand. None:
    `precision`."""
    weight_sparsity: Annotated[str, BeforeValidator(_as_text)] | None = None
    """Zeros of the weights: `2:4`, `block:16@0.25`, `channel@0.5` or a share of non-zeros. None: no zeros."""
    activation_density: float | None = Field(default=None, gt=0.0, le=1.0)
    """Share of non-zeros in activations that only convolutions read, stored with a bitmap. None: dense."""

    @property
    def formats(self) -> Formats:
        """Formats and zeros of the operands of products."""
        return Formats(self.weights, self.activations, self.weight_sparsity, self.activation_density)

    @classmethod
    def expand_override(cls, override: Override, base: Any, data: Any) -> Sequence[Override]:
        """Take `workload.hidden=128`, as the command line writes it, for `hidden=128`."""
        path = override.path
        within = path[1:] if path[0] == "workload" and len(path) > 1 else path
        return [override.at(within, override.value)]

    @classmethod
    def short_path(cls, path: tuple[str, ...]) -> tuple[str, ...]:
        """Return a path as the command line writes it."""
        return ("workload", *path)


def default_of_model(defaults: Mapping[str, Any]) -> Any:
    """Return the field of a specification whose default depends on `model`, which stands above it."""
    return Field(default_factory=lambda data: defaults[data["model"]])


class WorkloadSpec(WorkloadSettings):
    """Base of the file of each kind; a kind adds `kind: Literal["..."]`, `model` and `precision`."""

    kind: str
    """Which kind of network the file describes; the other keys depend on it."""
    model: str
    """The network."""
    precision: str
    """Format of the tensors."""
    description: str = ""
    """What a reader should know."""
    published_as: list[str] = Field(default_factory=list)
    """Names under which others publish figures of the network, as benchmark tables have them."""

    @property
    def facts(self) -> dict[str, Any]:
        """Keys that a list of workloads shows beside kind, model and precision."""
        return {}


@dataclass(frozen=True)
class WorkloadKind:
    """A kind of workload: the keys of its files and the builder of its graphs."""

    name: str
    """What `kind:` says in a file."""
    title: str
    """One line for lists and messages."""
    spec: type[WorkloadSpec]
    """Keys, defaults and checks of a file of this kind."""
    build: Callable[[Any, str, Path], Graph]
    """Build the graph of a `spec`, given its name and the folder of its file."""
    folder: Path | None = None
    """Folder of the workload files that another package ships with the kind, named as the files are."""
    export: Callable[[Any, Path, Path | None, Callable[[str], None]], None] | None = None
    """Exports the model of a `spec` (folder, file of weights, callback for messages); None: it has none."""
    is_large: bool = False
    """Whether an estimate takes longer than a slider of the explorer should wait."""

    def __post_init__(self) -> None:
        """Raise an `NpusimError` where the specification does not tell its kind by exactly this name."""
        if not issubclass(self.spec, WorkloadSpec):
            raise NpusimError(f"workload kind {self.name!r}: {self.spec.__name__} is no WorkloadSpec")
        said = get_args(self.spec.model_fields["kind"].annotation)
        if said != (self.name,):
            needed = f'{self.spec.__name__} needs `kind: Literal["{self.name}"]`'
            raise NpusimError(f"workload kind {self.name!r}: {needed}")


FAMILIES = "families"
"""Folder in `workloads/` of the tables; each has `variants`."""


def variants() -> dict[str, Path]:
    """Return the file of each variant of the shipped families."""
    return {name: path for name, (path, _) in _variants().items()}


def published_variants() -> dict[str, str]:
    """Return the variants by the further names that their publishers use."""
    every = _variants().items()
    return {alias: name for name, (_, changes) in every for alias in changes.get("published_as", ())}


def variant_file(name: str) -> ParsedFile:
    """Return a family's file with the changes of one variant."""
    path, changes = _variants()[name]
    family = read_yaml(path)
    kept = {key: value for key, value in family.data.items() if key != "variants"}
    return ParsedFile(family.name, kept | changes, family.lines)


@cache
def _variants() -> dict[str, tuple[Path, dict[str, Any]]]:
    every: dict[str, tuple[Path, dict[str, Any]]] = {}
    for family in resource_names(f"workloads/{FAMILIES}", ".yaml"):
        path = resource("workloads", FAMILIES, f"{family}.yaml")
        for name, changes in read_yaml(path).data["variants"].items():
            if name in every:
                raise ConfigError(f"`{name}` a second time", file=str(path), key="variants")
            every[name] = path, changes or {}
    return every
