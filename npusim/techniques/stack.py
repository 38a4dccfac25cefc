"""Techniques and their stacks: traits, registry, grammar (`grad+nodepad:capacity=3000`), legality.

`workloads/stacks.yaml` holds named stacks.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from npusim.config import Section, load_model
from npusim.errors import ConfigError, IllegalTechniqueError, NpusimError, UnknownNameError, as_list, shown
from npusim.graph import Editor, Graph
from npusim.graph.editor import in_parts
from npusim.graph.formats import in_formats
from npusim.locate import resource
from npusim.ops import Annotation, DType
from npusim.plugins import Registry

NPU_MEMORY_ONLY = "made for the memory of an NPU; none is used here, so nothing is gained"
"""Host note of techniques that only change what an NPU stores and moves."""


class Parameters(Section):
    """Settings of a technique; the text under a field is its description."""


class NoParameters(Parameters):
    """A technique without settings."""


class Stage(IntEnum):
    """When a stack applies a technique; within a stage in order of registration."""

    PREPROCESSING = 1  # places or simplifies preprocessing (GraphSplit, PreG)
    PRECOMPUTE = 2  # replaces preprocessing (StaGr, GrAd)
    SHAPES = 3  # resizes the rest (NodePad)
    OPERATORS = 4  # rewrites operators with prepared masks (EffOp, GrAx)
    PRECISION = 5  # changes number formats (QuantGr)
    STORAGE = 6  # annotates storage (GraSp, SymG) and residency (CacheG)


class EdgeData(StrEnum):
    """How the model receives preprocessing, if a technique changes that."""

    IN_GRAPH = "in_graph"  # as a matrix that the graph computes (EffOp)
    WEIGHTS = "weights"  # as an input of normalised edge weights (PreG)
    CONSTANT = "constant"  # as a constant: another data graph is another model (StaGr)
    LAID_OUT = "laid_out"  # as constants in slots or blocks, whose sizes follow from the edges
    INPUT = "input"  # as an input that the host updates (GrAd)
    CAPACITY = "capacity"  # with `capacity` for more nodes (NodePad)


@dataclass(frozen=True, slots=True)
class Technique:
    """A technique: a pure function from graph to graph, its legality, and its traits.

    Reports, studies and measurements read traits, never names: techniques of other packages work alike.
    """

    name: str
    numerics: str
    """Its effect on the results."""
    rewrite: Callable[[Graph, Any], Graph]
    """Returns the rewritten graph; not called if there is an `objection`."""
    stage: Stage
    summary: str = ""
    """One sentence: what it rewrites; default: the first paragraph of the docstring of `rewrite`."""
    needs: str = ""
    """What the graph must hold, in words for the refusal."""
    finds: Callable[[Graph, Any], object] | None = None
    """Returns what the graph holds of it; if empty, the technique refuses."""
    hint: Callable[[Graph], str] = lambda _: ""
    """Returns a hint for the refusal, such as a technique that supplies it."""
    check: Callable[[Graph, Any], str | None] = lambda graph, parameters: None
    """Returns another reason why it does not fit the graph, or None."""
    excludes: Mapping[str, str] = field(default_factory=dict)
    """Techniques that it excludes from the stack, with reasons."""
    parameters: type[Parameters] = NoParameters
    exact: bool = True
    """Whether results are equal up to rounding."""
    annotation: Annotation | None = None
    """Annotation that it makes. None: it rewrites operators or formats."""
    edges: EdgeData | None = None
    """How the model receives preprocessing. None: as before."""
    precision: DType | None = None
    """Number format of products afterwards. None: as before."""
    rationale: str = ""
    """Benefit and cost; default: the docstring of `rewrite` below its first paragraph."""
    what_if: str = ""
    """Why it does not exist yet, such as "no compiler offers it today"; empty: it exists."""
    host_note: str = ""
    """Warning of an estimate without an NPU; empty: none."""
    note: Callable[[Graph], str | None] | None = None
    """Returns the note of an estimate about the placed graph, or None."""
    source: str = ""
    """Publication that defines it."""

    def __post_init__(self) -> None:
        summary, _, rationale = (inspect.getdoc(self.rewrite) or "").partition("\n\n")
        for name, text in (("summary", summary), ("rationale", rationale)):
            object.__setattr__(self, name, getattr(self, name) or " ".join(text.split()))

    @property
    def gives_matrix(self) -> bool:
        """Whether the aggregation receives a matrix, or its weights, from outside the graph."""
        return self.edges in (EdgeData.WEIGHTS, EdgeData.CONSTANT, EdgeData.LAID_OUT, EdgeData.INPUT)

    @property
    def compiler_only(self) -> bool:
        """Whether no model file can express it, so that it cannot be measured or exported."""
        return self.annotation is not None and self.annotation is not Annotation.DEVICE

    def objection(self, graph: Graph, parameters: Any) -> str | None:
        """Return the reason why the technique does not fit a graph, or None."""
        if self.finds is None or self.finds(graph, parameters):
            return self.check(graph, parameters)
        hint = self.hint(graph)
        return f"{self.name} needs {self.needs}; {graph.name} has none" + (f" ({hint})" if hint else "")


TECHNIQUES = Registry("npusim.techniques", "technique", Technique)
"""Every technique by name, also those of other packages."""

_OWN = (
    "storage:GRAPHSPLIT", "precompute:PREG", "blocks:BLOCKS", "blocks:TILES", "blocks:CSR",
    "neighbourhoods:PADDED", "precompute:STAGR", "precompute:GRAD", "precompute:NODEPAD", "masking:EFFOP",
    # SymG comes after GraSp: with both, the norm matrix is a triangle and all else is compressed.
    "masking:GRAX1", "masking:GRAX2", "masking:GRAX3", "storage:QUANTGR", "storage:GRASP", "storage:SYMG",
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
    entries = [
        _entry(item) for item in items if str("" if item is None else item).strip().lower() not in _EMPTY
    ]
    names = [entry.technique.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise IllegalTechniqueError(name, "stands twice in the stack")
    return Stack(tuple(sorted(entries, key=lambda entry: _place(entry.technique.name))))


_EMPTY = ("", NONE)


def _entry(item: Any) -> StackEntry:
    """Return the entry of a text `name:key=value`, or of a mapping from a name to its settings."""
    if isinstance(item, str):
        name, *texts = (part.strip() for part in item.split(":"))
        pairs = [_setting(name, text) for text in texts]
        item = {name: dict(pairs)}
        if len(item[name]) < len(pairs):
            raise IllegalTechniqueError(name, "a setting stands twice")
    if not isinstance(item, Mapping) or len(item) != 1:
        reason = f"a technique is a name or a mapping from one name to its settings, not {shown(item)}"
        raise IllegalTechniqueError(str(item), reason)
    ((name, settings),) = item.items()
    if settings is not None and not isinstance(settings, Mapping):
        reason = f"settings are a mapping from key to value, not {shown(settings)}"
        raise IllegalTechniqueError(str(name), reason)
    technique, values = get(str(name)), {str(key): value for key, value in (settings or {}).items()}
    for key in values:
        if key not in technique.parameters.model_fields:
            raise UnknownNameError(f"setting of {technique.name}", key, technique.parameters.model_fields)
    try:
        return StackEntry(technique, technique.parameters.model_validate(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise IllegalTechniqueError(
            f"{technique.name}:{key}={values.get(key)}",
            f"{first['msg'][0].lower()}{first['msg'][1:]}, found {shown(values.get(key))}",
        ) from None


def _setting(name: str, text: str) -> tuple[str, str]:
    key, _, value = (part.strip() for part in text.partition("="))
    if not key or not value:
        remedy = f"write {name}:{key or 'key'}=value"
        raise IllegalTechniqueError(name, f"setting {shown(text)} has no value", remedy)
    return key, value


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
