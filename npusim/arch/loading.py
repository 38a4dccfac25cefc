"""Finds the data sheet of a SoC by name or path and reads it."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

from npusim.arch.dsp import DspKernelFile
from npusim.arch.soc import Soc
from npusim.config import Settings, dump_model, load_model, override_model, validate_data
from npusim.config.reading import ParsedFile, merge_files, read_yaml
from npusim.errors import ConfigError, UnknownNameError, nearest, shown
from npusim.files import read_text
from npusim.locate import data_root, resource_names

_EXTENDS = ("extends",)
_NOT_INHERITED = {"name", "title", "extends"}
_MOST_SHEETS = 8
"""Data sheets that may start from each other."""


def soc_names(*, variants: bool = True) -> list[str]:
    """Return the names of the SoCs that npusim ships, sorted.

    Parameters
    ----------
    variants : bool
        Whether those count that start from another one.
    """
    names = resource_names("configs/socs", ".yaml")
    return names if variants else [name for name in names if "\nextends:" not in read_text(soc_file(name))]


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
    return validate_data(soc_data(soc_file(name_or_path)), Soc, overrides)


def soc_data(path: Path) -> ParsedFile:
    """Return the data of a SoC's file, with those of the data sheets and devices that it starts from.

    Raises
    ------
    FileError, ConfigError
        Where a file cannot be read, or starts from nothing, from itself, or from too many others; where a
        device does.
    """
    sheet = _sheet_data(path, ())
    devices = sheet.data.get("devices") if isinstance(sheet.data, dict) else None
    if isinstance(devices, dict):
        for name, device in [*devices.items()]:
            if isinstance(device, dict) and device.get("like") is not None:
                _start_from_device(sheet, devices, name)
    return sheet


def _start_from_device(sheet: ParsedFile, devices: dict[str, Any], name: str) -> None:
    """Write into a device what the one that it is like has, and it does not state."""
    at, wanted = ("devices", name), devices[name]["like"]
    others = [one for one, s in devices.items() if one != name and isinstance(s, dict) and not s.get("like")]
    if wanted not in others:
        meant = nearest(str(wanted), others)
        raise _wrong(sheet, (*at, "like"), f"the device {shown(str(wanted))}", ", ".join(others), meant)
    found = merge_files(_part(sheet, ("devices", wanted)), own := _part(sheet, at))
    if "tiles" in own.data and "tiles_for" not in own.data:
        found.data.pop("tiles_for", None)
    devices[name] = found.data
    for key in [key for key in sheet.lines if key[:2] == at]:
        del sheet.lines[key]
        sheet.files.pop(key, None)
    sheet.lines.update({(*at, *key): line for key, line in found.lines.items()})
    sheet.files.update({(*at, *key): file for key, file in found.files.items()})


def _part(sheet: ParsedFile, at: tuple[str, str]) -> ParsedFile:
    """Return a device of a data sheet as a file of its own."""
    lines = {key[2:]: line for key, line in sheet.lines.items() if key[:2] == at}
    files = {key[2:]: file for key, file in sheet.files.items() if key[:2] == at}
    return ParsedFile(sheet.name, deepcopy(sheet.data["devices"][at[1]]), lines, files)


def _sheet_data(path: Path, children: tuple[Path, ...]) -> ParsedFile:
    """Return the data of a SoC's file, with those of the data sheets that it starts from."""
    sheet = read_yaml(path)
    if not isinstance(sheet.data, dict):
        return sheet
    _include_library(sheet, path.parent)
    parent = sheet.data.get("extends")
    if not isinstance(parent, str):
        return sheet
    passed = (*children, path.resolve())
    try:
        file = path.parent / soc_file(parent)
    except UnknownNameError as error:
        allowed = f"{', '.join(soc_names())}, or a YAML file"
        raise _wrong(sheet, _EXTENDS, f"the unknown SoC {shown(parent)}", allowed, error.suggestion) from None
    if not file.is_file():
        raise _wrong(sheet, _EXTENDS, f"no file {shown(str(file))}", "a data sheet to start from")
    if file.resolve() in passed:
        chain = " -> ".join(one.name for one in (*passed, file.resolve()))
        raise _wrong(sheet, _EXTENDS, chain, "data sheets that do not start from each other")
    if len(passed) > _MOST_SHEETS:
        raise _wrong(sheet, _EXTENDS, f"more than {_MOST_SHEETS} data sheets in a row", "fewer: merge some")
    base = _sheet_data(file, passed)
    if isinstance(base.data, dict):
        base.data = {key: value for key, value in base.data.items() if key not in _NOT_INHERITED}
        base.lines = {key: line for key, line in base.lines.items() if not {*key[:1]} & _NOT_INHERITED}
        _forget_tiles_for(base.data.get("devices"), sheet.data.get("devices"))
        _forget_points_of(base.data.get("operating_points"), sheet.data.get("devices"))
    return merge_files(base, sheet)


def _forget_tiles_for(inherited: Any, own: Any) -> None:
    """Leave out of the inherited devices how many tiles are used where a data sheet has others."""
    for name, device in own.items() if isinstance(own, dict) and isinstance(inherited, dict) else ():
        if isinstance(device, dict) and "tiles" in device and isinstance(inherited.get(name), dict):
            inherited[name].pop("tiles_for", None)


def _forget_points_of(inherited: Any, own: Any) -> None:
    """Leave devices that a data sheet leaves out, out of the inherited operating points of several."""
    for name, device in own.items() if isinstance(own, dict) and isinstance(inherited, dict) else ():
        for points in inherited.values() if device is None else ():
            if isinstance(points, dict):
                points.pop(name, None)


def _include_library(sheet: ParsedFile, folder: Path) -> None:
    """Write the DSP kernels of a YAML file beside a data sheet into it: a generation of the file's name."""
    devices = sheet.data.get("devices")
    for name, device in devices.items() if isinstance(devices, dict) else ():
        dsp: Any = device.get("dsp") if isinstance(device, dict) else None
        library = dsp.get("library") if isinstance(dsp, dict) else None
        if not isinstance(library, str) or not library.endswith((".yaml", ".yml")):
            continue
        file = (folder / library).resolve()
        if not file.is_relative_to(folder.resolve()):
            allowed = "a shipped library, or a YAML file beside the data sheet"
            raise _wrong(sheet, ("devices", name, "dsp", "library"), shown(library), allowed)
        generation = load_model(file, DspKernelFile).model_dump(mode="json", exclude={"schema_name"})
        dsp["library"] = None
        dsp["kernels"] = {file.stem: generation} | (dsp.get("kernels") or {})


def _wrong(
    sheet: ParsedFile, key: tuple[str, ...], found: str, allowed: str, meant: str | None = None
) -> ConfigError:
    return ConfigError(
        found, file=sheet.name, line=sheet.line(key), key=".".join(key), allowed=allowed, suggestion=meant
    )


def sheet_text(name_or_path: str | Path) -> str:
    """Return the text of a SoC's file, with what stands in the data sheets that it starts from."""
    text = read_text(soc_file(name_or_path))
    soc = load_soc(name_or_path)
    return text if soc.extends is None else dump_model(standalone(soc))


def standalone(soc: Soc) -> Soc:
    """Return a SoC that starts from no other data sheet or device: what it left out of them stays out."""
    devices = {name: one.model_copy(update={"like": None}) for name, one in soc.devices.items()}
    return soc.model_copy(update={"extends": None, "devices": devices})


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
