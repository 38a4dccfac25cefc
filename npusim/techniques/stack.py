"""Applying a stack to a graph: one technique after the other, or a reason why not.

Like a relay: each runner takes the graph from the one before and may refuse it, and then says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npusim.errors import IllegalTechniqueError
from npusim.graph import Editor, Graph
from npusim.techniques.grammar import Stack, Step, parse
from npusim.techniques.registry import ORDER

__all__ = ["apply", "legal"]


def apply(graph: Graph, stack: Stack | str | Sequence[Any] | None) -> Graph:
    """Return the graph rewritten by a stack of techniques; the graph given stays as it is.

    Parameters
    ----------
    graph : Graph
        Any graph; one that techniques were applied to already takes further ones that come later in the
        order.
    stack : Stack, str or sequence
        The stack, in any form that `npusim.techniques.parse` reads.

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
    steps, reason, done = parse(stack), "", graph
    for step in steps:
        reason = _objection(done, step, steps) or ""
        if reason:
            raise IllegalTechniqueError(str(steps), reason)
        done = _applied(done, step)
    return done


def legal(graph: Graph, stack: Stack | str | Sequence[Any] | None) -> str | None:
    """Return the reason why a stack may not be applied to a graph, or None where it may.

    Unknown names and values are errors here as everywhere.
    """
    steps, done = parse(stack), graph
    for step in steps:
        reason = _objection(done, step, steps)
        if reason is not None:
            return reason
        done = _applied(done, step)
    return None


def _applied(graph: Graph, step: Step) -> Graph:
    before = parse(graph.techniques)
    rewritten = step.technique.rewrite(graph, step.parameters)
    return Editor.of(rewritten).finish(techniques=str(Stack((*before.steps, step))))


def _objection(graph: Graph, step: Step, steps: Stack) -> str | None:
    name, before = step.technique.name, parse(graph.techniques).names
    for other in dict.fromkeys((*before, *steps.names)):
        if other in step.technique.excludes:
            return f"{name} excludes {other}: {step.technique.excludes[other]}"
    if name in before:
        return f"{name} has been applied to {graph.name} already"
    late = [other for other in before if ORDER.index(other) > ORDER.index(name)]
    if late:
        return (
            f"{name} comes before {late[0]}, which {graph.name} already went through: apply the whole stack "
            "to the original graph"
        )
    return step.technique.check(graph, step.parameters)
