"""Finds the data sheet of a SoC by name or path and reads it."""

from __future__ import annotations

from pathlib import Path

from npusim.arch.soc import Soc
from npusim.config import Settings, load_model, override_model
from npusim.errors import UnknownNameError
from npusim.locate import data_root, resource_names

__all__ = ["load_soc", "soc_file", "soc_names", "with_overrides"]


def soc_names() -> list[str]:
    """Return the names of the SoCs that npusim ships, sorted."""
    return resource_names("configs/socs", ".yaml")


def load_soc(name_or_path: str | Path, overrides: Settings = ()) -> Soc:
    """Load a SoC.

    Parameters
    ----------
    name_or_path : str or Path
        Name of a shipped SoC, or the path of a YAML file: whatever has a directory or ends in .yaml or .yml.
    overrides : settings, optional
        What to set on top: ``"npu.sram.per_tile=2MiB"`` texts or a mapping of path to value.

    Returns
    -------
    Soc
        The machine, frozen.

    Raises
    ------
    UnknownNameError
        Where no SoC has that name.
    FileError, ConfigError
        Where the file cannot be read or does not describe a SoC.

    Examples
    --------
    >>> soc = load_soc("core-ultra-series2", ["npu.sram.per_tile=2MiB"])
    >>> int(soc.npu.tiles), soc.npu.sram.per_tile.text
    (6, '2MiB')
    """
    return load_model(soc_file(name_or_path), Soc, overrides)


def soc_file(name_or_path: str | Path) -> Path:
    """Return the file of a SoC; parameters and errors as for `load_soc`, but it is not read."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text:
        return Path(text)
    names = soc_names()
    if text not in names:
        raise UnknownNameError("SoC", text, names, "or give the path of a YAML file")
    return data_root() / "configs" / "socs" / f"{text}.yaml"


def with_overrides(soc: Soc, overrides: Settings) -> Soc:
    """Return a SoC with further settings on top; parameters and errors as for `load_soc`."""
    return override_model(soc, overrides)
