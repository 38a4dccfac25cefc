"""Reads a YAML file into plain data and remembers on which line each key stands.

Scalars follow YAML 1.2's core rules, not PyYAML's 1.1: `on` and `no` are words, `010` is no octal and
`12:30` no number, because a data sheet's author means what is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from npusim.config.texts import read_text
from npusim.errors import ConfigError, nearest, shown

Key = tuple[str | int, ...]
"""Path of a value: keys of mappings and positions in lists."""

_MOST_VALUES = 200_000
"""More values than this, aliases expanded, is an attack or an accident, not a data sheet."""
_MOST_BYTES = 16 << 20
DEEPEST = 100
"""Levels of nesting that a file may have."""
_HARMLESS_DEPTH, _HARMLESS_LENGTH = 1000, 1 << 20
"""Openings and characters of a text that the parser, which recurses, takes whatever they are."""
_INDENTS = re.compile(r"^[ ?-]*", re.MULTILINE)

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f]")
"""Characters that a terminal obeys; tabs and line breaks are text."""
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(
    r"[-+]?([0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))([eE][-+]?[0-9]{1,3})?"
)
_STANDARD_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")
)


@dataclass
class ParsedFile:
    """What a YAML file holds."""

    name: str
    """The file, as messages call it."""
    data: Any
    """Mappings, lists and scalars."""
    lines: dict[Key, int] = field(default_factory=dict)
    """Line, from 1, of each key path."""
    files: dict[Key, str] = field(default_factory=dict)
    """The file of each key path that stands in another file than `name`."""

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
    """Return a file with the changes that another one makes.

    Mappings are merged key by key. A number (a mapping with `value`) is replaced as a whole, with its source
    and uncertainty; null leaves a key of the base out.
    """
    lines, files = dict(base.lines), {path: base.files.get(path, base.name) for path in base.lines}
    data = _merged(base.data, change, change.data, (), lines, files)
    lines[()] = change.lines.get((), 1)
    files.pop((), None)
    return ParsedFile(change.name, data, lines, files)


def _merged(
    below: Any, change: ParsedFile, above: Any, path: Key, lines: dict[Key, int], files: dict[Key, str]
) -> Any:
    sections = [isinstance(part, dict) and "value" not in part for part in (below, above)]
    if all(sections):
        data = dict(below)
        for key, value in above.items():
            inner = (*path, key)
            if value is None and key in data:
                del data[key]
            else:
                data[key] = _merged(data.get(key), change, value, inner, lines, files)
        return data
    for old in [known for known in lines if known[: len(path)] == path]:
        del lines[old]
        files.pop(old, None)
    found = {at: line for at, line in change.lines.items() if at[: len(path)] == path}
    lines.update(found)
    return above


def read_yaml(path: Path) -> ParsedFile:
    """Read a YAML file.

    Raises
    ------
    FileError
        Where it is missing, a directory, unreadable or not UTF-8.
    ConfigError
        Where it is not YAML, is empty or holds a key twice.
    """
    text = read_text(
        path, missing=lambda: _nearby(path), directory="name a YAML file in it", most=_MOST_BYTES
    )
    return compose(text, str(path))


def _nearby(path: Path) -> str:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in {".yaml", ".yml"}]
    except OSError:
        return f"there is no directory {path.parent} either"
    meant = nearest(path.name, names)
    return f"did you mean `{path.parent / meant}`?" if meant else "check the path"


def compose(text: str, name: str) -> ParsedFile:
    """Return the data of a YAML text; `name` is what messages call it."""
    try:
        _refuse_excess(text, name)
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise _broken(error, name) from None
    if node is None:
        raise ConfigError("an empty file", file=name, line=1, allowed="YAML with at least one key")
    document = ParsedFile(name, None)
    document.data = _Builder(document).build(node, (), 0)
    return document


def _refuse_excess(text: str, name: str) -> None:
    """Refuse, event by event, more nesting and more values than the parser's recursion and memory bear."""
    indents = 2 * max(map(len, _INDENTS.findall(text)), default=0)
    openings = text.count("[") + text.count("{")
    if indents + openings < _HARMLESS_DEPTH and len(text) < _HARMLESS_LENGTH:
        return
    depth = values = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        values += isinstance(event, yaml.NodeEvent)
        if depth > DEEPEST or values > _MOST_VALUES:
            found = "nesting that is too deep" if depth > DEEPEST else "too much data"
            allowed = f"at most {DEEPEST} levels of nesting and {_MOST_VALUES:,} values"
            mark: Any = event.start_mark
            raise ConfigError(found, file=name, line=mark.line + 1, allowed=allowed)


def _broken(error: yaml.YAMLError, name: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "an unreadable text"
    context = getattr(error, "context", None)
    said = f"broken YAML ({problem}{f', {context}' if context else ''})"
    column = f"at column {mark.column + 1}: " if mark else ""
    return ConfigError(
        said,
        file=name,
        line=mark.line + 1 if mark else None,
        allowed=f"{column}`key: value` lines with spaces for indentation, brackets and quotes closed",
    )


class _Builder:
    """Turns nodes into data and fills the document's line table."""

    def __init__(self, document: ParsedFile) -> None:
        self.document = document
        self.values = 0

    def fail(self, found: str, node: Any, path: Key, allowed: str | None = None) -> ConfigError:
        key = ".".join(map(str, path)) or None
        return ConfigError(
            found, file=self.document.name, line=node.start_mark.line + 1, key=key, allowed=allowed
        )

    def build(self, node: Any, path: Key, depth: int) -> Any:
        self.values += 1
        if self.values > _MOST_VALUES or depth > DEEPEST:
            found = "nesting that is too deep" if depth > DEEPEST else "too much data"
            allowed = f"{DEEPEST} levels, {_MOST_VALUES:,} values, no aliases that refer to themselves"
            raise self.fail(found, node, path[:4], allowed)
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _STANDARD_TAGS:
            raise self.fail(f"the tag {shown(node.tag)}", node, path, "plain YAML without tags")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        self.refuse_control(node, path)
        return _scalar(node)

    def refuse_control(self, node: Any, path: Key) -> None:
        """Refuse what a terminal would obey instead of showing it."""
        found = CONTROL.search(node.value)
        if found:
            shown_as = f"the control character U+{ord(found[0]):04X} in {shown(node.value)}"
            raise self.fail(shown_as, node, path[:-1], "text that can be printed")

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
            if key in data:
                first = self.document.lines[*path, key]
                raise self.fail(
                    f"the key `{key}` a second time",
                    key_node,
                    (*path, key),
                    f"each key once; first on line {first}",
                )
            self.document.lines[*path, key] = key_node.start_mark.line + 1
            data[key] = self.build(value_node, (*path, key), depth + 1)
        return merged | data

    def merge(self, node: Any, path: Key, depth: int) -> dict[str, Any]:
        """Return what `<<: *anchor` brings in; keys written beside it win."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        merged: dict[str, Any] = {}
        for source in reversed(sources):
            data = self.build(source, path, depth + 1)
            if not isinstance(data, dict):
                raise self.fail(
                    "`<<` before something that is no mapping", node, path, "`<<: *anchor` of a mapping"
                )
            merged |= data
        return merged


def _scalar(node: Any) -> Any:
    quoted = bool(node.style) and node.style in "'\"|>"
    return node.value if quoted else plain_scalar(node.value)


def plain_scalar(text: str) -> Any:
    """Return what an unquoted word means: null, true, false, a number, or the word itself."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
