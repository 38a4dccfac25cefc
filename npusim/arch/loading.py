"""Data sheets by name or path: SoCs and compilers."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from npusim.arch.dsp import DspKernelFile
from npusim.arch.soc import Soc
from npusim.config import Section, Settings, dump_model, load_model, override_model, validate_data
from npusim.config.reading import ParsedFile, merge_files, merged, read_yaml
from npusim.errors import ConfigError, UnknownNameError, nearest, shown
from npusim.files import read_text
from npusim.locate import data_root, resource, resource_names
from npusim.ops import Operator
from npusim.units import Bandwidth, BytesOrZero, Duration, Quantity, Ratio

_EXTENDS = ("extends",)
_NOT_INHERITED = {"name", "title", "extends"}
_MOST_SHEETS = 8  # longest chain of data sheets that start from each other
_MOST_DEVICES = 64  # each is an NPU, a CPU or a GPU of its own


def soc_names(*, variants: bool = True) -> list[str]:
    """Return the names of the shipped SoCs, sorted, with or without those that start from another one."""
    names = resource_names("configs/socs", ".yaml")
    return names if variants else [name for name in names if "\nextends:" not in read_text(soc_file(name))]


def load_soc(name_or_path: str | Path, settings: Settings = ()) -> Soc:
    """Load a SoC.

    Parameters
    ----------
    name_or_path : str or Path
        Name of a shipped SoC, or the path of a YAML file: it has a directory or ends in .yaml or .yml.
    settings : settings, optional
        Settings on top: ``"npu.sram.per_tile=2MiB"`` texts, or a mapping of path to value. A bare number of a
        mapping is in SI units.

    Raises
    ------
    UnknownNameError
        If no SoC has that name.
    FileError, ConfigError
        If the file cannot be read or does not describe a SoC.

    Examples
    --------
    >>> soc = load_soc("core-ultra-series2", ["npu.sram.per_tile=2MiB"])
    >>> int(soc.npu.tiles), soc.npu.sram.per_tile.text
    (6, '2MiB')
    >>> load_soc("core-ultra-series2", settings={"dram.bandwidth": 100e9}).dram.bandwidth.text
    '100 GB/s'
    """
    return validate_data(soc_data(soc_file(name_or_path)), Soc, settings)


def soc_data(path: Path) -> ParsedFile:
    """Return the data of a SoC's file, merged with the data sheets and devices that it starts from."""
    sheet = _sheet_data(path, ())
    devices = sheet.data.get("devices") if isinstance(sheet.data, dict) else None
    if isinstance(devices, dict):
        if len(devices) > _MOST_DEVICES:
            raise _wrong(sheet, ("devices",), f"{len(devices):,} devices", f"at most {_MOST_DEVICES}")
        for name, device in [*devices.items()]:
            if isinstance(device, dict) and device.get("like") is not None:
                _start_from_device(sheet, devices, name)
    return sheet


def _start_from_device(sheet: ParsedFile, devices: dict[str, Any], name: str) -> None:
    """Add to a device what it leaves out and the device of its key `like` states."""
    own, at = devices[name], ("devices", name, "like")
    wanted = own["like"]
    others = [n for n, d in devices.items() if n != name and isinstance(d, dict) and not d.get("like")]
    if wanted not in others:
        meant = nearest(str(wanted), others)
        raise _wrong(sheet, at, f"the device {shown(str(wanted))}", ", ".join(others), meant)
    kinds = [devices[which].get("kind") for which in (name, wanted)]
    if None not in kinds and kinds[0] != kinds[1]:
        alike = [n for n in others if devices[n].get("kind") == kinds[0]]
        found = f"{shown(str(wanted))}, a device of another kind ({shown(kinds[1])})"
        raise _wrong(sheet, at, found, ", ".join(alike) or f"no device is of kind {kinds[0]}")
    devices[name] = merged(deepcopy(devices[wanted]), own)
    if "tiles" in own and "tiles_for" not in own:
        devices[name].pop("tiles_for", None)


def _sheet_data(path: Path, children: tuple[Path, ...]) -> ParsedFile:
    """Return the data of a SoC's file, merged with the data sheets that it starts from."""
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
        chain = " -> ".join(sheet_file.name for sheet_file in (*passed, file.resolve()))
        raise _wrong(sheet, _EXTENDS, chain, "data sheets that do not start from each other")
    if len(passed) > _MOST_SHEETS:
        raise _wrong(sheet, _EXTENDS, f"more than {_MOST_SHEETS} data sheets in a row", "fewer: merge some")
    base = _sheet_data(file, passed)
    if isinstance(base.data, dict):
        base.data = {key: value for key, value in base.data.items() if key not in _NOT_INHERITED}
        base.lines = {key: line for key, line in base.lines.items() if not {*key[:1]} & _NOT_INHERITED}
        _forget_changed(base.data, sheet.data.get("devices"))
    return merge_files(base, sheet)


def _forget_changed(inherited: dict[str, Any], own: Any) -> None:
    """Remove inherited `tiles_for` of devices with other `tiles`, and operating points of removed devices."""
    devices, points = (inherited.get(key) or {} for key in ("devices", "operating_points"))
    for name, device in own.items() if isinstance(own, dict) else ():
        before = devices.get(name) if isinstance(devices, dict) else None
        if isinstance(device, dict) and "tiles" in device and isinstance(before, dict):
            before.pop("tiles_for", None)
        for point in points.values() if device is None and isinstance(points, dict) else ():
            if isinstance(point, dict):
                point.pop(name, None)


def _include_library(sheet: ParsedFile, folder: Path) -> None:
    """Add the DSP kernels of a YAML file in the folder of a data sheet as a generation."""
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
    """Return the text of a SoC's file, with the data sheets that it starts from merged in."""
    text = read_text(soc_file(name_or_path))
    soc = load_soc(name_or_path)
    return text if soc.extends is None else dump_model(standalone(soc))


def standalone(soc: Soc) -> Soc:
    """Return a SoC that starts from no other data sheet or device."""
    devices = {name: device.model_copy(update={"like": None}) for name, device in soc.devices.items()}
    return soc.model_copy(update={"extends": None, "devices": devices})


def soc_file(name_or_path: str | Path) -> Path:
    """Return the path of a SoC's file; parameters and errors as for `load_soc`."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text:
        return Path(text).expanduser()
    names = soc_names()
    if text not in names:
        raise UnknownNameError("SoC", text, names, "or give the path of a YAML file")
    return data_root() / "configs" / "socs" / f"{text}.yaml"


def with_overrides(soc: Soc, settings: Settings) -> Soc:
    """Return a SoC with further settings; parameters and errors as for `load_soc`."""
    return override_model(soc, settings)


class OperatorSupport(Section):
    """Operator types that a compiler takes; a parser for a type is needed, not sufficient."""

    source: str
    """Where the lists come from, with the version."""
    parsed: tuple[str, ...]
    """Types that it reads."""
    converted: tuple[str, ...] = ()
    """Types that it makes others of before, and parts that npusim splits such types into."""
    no_reduction: tuple[str, ...] = ()
    """Types that it reads without a reduction."""
    sized_by_values: tuple[str, ...] = ()
    """Types whose results have sizes that depend on values, which it refuses."""
    rewrites: Mapping[str, str] = Field(default_factory=dict)
    """What to write in place of a type."""

    def refused(self, operators: Iterable[Operator]) -> dict[str, list[Operator]]:
        """Return the operators that the compiler does not take, by what is refused."""
        known, found = {*self.parsed, *self.converted}, dict[str, list[Operator]]()
        for op in operators:
            what = ""
            if op.type in self.sized_by_values:
                what = f"{op.type} (its size depends on values)"
            elif op.type in self.no_reduction and op.attrs.get("reduction", "none") != "none":
                what = f"{op.type} with a reduction"
            elif op.type not in known:
                what = op.type
            if what:
                found.setdefault(what, []).append(op)
        return found


class Toolchain(Section):
    """A compiler for NPUs: time to compile a network, and size of the result."""

    schema_name: Literal["npusim.toolchain/1"] = Field(alias="schema")
    """Version of this file format: npusim.toolchain/1."""
    name: Annotated[str, Field(min_length=1)]
    """Short name."""
    title: str
    """Full name."""
    compile_fixed: Duration
    """Time to compile the smallest network: reading, passes over the graph, loading the result."""
    compile_per_operator: Duration
    """Time per operator: tiling, scheduling."""
    compile_bandwidth: Bandwidth
    """Bytes of constants that are reordered and written in a second."""
    version_fixed: BytesOrZero
    """Size of a compiled version without constants: tables, headers."""
    version_per_operator: BytesOrZero
    """Size per operator: its descriptors."""
    memory_fixed: BytesOrZero = Quantity(0.0, "B", source="absent")
    """Peak memory to compile the smallest network."""
    memory_per_constant_byte: Ratio = Quantity(0.0, "", source="absent")
    """Peak memory per byte of constants: the model as read, and reordered copies. 0: not known."""
    operators: OperatorSupport | None = None
    """Operator types that it takes; absent: not known."""

    def compile_s(self, operators: int, constant_bytes: float) -> float:
        """Return the time to compile a network (s)."""
        layout_s = constant_bytes / self.compile_bandwidth
        return float(self.compile_fixed + operators * self.compile_per_operator + layout_s)

    def memory_bytes(self, constant_bytes: float) -> float:
        """Return the peak memory to compile a network (B)."""
        return float(self.memory_fixed + self.memory_per_constant_byte * constant_bytes)

    def version_bytes(self, operators: int, constant_bytes: float) -> float:
        """Return the size of a compiled network (B)."""
        return float(self.version_fixed + operators * self.version_per_operator + constant_bytes)


def load_toolchain(name: str = "openvino-npu", overrides: Settings = ()) -> Toolchain:
    """Return a toolchain by its shipped name or the path of a YAML file.

    Examples
    --------
    >>> load_toolchain().compile_s(operators=0, constant_bytes=0.0) > 0.0
    True
    """
    if name.endswith((".yaml", ".yml")):
        return load_model(name, Toolchain, overrides)
    if name not in resource_names("configs/toolchains", ".yaml"):
        raise UnknownNameError("toolchain", name, resource_names("configs/toolchains", ".yaml"))
    return load_model(resource("configs", "toolchains", f"{name}.yaml"), Toolchain, overrides)
