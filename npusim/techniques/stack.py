"""Technique stacks: registry, grammar (`grad+nodepad:capacity=3000`), legality and application.

`workloads/stacks.yaml` holds named stacks.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from npusim.config import Section, load_model
from npusim.errors import ConfigError, IllegalTechniqueError, NpusimError, UnknownNameError, as_list, shown
from npusim.graph import Editor, Graph
from npusim.graph.formats import in_formats
from npusim.graph.parts import in_parts
from npusim.locate import resource
from npusim.ops import DType
from npusim.plugins import Registry
from npusim.techniques.technique import Parameters, Technique

TECHNIQUES = Registry("npusim.techniques", "technique", Technique)
"""Every technique by name, also those of other packages."""

_OWN = (
    "storage:GRAPHSPLIT", "precompute:PREG", "blocks:BLOCKS", "tiles:TILES", "tiles:CSR",
    "neighbourhoods:PADDED", "precompute:STAGR", "precompute:GRAD", "nodepad:NODEPAD", "masking:EFFOP",
    # SymG comes after GraSp: with both, the norm matrix is a triangle and all else is compressed.
    "masking:GRAX1", "masking:GRAX2", "masking:GRAX3", "quantgr:QUANTGR", "storage:GRASP", "storage:SYMG",
    "storage:CACHEG",
)  # fmt: skip
TECHNIQUES.announce(*(f"npusim.techniques.{place}" for place in _OWN))


def technique_names() -> tuple[str, ...]:
    """Return all names in the order of application: by stage, npusim's own before others."""
    return tuple(sorted(TECHNIQUES, key=_place))


def _place(name: str) -> tuple[int, tuple[bool, int, str]]:
    return TECHNIQUES[name].stage, TECHNIQUES.rank(name)


def get(name: str) -> Technique:
    """Return a technique by name, or raise an `UnknownNameError` that names the nearest one."""
    return TECHNIQUES.find(name if name in TECHNIQUES else name.lower())


def technique_with(**traits: object) -> Technique:
    """Return the first technique whose fields have all the values given.

    Examples
    --------
    >>> from npusim.ops import DType
    >>> technique_with(precision=DType.INT8).name
    'quantgr'
    """
    for name in technique_names():
        technique = TECHNIQUES[name]
        if all(getattr(technique, trait) == value for trait, value in traits.items()):
            return technique
    raise NpusimError("no technique has " + ", ".join(f"{key}={value}" for key, value in traits.items()))


NONE = "none"


@dataclass(frozen=True, slots=True)
class StackEntry:
    """One technique of a stack with its settings."""

    technique: Technique
    parameters: Parameters

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters that differ from their defaults."""
        return self.parameters.model_dump(mode="json", exclude_defaults=True)

    def __str__(self) -> str:
        words = {True: "on", False: "off"}
        texts = {key: words[v] if isinstance(v, bool) else str(v) for key, v in self.settings.items()}
        return self.technique.name + "".join(f":{key}={text}" for key, text in sorted(texts.items()))


@dataclass(frozen=True, slots=True)
class Stack:
    """Techniques in order of application; `str()` is the canonical text."""

    entries: tuple[StackEntry, ...] = ()

    def __str__(self) -> str:
        return "+".join(map(str, self.entries)) or NONE

    def __iter__(self) -> Iterator[StackEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its techniques, in order."""
        return tuple(entry.technique.name for entry in self)

    @property
    def precision(self) -> DType | None:
        """Number format of products afterwards. None: that of the graph."""
        return next((e.technique.precision for e in self.entries[::-1] if e.technique.precision), None)

    @property
    def gives_matrix(self) -> bool:
        """Whether the aggregation receives a matrix, or its weights, from outside the graph."""
        return any(entry.technique.gives_matrix for entry in self)

    def to_data(self) -> list[str | dict[str, dict[str, Any]]]:
        """Return the stack as in YAML and JSON: names, and mappings from name to settings."""
        return [
            {entry.technique.name: entry.settings} if entry.settings else entry.technique.name
            for entry in self
        ]


def parse(what: Stack | str | Sequence[Any] | None) -> Stack:
    """Return a technique stack in its order of application.

    A stack is a text, or a list, as in YAML and JSON, of texts and of mappings from the name of a technique
    to its settings. None, an empty text or list and "none" are the empty stack.

    Raises
    ------
    UnknownNameError
        For an unknown technique or setting; it names the nearest one.
    IllegalTechniqueError
        For a repeated technique, a setting without a value, or a value that is not allowed.

    Examples
    --------
    >>> str(parse("grax2:form=rank2 + nodepad:capacity=3000+grad"))
    'grad+nodepad:capacity=3000+grax2:form=rank2'
    >>> str(parse(["symg", {"nodepad": {"capacity": 3000}}]))
    'nodepad:capacity=3000+symg'
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
    return Stack(tuple(sorted(entries, key=lambda entry: _place(entry.technique.name))))


def _is_empty(item: Any) -> bool:
    return item is None or (isinstance(item, str) and item.strip().lower() in ("", NONE))


def _from_text(text: Any) -> StackEntry:
    if not isinstance(text, str):
        reason = f"a technique is a name or a mapping from a name to settings, not {shown(text)}"
        raise IllegalTechniqueError(str(text), reason)
    name, *settings = (part.strip() for part in text.strip().split(":"))
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not equals or not key or not value:
            remedy = f"write {name}:{key or 'key'}=value"
            raise IllegalTechniqueError(name, f"setting {shown(setting)} has no value", remedy)
        if key in values:
            raise IllegalTechniqueError(name, f"setting {shown(key)} stands twice")
        values[key] = value
    return _step(name, values)


def _from_mapping(item: Mapping[Any, Any]) -> StackEntry:
    if len(item) != 1:
        raise IllegalTechniqueError(str(dict(item)), "a mapping names one technique and holds its settings")
    ((name, settings),) = item.items()
    if settings is not None and not isinstance(settings, Mapping):
        reason = f"settings are a mapping from key to value, not {shown(settings)}"
        raise IllegalTechniqueError(str(name), reason)
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


def apply(graph: Graph, stack: Stack | str | Sequence[Any] | None) -> Graph:
    """Return the graph rewritten by a stack of techniques; the original does not change.

    `Graph.techniques` is then the canonical text of everything applied to it. After earlier techniques, a
    graph takes those that come later in the order. An `IllegalTechniqueError` says that a technique does not
    fit the graph or another one of the stack.
    """
    entries = parse(stack)
    rewritten, reason = _apply_legal(graph, entries)
    if reason is not None:
        raise IllegalTechniqueError(str(entries), reason)
    return in_parts(in_formats(rewritten), rewritten.meta.chunks)


def legal(graph: Graph, stack: Stack | str | Sequence[Any] | None) -> str | None:
    """Return the reason why a stack does not fit a graph, or None; errors as for `parse`."""
    return _apply_legal(graph, parse(stack))[1]


def _apply_legal(graph: Graph, entries: Stack) -> tuple[Graph, str | None]:
    """Return the graph after the legal techniques, and why the next one is illegal."""
    for entry in entries:
        reason = _illegal_because(graph, entry, entries)
        if reason is not None:
            return graph, reason
        rewritten = _rewritten(graph, entry)
        if isinstance(rewritten, str):
            return graph, rewritten
        graph = rewritten
    return graph, None


_REWRITTEN: WeakKeyDictionary[Graph, dict[str, Graph | str]] = WeakKeyDictionary()
"""What each technique made of a graph that is still in use: large graphs take seconds."""


def _rewritten(graph: Graph, entry: StackEntry) -> Graph | str:
    """Return the graph after one technique, or the technique's objection."""
    ready, name = _REWRITTEN.setdefault(graph, {}), entry.technique.name
    if str(entry) not in ready:
        applied = Stack((*parse(graph.techniques).entries, entry))
        objection = entry.technique.objection(graph, entry.parameters)
        if objection is None:
            with TECHNIQUES.blamed(name, f"technique `{name}` cannot rewrite {graph.name}"):
                result = entry.technique.rewrite(graph, entry.parameters)
                ready[str(entry)] = Editor.of(result).finish(techniques=str(applied))
        else:
            ready[str(entry)] = objection
    return ready[str(entry)]


def _illegal_because(graph: Graph, entry: StackEntry, entries: Stack) -> str | None:
    name, before = entry.technique.name, parse(graph.techniques).names
    for other in dict.fromkeys((*before, *entries.names)):
        if other in entry.technique.excludes:
            return f"{name} excludes {other}: {entry.technique.excludes[other]}"
    if name in before:
        return f"{name} has been applied to {graph.name} already"
    late = [other for other in before if _place(other) > _place(name)]
    if late:
        return (
            f"{name} comes before {late[0]}, which {graph.name} already went through: apply the whole stack "
            "to the original graph"
        )
    return None


class NamedStacks(Section):
    """A file of named lists of stacks."""

    stacks: dict[str, list[str]]
    """Lists of stacks by name; the first stack of each is its baseline."""
    added: tuple[str, ...] = ()
    """Techniques of other packages; stacks with one that is not installed are left out."""


def stacks(path: Path | None = None) -> dict[str, tuple[Stack, ...]]:
    """Return the named lists of stacks of a file; default: those that npusim ships.

    Examples
    --------
    >>> [str(stack) for stack in stacks()["storage"][:3]]
    ['none', 'stagr', 'stagr+quantgr']
    """
    return dict(_read(path or resource("workloads", "stacks.yaml")))


@cache
def _read(path: Path) -> dict[str, tuple[Stack, ...]]:
    lists: dict[str, tuple[Stack, ...]] = {}
    named = load_model(path, NamedStacks)
    absent = set(named.added).difference(technique_names())
    for name, texts in named.stacks.items():
        lists[name] = ()
        for i, text in enumerate(texts):
            if not absent.isdisjoint(re.split(r"[+:]", text)):
                continue
            try:
                lists[name] = (*lists[name], parse(text))
            except NpusimError as error:
                raise ConfigError(str(error), file=str(path), key=f"stacks.{name}.{i}") from None
    return lists


def listed(which: str) -> tuple[Stack, ...]:
    """Return a named list of stacks, or the stacks of a text with commas."""
    named = stacks()
    if which in named:
        return named[which]
    try:
        return tuple(map(parse, as_list(which) if "," in which else [which]))
    except UnknownNameError as error:
        if any(mark in which for mark in "+,:"):
            raise
        raise UnknownNameError("stack or technique", which, (*named, *error.known)) from None


def variants(graph: Graph, which: str) -> tuple[tuple[Stack, str | None], ...]:
    """Return the stacks to compare on a graph, each with the reason why it is illegal there, or None."""
    return tuple((stack, legal(graph, stack)) for stack in listed(which))


BASE = "stagr"
"""Technique that supplies the matrix of a stack that needs one, and changes nothing else."""


def completed(graph: Graph, which: str) -> tuple[tuple[Stack, ...], str | None]:
    """Return the stacks to compare, with `BASE` added if one needs it, and a sentence about that or None.

    SymG and CacheG need a matrix that an unchanged graph lacks. If `BASE` makes a stack of the list legal,
    all stacks except the empty one get it, so that they do not differ in it; a named list does not change.
    The baseline comes first: the empty stack for a single stack, else `BASE` unless the list begins with a
    legal stack.
    """
    judged = variants(graph, which)
    chosen = tuple(stack for stack, _ in judged)
    if which in stacks():
        return chosen, None
    first = (Stack(),) if len(chosen) == 1 else ()
    on_base = [stack if stack.gives_matrix else parse([BASE, *stack.to_data()]) for stack in chosen]
    completable = [
        stack
        for (stack, reason), other in zip(judged, on_base, strict=True)
        if reason is not None and other is not stack and legal(graph, other) is None
    ]
    if not completable:
        return (*first, *chosen), None
    stacked = [other if len(stack) else stack for stack, other in zip(chosen, on_base, strict=True)]
    if first or chosen[0] is completable[0]:
        stacked = [*first, parse(BASE), *stacked]
    names = " and ".join(dict.fromkeys(str(stack) for stack in completable[:2]))
    more = " and others" if len(completable) > 2 else ""
    verb = "needs" if len(completable) == 1 else "need"
    unique = tuple({str(stack): stack for stack in stacked}.values())
    return unique, f"{names}{more} {verb} a matrix: {BASE} added to every stack"
