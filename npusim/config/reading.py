"""From a YAML or JSON file to plain data, or a refusal that names line and column.

YAML scalars follow the core rules of YAML 1.2, not PyYAML's 1.1: `on` and `no` are words, `010` is not octal
and `12:30` is not a number, because the author of a data sheet means what is written.
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from npusim.errors import ConfigError, nearest, shown
from npusim.files import read_text

Key = tuple[str | int, ...]
"""Path of a value: keys of mappings and positions in lists."""

_MOST_VALUES = 200_000  # more, aliases expanded, are an attack or an accident
_MOST_BYTES = 16 << 20
_DEEPEST = 100  # levels of nesting that a file may have
_HARMLESS_DEPTH, _HARMLESS_LENGTH = 1000, 1 << 20
"""Openings and characters of a text that need no check before the parser, which recurses."""
_INDENTS = re.compile(r"^[ ?-]*", re.MULTILINE)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader that leaves it to `plain_scalar` what a word means; only `<<` has a tag of its own."""

    def descend_resolver(self, *place: Any) -> None:
        """Follow no path: no tag depends on one."""

    ascend_resolver = descend_resolver

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a node that names none."""
        if kind is yaml.ScalarNode:
            return f"tag:yaml.org,2002:{'merge' if value == '<<' and implicit[0] else 'str'}"
        return "tag:yaml.org,2002:map" if kind is yaml.MappingNode else "tag:yaml.org,2002:seq"


CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f]")
"""Characters that control a terminal; tabs and line breaks are text."""
_MOST_DIGITS = 30
_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u00([01][0-9a-f]|7f|[89][0-9a-f])|[bf])", re.IGNORECASE)
"""A control character as JSON writes it; tab, line feed and return are text."""
_HARMLESS = frozenset({"09", "0a", "0d", "85"})
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(
    r"[-+]?([0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))([eE][-+]?[0-9]{1,3})?"
)
LOCAL_TAG = "!"
"""Key that holds the tag of a mapping, such as `!Container`, in files of other tools."""
_STANDARD_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")
)


@dataclass
class ParsedFile:
    """Content of a YAML or JSON file."""

    name: str
    """The file, as messages name it."""
    data: Any
    """Mappings, lists and scalars."""
    lines: dict[Key, int] = field(default_factory=dict)
    """Line, from 1, of each key path."""
    files: dict[Key, str] = field(default_factory=dict)
    """File of each key path that comes from another file than `name`."""

    def line(self, path: Key) -> int | None:
        """Return the line of a path, or of the nearest enclosing one that the file holds."""
        return self.place(path)[1]

    def place(self, path: Key) -> tuple[str, int | None]:
        """Return file and line of a path, or of the nearest enclosing one that a file holds."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.files.get(path[:end], self.name), self.lines[path[:end]]
        return self.name, None


def merge_files(base: ParsedFile, change: ParsedFile) -> ParsedFile:
    """Return a file with the changes of another one, as `merged` has them."""
    files = {path: base.files.get(path, base.name) for path in base.lines if path not in change.lines}
    return ParsedFile(change.name, merged(base.data, change.data), base.lines | change.lines, files)


def merged(base: Any, change: Any) -> Any:
    """Return data with changes, mappings key by key.

    A number (a mapping with `value`) is replaced as a whole, with its source and uncertainty; null removes a
    key of the base.
    """
    if not all(isinstance(part, dict) and "value" not in part for part in (base, change)):
        return change
    data = dict(base)
    for key, value in change.items():
        data[key] = merged(data.get(key), value)
        if value is None and key in base:
            del data[key]
    return data


def read_yaml(path: Path) -> ParsedFile:
    """Return the data of a YAML file.

    Raises
    ------
    FileError
        If it is missing, a directory, unreadable or not UTF-8.
    ConfigError
        If it is not YAML, is empty or holds a key twice.
    """

    def nearby() -> str:
        try:
            names = [entry.name for entry in path.parent.iterdir() if entry.suffix in {".yaml", ".yml"}]
        except OSError:
            return f"there is no directory {path.parent} either"
        meant = nearest(path.name, names)
        return f"did you mean `{path.parent / meant}`?" if meant else "check the path"

    text = read_text(path, missing=nearby, directory="name a YAML file in it", most=_MOST_BYTES)
    return compose(text, str(path))


def compose(text: str, name: str, *, lenient: bool = False) -> ParsedFile:
    """Return the data of a YAML text; messages call it `name`.

    In a `lenient` text a mapping may have a tag such as `!Container`, which stands under the key `LOCAL_TAG`,
    and of a key that is there twice the last counts.
    """
    try:
        _refuse_excess(text, name)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise _broken(error, name) from None
    if node is None:
        raise ConfigError("an empty file", file=name, line=1, allowed="YAML with at least one key")
    document = ParsedFile(name, None)
    document.data = _Builder(document, lenient).build(node, (), 0)
    return document


def _refuse_excess(text: str, name: str) -> None:
    """Refuse, event by event, nesting and values that exceed the parser's recursion and memory."""
    indents = 2 * max(map(len, _INDENTS.findall(text)), default=0)
    openings = text.count("[") + text.count("{")
    if indents + openings < _HARMLESS_DEPTH and len(text) < _HARMLESS_LENGTH:
        return
    depth = values = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        values += isinstance(event, yaml.NodeEvent)
        if depth > _DEEPEST or values > _MOST_VALUES:
            allowed = f"at most {_DEEPEST} levels of nesting and {_MOST_VALUES:,} values"
            mark: Any = event.start_mark
            raise ConfigError(_excess(depth), file=name, line=mark.line + 1, allowed=allowed)


def _excess(depth: int) -> str:
    return "nesting that is too deep" if depth > _DEEPEST else "too much data"


def _broken(error: yaml.YAMLError, name: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "an unreadable text"
    context = getattr(error, "context", None)
    found = f"broken YAML ({problem}{f', {context}' if context else ''})"
    column = f"at column {mark.column + 1}: " if mark else ""
    allowed = f"{column}`key: value` lines with spaces for indentation, brackets and quotes closed"
    return ConfigError(found, file=name, line=mark.line + 1 if mark else None, allowed=allowed)


class _Builder:
    """Builds data from YAML nodes and fills the line table of a document."""

    def __init__(self, document: ParsedFile, lenient: bool) -> None:
        self.document = document
        self.lenient = lenient
        self.values = 0

    def fail(self, found: str, node: Any, path: Key, allowed: str | None = None) -> ConfigError:
        key, line = ".".join(map(str, path)) or None, node.start_mark.line + 1
        return ConfigError(found, file=self.document.name, line=line, key=key, allowed=allowed)

    def build(self, node: Any, path: Key, depth: int) -> Any:
        self.values += 1
        if self.values > _MOST_VALUES or depth > _DEEPEST:
            allowed = f"{_DEEPEST} levels, {_MOST_VALUES:,} values, no aliases that refer to themselves"
            raise self.fail(_excess(depth), node, path[:4], allowed)
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        has_local_tag = self.lenient and isinstance(node, yaml.MappingNode) and node.tag.startswith("!")
        if node.tag not in _STANDARD_TAGS and not has_local_tag:
            raise self.fail(f"the tag {shown(node.tag)}", node, path, "plain YAML without tags")
        if isinstance(node, yaml.MappingNode):
            tag = {LOCAL_TAG: node.tag.removeprefix("!")} if has_local_tag else {}
            return tag | self.mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        self.refuse_control(node, path)
        quoted = bool(node.style) and node.style in "'\"|>"
        return node.value if quoted else plain_scalar(node.value)

    def refuse_control(self, node: Any, path: Key) -> None:
        """Refuse characters that would control the terminal."""
        match = CONTROL.search(node.value)
        if match:
            found = f"the control character U+{ord(match[0]):04X} in {shown(node.value)}"
            raise self.fail(found, node, path[:-1], "text that can be printed")

    def mapping(self, node: Any, path: Key, depth: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fail("a key that is not a word", key_node, path, "a word before the colon")
            self.refuse_control(key_node, (*path, ""))
            key = key_node.value
            if key == "<<" and key_node.tag.endswith(":merge"):
                merged |= self.merge(value_node, path, depth)
                continue
            if key in data and not self.lenient:
                allowed = f"each key once; first on line {self.document.lines[*path, key]}"
                raise self.fail(f"the key `{key}` a second time", key_node, (*path, key), allowed)
            self.document.lines[*path, key] = key_node.start_mark.line + 1
            data[key] = self.build(value_node, (*path, key), depth + 1)
        return merged | data

    def merge(self, node: Any, path: Key, depth: int) -> dict[str, Any]:
        """Return the keys of `<<: *anchor`; keys of the mapping itself take precedence."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            data = self.build(source, path, depth + 1)
            if not isinstance(data, dict):
                found = "`<<` before something that is no mapping"
                raise self.fail(found, node, path, "`<<: *anchor` of a mapping")
            merged |= data
        return merged


def plain_scalar(text: str) -> Any:
    """Return the value of an unquoted word: null, true, false, a number, or the word itself."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def read_json(path: Path) -> ParsedFile:
    """Return the data of a JSON file.

    Raises
    ------
    FileError
        If it cannot be read.
    ConfigError
        If it is empty, not JSON, ends too early or holds a key twice; it names line and column.
    """
    return parse_json(read_text(path), str(path))


_KEY = re.compile(r'"([^"\\]{1,80})"\s*:')


def parse_json(text: str, name: str) -> ParsedFile:
    """Return the data of a JSON text; messages call it `name`. Errors as for `read_json`."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) != len(pairs):
            twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            raise ConfigError(f"the key {shown(twice)} a second time", file=name, allowed="each key once")
        return data

    def whole(digits: str) -> int:
        if len(digits) > _MOST_DIGITS:
            place = text.find(digits)
            keys = _KEY.findall(text[:place])
            found = f"a number of {len(digits)} digits{f' under `{keys[-1]}`' if keys else ''}"
            raise refused(found, f"at most {_MOST_DIGITS}", place)
        return int(digits)

    def refused(what: str, allowed: str, place: int) -> ConfigError:
        return ConfigError(what, file=name, line=1 + text.count("\n", 0, max(place, 0)), allowed=allowed)

    if not text.strip():
        raise ConfigError("an empty file", file=name, line=1, allowed="JSON")
    for match in (*CONTROL.finditer(text), *_ESCAPE.finditer(text)):
        if not match.re.groups or (match[1] or "").lower() not in _HARMLESS:
            what = f"the control character {shown(match[0])}"
            raise refused(what, "text that can be printed", match.start())
    try:
        return ParsedFile(name, json.loads(text, object_pairs_hook=once, parse_int=whole))
    except json.JSONDecodeError as error:
        early = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        problem = "JSON that ends too early" if early else "broken JSON"
        remedy = "a whole file, brackets and quotes closed" if early else "JSON, brackets and quotes closed"
        found = f"{problem} ({error.msg}, at column {error.colno})"
        raise ConfigError(found, file=name, line=error.lineno, allowed=remedy) from None
    except RecursionError:
        raise refused("nesting that is too deep", f"at most {_DEEPEST} levels", 0) from None
