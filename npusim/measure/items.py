"""From a network that a user names or hands in to the rows that are measured."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from npusim.config.overrides import as_overrides
from npusim.errors import ConfigError, ModelFileError, UnknownNameError
from npusim.measure.document import Given, ModelFile, ModelRef, Workload
from npusim.measure.folders import folder_kind
from npusim.measure.models import Sources, graph_of
from npusim.measure.suites import Hint, Item
from npusim.scenario import Scenario, is_module, name_of, split_settings
from npusim.techniques import parse

HINTS: tuple[Hint, ...] = get_args(Hint)
_MODEL_FILES, _WORKLOAD_FILES = (".xml", ".onnx"), (".yaml", ".yml")


def items_of(
    asked: Scenario, hint: str = "both", requests: int | None = None
) -> tuple[tuple[Item, ...], Sources]:
    """Return a row for each hint, and where its network comes from.

    Parameters
    ----------
    asked : Scenario
        Network, techniques, settings of the workload, shapes, inputs; nothing else of it is looked at.
    hint : {"latency", "throughput", "both"}

    Raises
    ------
    NpusimError
        For what cannot be built, techniques or settings on a model file or an exported language model,
        settings of a SoC.
    """
    if hint not in (*HINTS, "both"):
        raise UnknownNameError("performance hint", hint, (*HINTS, "both"))
    network = asked.network
    if not isinstance(network, str | Path):
        ref: ModelRef = Given(name=name_of(network), techniques=str(parse(str(asked.techniques))))
        files: Sources = {name_of(network): asked}
    elif Path(network).expanduser().is_dir():
        folder = Path(network).expanduser()
        models = sorted(folder.glob("*.xml"), key=_by_number)
        if models:
            return _models(asked, models, hint, requests)
        return folder_kind(folder).rows(asked, folder, hint, requests), {}
    elif Path(network).suffix in _MODEL_FILES:
        ref, files = _model_file(asked, Path(network).expanduser())
    else:
        ref, files = _workload(asked, str(network))
    if not isinstance(ref, ModelFile) and not is_module(network):
        graph_of(ref, files=files)  # what cannot be built is refused in its own words, before anything runs
    hints = HINTS if hint == "both" else [one for one in HINTS if one == hint]
    return tuple(Item(row_name(ref, one), ref, one, requests) for one in hints), files


def _by_number(file: Path) -> list[tuple[float, str]]:
    """Return what sorts names with numbers in them by these: net-2x before net-16x."""
    parts = re.split(r"(\d+(?:\.\d+)?)", file.stem)
    return [(float(part), "") if i % 2 else (-1.0, part) for i, part in enumerate(parts)]


def _models(
    asked: Scenario, models: Sequence[Path], hint: str, requests: int | None
) -> tuple[tuple[Item, ...], Sources]:
    """Return the rows of a folder's model files, such as those that `npusim prune --models` writes."""
    items: list[Item] = []
    files: dict[str, Path | Scenario] = {}
    for model in models:
        rows, sources = items_of(asked.with_(network=model), hint, requests)
        items += rows
        files |= sources
    return tuple(items), files


def _workload(asked: Scenario, name: str) -> tuple[ModelRef, Sources]:
    of_workload, of_soc = split_settings(asked.settings)
    if of_soc:
        found = f"`{'.'.join(of_soc[0].path)}`"
        raise ConfigError(found, file="--set", allowed="workload.KEY=VALUE: the device is what it is")
    if asked.shapes:
        raise ConfigError(
            f"shapes for {', '.join(asked.shapes)}", file="--shape", allowed="only for a model file"
        )
    path = Path(name).expanduser()
    is_file = path.suffix in _WORKLOAD_FILES
    ref = Workload(
        workload=path.name if is_file else name,
        techniques=str(parse(str(asked.techniques))),
        settings={".".join(one.path[1:]): str(one.value) for one in of_workload},
    )
    return ref, {path.name: path} if is_file else {}


def _model_file(asked: Scenario, path: Path) -> tuple[ModelRef, Sources]:
    """Return a model file by its name and content; its folders are not kept."""
    settings = as_overrides(asked.settings)
    for option, given in (("--techniques", str(asked.techniques) != "none"), ("--set", bool(settings))):
        if given:
            found = f"{option} with the model file `{path.name}`"
            raise ConfigError(found, allowed="a model file as it is; a workload takes techniques")
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read ({error.strerror})", "check the path") from None
    shapes = {name: tuple(shape) for name, shape in (asked.shapes or {}).items()}
    return ModelFile(name=path.name, sha256=digest, shapes=shapes), {path.name: path}


def row_name(ref: ModelRef, hint: str) -> str:
    """Return what a row is called, as in suites: gcn-cora,hidden=128:stagr@throughput."""
    name = str(getattr(ref, "name", "network"))
    if isinstance(ref, Workload):
        name = ",".join([ref.workload, *(f"{key}={value}" for key, value in ref.settings.items())])
    if isinstance(ref, Workload | Given):
        name = f"{name}:{ref.techniques}"
    return name if hint == "latency" else f"{name}@{hint}"
