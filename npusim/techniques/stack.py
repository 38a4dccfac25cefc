"""Technique stacks: grammar (`grad+nodepad:capacity=3000`), legality, application to a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from npusim.errors import IllegalTechniqueError, UnknownNameError, shown
from npusim.graph import Editor, Graph
from npusim.ops import DType
from npusim.techniques.registry import TECHNIQUES, get, position
from npusim.techniques.technique import Parameters, Technique

NONE = "none"
"""How the empty stack is written."""


@dataclass(frozen=True, slots=True)
class StackEntry:
    """One technique of a stack with its settings."""

    technique: Technique
    parameters: Parameters

    def __str__(self) -> str:
        given = self.parameters.model_dump(mode="json", exclude_defaults=True)
        return self.technique.name + "".join(
            f":{key}={_setting_text(value)}" for key, value in sorted(given.items())
        )


@dataclass(frozen=True, slots=True)
class Stack:
    """Techniques in their legal order; `str()` is the canonical text."""

    entries: tuple[StackEntry, ...] = ()

    def __str__(self) -> str:
        return "+".join(map(str, self.entries)) or NONE

    def __iter__(self) -> Iterator[StackEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the techniques, in order."""
        return tuple(entry.technique.name for entry in self.entries)

    @property
    def precision(self) -> DType | None:
        """Number format that products run in afterwards; None: that of the graph."""
        found = [entry.technique.precision for entry in self.entries if entry.technique.precision]
        return found[-1] if found else None

    def to_data(self) -> list[str | dict[str, dict[str, Any]]]:
        """Return the stack as YAML and JSON hold it: names, and mappings from name to settings."""
        data: list[str | dict[str, dict[str, Any]]] = []
        for entry in self.entries:
            given = entry.parameters.model_dump(mode="json", exclude_defaults=True)
            data.append({entry.technique.name: given} if given else entry.technique.name)
        return data


def parse(what: Stack | str | Sequence[Any] | None) -> Stack:
    """Read a technique stack.

    Parameters
    ----------
    what : Stack, str, sequence or None
        The text of a stack; or a list, as in YAML and JSON, of texts of one technique and of mappings from a
        name to its settings. None, an empty text or list and "none" are the empty stack.

    Returns
    -------
    Stack
        In the legal order.

    Raises
    ------
    UnknownNameError
        For an unknown technique or setting; it names the nearest one.
    IllegalTechniqueError
        For a technique that stands twice, a setting without a value, or a value that is not allowed.

    Examples
    --------
    >>> str(parse("grax2:form=rank2 + nodepad:capacity=3000+grad"))
    'grad+nodepad:capacity=3000+grax2:form=rank2'
    >>> str(parse(["symg", {"nodepad": {"capacity": 3000}}]))
    'nodepad:capacity=3000+symg'
    >>> str(parse(""))
    'none'
    """
    if isinstance(what, Stack):
        return what
    items: list[Any] = []
    for item in [what] if what is None or isinstance(what, str | Mapping) else list(what):
        items.extend(item.split("+") if isinstance(item, str) else [item])
    items = [item for item in items if not _is_empty(item)]
    entries = [_from_mapping(item) if isinstance(item, Mapping) else _from_text(item) for item in items]
    names = [entry.technique.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise IllegalTechniqueError(name, "stands twice in the stack")
    return Stack(tuple(sorted(entries, key=lambda entry: position(entry.technique.name))))


def _is_empty(item: Any) -> bool:
    return item is None or (isinstance(item, str) and item.strip().lower() in ("", NONE))


def _from_text(text: Any) -> StackEntry:
    if not isinstance(text, str):
        raise IllegalTechniqueError(
            str(text), f"a technique is a name or a mapping from a name to settings, not {shown(text)}"
        )
    name, *settings = (part.strip() for part in text.strip().split(":"))
    given: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key or not value:
            raise IllegalTechniqueError(
                name, f"setting {shown(setting)} has no value", f"write {name}:{key or 'key'}=value"
            )
        if key in given:
            raise IllegalTechniqueError(name, f"setting {shown(key)} stands twice")
        given[key] = value
    return _step(name, given)


def _from_mapping(item: Mapping[Any, Any]) -> StackEntry:
    if len(item) != 1:
        raise IllegalTechniqueError(str(dict(item)), "a mapping names one technique and holds its settings")
    ((name, settings),) = item.items()
    if settings is not None and not isinstance(settings, Mapping):
        raise IllegalTechniqueError(
            str(name), f"settings are a mapping from key to value, not {shown(settings)}"
        )
    return _step(str(name), {str(key): value for key, value in (settings or {}).items()})


def _step(name: str, settings: Mapping[str, Any]) -> StackEntry:
    technique = get(name)
    known = technique.parameters.model_fields
    for key in settings:
        if key not in known:
            raise UnknownNameError(f"setting of {technique.name}", key, known)
    try:
        return StackEntry(technique, technique.parameters.model_validate(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise IllegalTechniqueError(
            f"{technique.name}:{key}={settings.get(key)}",
            f"{first['msg'][0].lower()}{first['msg'][1:]}, found {shown(settings.get(key))}",
        ) from None


def _setting_text(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def apply(graph: Graph, stack: Stack | str | Sequence[Any] | None) -> Graph:
    """Return the graph rewritten by a stack of techniques; the graph given stays as it is.

    Parameters
    ----------
    graph : Graph
        Any graph; one that techniques were applied to already takes further ones that come later in the
        order.
    stack : Stack, str or sequence
        The stack, such as "stagr+quantgr" or ["stagr", "quantgr"].

    Returns
    -------
    Graph
        With `techniques` set to the canonical text of everything applied to it. For the empty stack, the
        graph itself.

    Raises
    ------
    IllegalTechniqueError
        When a technique does not fit the graph or another of the stack; the message says why.
    """
    entries, reason, done = parse(stack), "", graph
    for entry in entries:
        reason = _illegal_because(done, entry, entries) or ""
        if reason:
            raise IllegalTechniqueError(str(entries), reason)
        done = _applied(done, entry)
    return done


def legal(graph: Graph, stack: Stack | str | Sequence[Any] | None) -> str | None:
    """Return the reason why a stack may not be applied to a graph, or None where it may.

    Unknown names and values are errors here as everywhere.
    """
    entries, done = parse(stack), graph
    for entry in entries:
        reason = _illegal_because(done, entry, entries)
        if reason is not None:
            return reason
        done = _applied(done, entry)
    return None


def _applied(graph: Graph, entry: StackEntry) -> Graph:
    before = parse(graph.techniques)
    name = entry.technique.name
    with TECHNIQUES.blamed(name, f"technique `{name}` cannot rewrite {graph.name}"):
        rewritten = entry.technique.rewrite(graph, entry.parameters)
        return Editor.of(rewritten).finish(techniques=str(Stack((*before.entries, entry))))


def _illegal_because(graph: Graph, entry: StackEntry, entries: Stack) -> str | None:
    name, before = entry.technique.name, parse(graph.techniques).names
    for other in dict.fromkeys((*before, *entries.names)):
        if other in entry.technique.excludes:
            return f"{name} excludes {other}: {entry.technique.excludes[other]}"
    if name in before:
        return f"{name} has been applied to {graph.name} already"
    late = [other for other in before if position(other) > position(name)]
    if late:
        return (
            f"{name} comes before {late[0]}, which {graph.name} already went through: apply the whole stack "
            "to the original graph"
        )
    return entry.technique.objection(graph, entry.parameters)
