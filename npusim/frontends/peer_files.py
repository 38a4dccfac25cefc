"""Files of other tools (Timeloop, AccelForge, ZigZag, SCALE-Sim, MAESTRO) as data with line numbers.

The content decides which format a file has. No expression is evaluated: a number may be a product or quotient
of numbers, every other text is a name. `configs/importers/peers.yaml` has the keys of all formats.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from npusim.config.reading import Key, ParsedFile, compose, plain_scalar, read_yaml
from npusim.config.tables import csv_records
from npusim.errors import ConfigError, shown
from npusim.files import read_text
from npusim.locate import resource

NAMES = read_yaml(resource("configs", "importers", "peers.yaml")).data
"""Names of formats, keys and loops."""
_MOST_BYTES, _LONGEST_LINE, _LARGEST = 4 << 20, 1000, 1e15
_NUMBER = r"\(?\s*([0-9]{1,20}(?:\.[0-9]{0,20})?(?:[eE][-+]?[0-9]{1,3})?)\s*\)?"
_PRODUCT = re.compile(rf"{_NUMBER}(?:\s*[*/]\s*{_NUMBER}){{0,20}}")
_FACTOR = re.compile(rf"([*/]?)\s*{_NUMBER}")
_SECTION = re.compile(r"\[(\w{1,60})\]")
_SETTING = re.compile(r"(\w{1,60})\s*[:=]\s*")
_PAIR = re.compile(r"(\w+)(?:\s*:\s*|\s+)(\w+)")
_MAP = re.compile(
    r"\b(?:(SpatialMap|TemporalMap)\b[^;]*?(\w+)\s*;|Cluster\s*\(\s*(\w+)\s*,?\s*\w*\s*\)\s*;?)"
)


@dataclass(frozen=True)
class PeerFile:
    """A file of another tool."""

    document: ParsedFile
    kind: str
    """Format, a key of `formats` in `configs/importers/peers.yaml`."""

    @property
    def name(self) -> str:
        """Name of the file, without its folder."""
        return Path(self.document.name).name

    @property
    def title(self) -> str:
        """Format, as messages call it."""
        return str(NAMES["formats"][self.kind])

    def wrong(self, path: Key, problem: str, allowed: str) -> ConfigError:
        """Return the error that names file, line and key of a value."""
        file, line = self.document.place(path)
        return ConfigError(problem, file=file, line=line, key=".".join(map(str, path)), allowed=allowed)

    def value(self, *path: str | int, default: Any = ..., kind: type = object) -> Any:
        """Return the value of a path, which has to be of some kind; without a default it must be there."""
        value = self.document.data
        for place, key in enumerate(path):
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                if default is not ...:
                    return default
                raise self.wrong(path[:place], f"no key `{key}`", f"`{key}: ...` in {self.title}") from None
        if not isinstance(value, kind):
            raise self.wrong(path, shown(value), "a list" if kind is list else "a mapping")
        return value

    def mapping(self, *path: str | int) -> Mapping[str, Any]:
        """Return a mapping; an empty one where it is absent."""
        return dict(self.value(*path, default={}, kind=dict))

    def entries(self, *path: str | int) -> list[Any]:
        """Return a list; an empty one where it is absent."""
        return list(self.value(*path, default=[], kind=list))

    def number(self, *path: str | int, default: float | None = None, most: float = _LARGEST) -> float:
        """Return a number from 0 to `most`, which may be written as a product or quotient."""
        value = self.value(*path, default=... if default is None else default)
        number = as_number(value)
        if number is None or not 0.0 <= number <= most:
            raise self.wrong(path, shown(value), f"a number from 0 to {most:g}")
        return number

    def count(self, *path: str | int, default: int | None = None, most: float = 1e6) -> int:
        """Return a whole number from 1 to `most`."""
        number = self.number(*path, default=default, most=most)
        if number < 1.0 or not number.is_integer():
            raise self.wrong(path, f"`{number:g}`", f"a whole number from 1 to {most:g}")
        return int(number)

    def unread(self, known: Collection[str] = (), *, leaves: bool = True) -> list[str]:
        """Return a line for each reason why keys have no place here, with their first line.

        Parameters
        ----------
        known : collection of str
            Keys that are read beside those of the format.
        leaves : bool
            Whether keys of mappings may have any name.
        """
        skipped, reasons = {*NAMES["reads"].get(self.kind, ()), *NAMES["silent"]}, dict[str, dict[str, int]]()
        skipped.update(known)
        for path, line in self.document.lines.items():
            key = path[-1] if path else 0
            counts = not (leaves and isinstance(self.value(*path, default={}), dict))
            if counts and isinstance(key, str) and key not in skipped:
                why = NAMES["unsaid"].get(key, "a sheet has no such number")
                reasons.setdefault(why, {}).setdefault(key, line)
        return [
            f"{min(keys.values())}: {', '.join(map(shown, keys))}: {why}" for why, keys in reasons.items()
        ]


def as_number(value: object) -> float | None:
    """Return a number, or a product or quotient of numbers such as ``1024*64``; None for another value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or not _PRODUCT.fullmatch(value.strip()):
        return None
    product = 1.0
    for sign, factor in _FACTOR.findall(value):
        if sign == "/" and float(factor) == 0.0:
            return None
        product = product / float(factor) if sign == "/" else product * float(factor)
    return product


def read_peer(path: str | Path) -> PeerFile:
    """Return a file of another tool.

    Raises
    ------
    FileError
        If it cannot be read, or holds more than 4 MiB.
    ConfigError
        If it has none of the formats; it names file and line.
    """
    name = str(path)
    document = _parsed(read_text(Path(path).expanduser(), most=_MOST_BYTES), name)
    kind = _format_of(document.data)
    if kind is None:
        allowed = ", ".join(NAMES["formats"].values())
        raise ConfigError("a file of an unknown format", file=name, line=1, allowed=allowed)
    return PeerFile(document, kind)


def peer_network(path: Path) -> PeerFile | None:
    """Return a file if it is a network of another tool; None for a YAML file that is none.

    Raises
    ------
    FileError, ConfigError
        As `read_peer`.
    """
    if path.suffix in {".yaml", ".yml"}:
        document = read_yaml(path)
        kind = _format_of(document.data)
        return PeerFile(document, str(kind)) if kind in NAMES["networks"] else None
    return read_peer(path)


def _format_of(data: Any) -> str | None:
    first = data[0] if isinstance(data, list) and data else data
    keys = first.keys() if isinstance(first, dict) else ()
    return next((kind for key, kind in NAMES["told_by"].items() if key in keys), None)


def _parsed(text: str, name: str) -> ParsedFile:
    """Return the data of a text: sections of settings, a table, MAESTRO's blocks, or YAML."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > _LONGEST_LINE or "{%" in line or "{{" in line:
            problem = (
                "a template (Jinja)" if len(line) <= _LONGEST_LINE else f"a line of {len(line):,} letters"
            )
            allowed = f"the file that a template renders, lines of at most {_LONGEST_LINE} letters"
            raise ConfigError(problem, file=name, line=number, allowed=allowed)
    first = next((line for line in lines if re.match(r"\s*[^\s#;/]", line)), "")
    if _SECTION.fullmatch(first.strip()):
        return compose("\n".join(map(_setting, lines)), name)
    if first.count(",") >= 3 and ":" not in first:
        return _topology(text, name)
    if re.match(r"\s*(Network|Constant)\b", first):
        return _blocks(re.sub("//[^\n]*", "", text), name)
    return compose(text, name, lenient=True)


def _setting(line: str) -> str:
    """Return a line of sections and settings as YAML, the key in lower case."""
    line = line.strip()
    section = _SECTION.fullmatch(line)
    if section:
        return f"{section[1].lower()}:"
    return (
        _SETTING.sub(lambda match: f"  {match[1].lower()}: ", line, count=1) if line[:1] not in "#;" else ""
    )


def _topology(text: str, name: str) -> ParsedFile:
    """Return the rows of a SCALE-Sim table, keys by the words of its header."""
    (_, header), *records = csv_records(text, name)
    words = [word for word in header if word]
    plain = [re.sub(r"[\s_-]", "", word).lower() for word in words]
    columns = NAMES["topologies"]["products" if {"m", "n", "k"} <= {*plain} else "convolutions"]
    by_word = {word: key for key, known in columns.items() for word in known}
    keys = [by_word.get(word, "") for word in plain]
    for key, word in zip(keys, words, strict=True):
        if not key or keys.count(key) > 1:
            problem = f"the column {shown(word)}" + (" twice" if key else "")
            raise ConfigError(problem, file=name, line=1, allowed=", ".join(columns))
    if not records:
        raise ConfigError("no rows below the header", file=name, line=1, allowed="a row for each layer")
    document = ParsedFile(name, [], {(): 1})
    for place, (line, row) in enumerate(records):
        ratios = [cell for cell in row[len(words) :] if cell]
        if len(row) < len(words) or not all(re.fullmatch(r"\d+:\d+", cell) for cell in ratios):
            allowed = f"{len(words)} as in the header, and a sparsity such as 2:4"
            raise ConfigError(f"{len(row)} cells", file=name, line=line, allowed=allowed)
        cells = {key: plain_scalar(cell) for key, cell in zip(keys, row[: len(words)], strict=True)}
        document.lines[(place,)] = line
        if cells.pop("sparsity", None) or ratios:
            cells["sparsity"], document.lines[place, "sparsity"] = ratios, line
        document.data.append(cells)
    return document


_LAYER_PARTS = {
    "Type": re.compile(r"\bType\s*:?\s*(\w+)\s*;?"),
    "Stride": re.compile(r"\bStride\s*:?\s*{([^{}]*)}"),
    "Dimensions": re.compile(r"\bDimensions\s*:?\s*{([^{}]*)}"),
    "Dataflow": re.compile(r"\bDataflow\s*:?\s*{([^{}]*)}"),
}
"""Parts of a MAESTRO layer; whatever stands beside them is refused. Colons may be left out."""


def _blocks(text: str, name: str) -> ParsedFile:
    """Return MAESTRO's layers: name, type, strides, dimensions, and the maps of their dataflow in order."""
    constants = re.compile(r"\bConstant\s+(\w+)\s+(\w+)\s*;")
    named = dict(constants.findall(text))
    head, *parts = re.split(r"\bLayer\s+(\w+)", text)
    document, line = ParsedFile(name, [], {(): 1}), 1 + head.count("\n")
    refuse = partial(_refuse_rest, name)
    refuse(1, re.sub(r"\bNetwork\s+\w+\s*{", "", constants.sub("", head)), "Network, Constant")
    for layer, body in zip(parts[::2], parts[1::2], strict=True):
        rest, found = constants.sub("", body), dict[str, str]()
        for part, pattern in _LAYER_PARTS.items():
            for value in pattern.findall(rest):
                if part in found:
                    raise ConfigError(f"`{part}` twice", file=name, line=line, key=layer, allowed="once")
                found[part] = value
            rest = pattern.sub("", rest)
        refuse(line, rest, ", ".join(_LAYER_PARTS))
        maps = [
            (kind or "Cluster", loop or size) for kind, loop, size in _MAP.findall(found.get("Dataflow", ""))
        ]
        refuse(line, _MAP.sub("", found.get("Dataflow", "")), "SpatialMap, TemporalMap, Cluster")
        keys: dict[str, Any] = {"name": layer, "maps": [(kind, named.get(word, word)) for kind, word in maps]}
        for section in ("Stride", "Dimensions"):
            pairs = _PAIR.findall(found.get(section, ""))
            refuse(line, _PAIR.sub("", found.get(section, "")), f"pairs in {section}, such as K: 64")
            if len(dict(pairs)) < len(pairs):
                raise ConfigError(
                    f"a name twice in {section}", file=name, line=line, key=layer, allowed="once"
                )
            keys[section] = {key: plain_scalar(named.get(word, word)) for key, word in pairs}
        keys["Type"] = found.get("Type", "CONV")
        document.lines[(len(document.data),)] = line
        if maps:
            document.lines[len(document.data), "Dataflow"] = line
        document.data.append(keys)
        line += body.count("\n")
    return document


def _refuse_rest(name: str, line: int, rest: str, allowed: str) -> None:
    """Refuse what is left of a text that nothing has read."""
    words = re.findall(r"[^\s{},;]+", rest)
    if words:
        raise ConfigError(shown(words[0]), file=name, line=line, allowed=allowed)
