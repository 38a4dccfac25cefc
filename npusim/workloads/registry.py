"""The one registry of workload kinds."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, get_args

from pydantic import BaseModel, RootModel

from npusim.errors import ConfigError, nearest
from npusim.plugins import Registry
from npusim.workloads.cnn import CNN
from npusim.workloads.gnn.family import GNN
from npusim.workloads.spec import WorkloadKind
from npusim.workloads.transformer import TRANSFORMER

DEFAULT_KIND = GNN.name
"""Kind of a file that names none."""

KINDS = Registry("npusim.workloads", "workload kind", WorkloadKind)
"""Every kind of workload by name."""

for _kind in (GNN, CNN, TRANSFORMER):
    KINDS.register(_kind)


def kind_of(data: Any, file: str, line: int | None = None) -> WorkloadKind:
    """Return the kind that the data of a workload file names.

    Raises
    ------
    ConfigError
        When there is no such kind, or the model is of another.
    """
    name = data.get("kind", DEFAULT_KIND) if isinstance(data, dict) else DEFAULT_KIND
    if not isinstance(name, str) or name not in KINDS:
        known = ", ".join(KINDS)
        raise ConfigError(
            f"`{name}`", file=file, line=line, key="kind", allowed=known, suggestion=nearest(str(name), KINDS)
        )
    model = data.get("model") if isinstance(data, dict) else None
    owners = [kind.name for kind in KINDS.values() if model in _models(kind)]
    if owners and name not in owners:
        said = f"kind `{name}`" if "kind" in data else f"no kind, which is `{name}`"
        raise ConfigError(
            f"{said}, and model `{model}`", file=file, line=line, key="kind", allowed=f"kind: {owners[0]}"
        )
    return KINDS[name]


def _models(kind: WorkloadKind) -> tuple[Any, ...]:
    """Return the models that a kind lists; none where it takes any name."""
    field = kind.spec.model_fields.get("model")
    return get_args(field.annotation) if field is not None else ()


def workload_file() -> type[BaseModel]:
    """Return the model of a workload file of any kind, for its JSON schema."""
    specs: Any = reduce(or_, (kind.spec for kind in KINDS.values()))
    return RootModel[specs]
