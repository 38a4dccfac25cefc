"""Variants of shipped networks: a family has a file, which says what each variant changes."""

from functools import cache
from pathlib import Path
from typing import Any

from npusim.config.reading import ParsedFile, read_yaml
from npusim.errors import ConfigError
from npusim.locate import resource, resource_names

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
