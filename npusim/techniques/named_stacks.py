"""Named technique stacks (`workloads/stacks.yaml`), and the stacks that a what-if compares."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from npusim.config import Section, load_model
from npusim.errors import ConfigError, NpusimError, UnknownNameError
from npusim.graph import Graph
from npusim.locate import resource
from npusim.techniques.stack import Stack, legal, parse


class NamedStacks(Section):
    """A file of named lists of stacks."""

    stacks: dict[str, list[str]]
    """Lists of technique stacks in npusim's grammar, by name; the first stack of each is its baseline."""


def stacks(path: Path | None = None) -> dict[str, tuple[Stack, ...]]:
    """Return the named lists of stacks.

    Parameters
    ----------
    path : Path, optional
        A file of `NamedStacks`; left out, the one that npusim ships.

    Raises
    ------
    NpusimError
        When the file cannot be read, or holds a stack that is none; file and key are named.

    Examples
    --------
    >>> [str(stack) for stack in stacks()["storage"][:3]]
    ['none', 'stagr', 'stagr+quantgr']
    """
    return dict(_read(path or resource("workloads", "stacks.yaml")))


@cache
def _read(path: Path) -> dict[str, tuple[Stack, ...]]:
    found = {}
    for name, texts in load_model(path, NamedStacks).stacks.items():
        parsed = []
        for position, text in enumerate(texts):
            try:
                parsed.append(parse(text))
            except NpusimError as error:
                raise ConfigError(str(error), file=str(path), key=f"stacks.{name}.{position}") from None
        found[name] = tuple(parsed)
    return found


def listed(which: str) -> tuple[Stack, ...]:
    """Return a named list of stacks, or the stacks of a text that parts them by commas.

    Raises
    ------
    UnknownNameError
        For a single word that is neither the name of a list nor a stack.
    """
    named = stacks()
    if which in named:
        return named[which]
    try:
        return tuple(parse(text) for text in which.split(","))
    except UnknownNameError as error:
        if any(mark in which for mark in "+,:"):
            raise
        raise UnknownNameError("stack or technique", which, (*named, *error.known)) from None


def variants(graph: Graph, which: str) -> tuple[tuple[Stack, str | None], ...]:
    """Return the stacks to compare on a graph, each with the reason why it is illegal there, or None."""
    return tuple((stack, legal(graph, stack)) for stack in listed(which))


BASE = "stagr"
"""What completes a stack that needs a ready-made matrix: the one technique that changes nothing else."""


def completed(graph: Graph, which: str) -> tuple[tuple[Stack, ...], str | None]:
    """Return the stacks to compare, those that lack a matrix on `BASE`, and a sentence that says so.

    SymG and CacheG need a matrix that a graph out of the box has not. Where a list of stacks holds one that
    `BASE` makes legal, all of its stacks but the empty one stand on `BASE`, so that they differ in nothing
    else.

    Parameters
    ----------
    which : str
        As for `variants`. A named list is taken as it stands.

    Returns
    -------
    tuple
        The stacks, the baseline first: where stacks were completed, `BASE` itself unless the list begins with
        a legal stack; for a single stack, the empty one. And what was completed, or None.
    """
    asked = variants(graph, which)
    chosen = tuple(stack for stack, _ in asked)
    completable = [stack for stack, reason in asked if reason is not None and _legal_on_base(graph, stack)]
    empty = parse(None)
    if which in stacks() or not completable:
        return ((empty, *chosen) if len(chosen) == 1 and which not in stacks() else chosen), None
    base = parse(BASE)
    stacked = tuple(stack if not len(stack) else _on(base, stack) for stack in chosen)
    first = (empty,) if len(chosen) == 1 else ()
    if len(chosen) == 1 or chosen[0] is completable[0]:
        stacked = (*first, base, *stacked)
    names = " and ".join(dict.fromkeys(str(stack) for stack in completable[:2]))
    more = " and others" if len(completable) > 2 else ""
    stacked = tuple({str(stack): stack for stack in stacked}.values())
    return (
        stacked,
        f"{names}{more} need{'s' if len(completable) == 1 else ''} a matrix: {BASE} added to every stack",
    )


def _legal_on_base(graph: Graph, stack: Stack) -> bool:
    return not _gives_matrix(stack) and legal(graph, _on(parse(BASE), stack)) is None


def _on(base: Stack, stack: Stack) -> Stack:
    return stack if _gives_matrix(stack) else parse([*base.to_data(), *stack.to_data()])


def _gives_matrix(stack: Stack) -> bool:
    return any(entry.technique.gives_matrix for entry in stack)
