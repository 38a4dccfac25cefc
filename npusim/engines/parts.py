"""What each part of a network costs that is compiled, launched and fed part by part."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from npusim.cost import Group, Unit, roots
from npusim.engines.estimate import LanguageFigures, OperatorCost, PartCost
from npusim.mapping import Mapped
from npusim.ops import TensorKind


def part_costs(mapped: Mapped, operators: Sequence[OperatorCost]) -> list[PartCost]:
    """Return the cost of each part in order, given that of each operator; none of a network in one piece."""
    graph = mapped.graph
    if len(graph.parts) == 1:
        return []
    constants = constants_bytes(mapped)
    return [
        _part(mapped, name, [i for i, op in enumerate(operators) if op.part == name], operators, constants)
        for name in graph.parts
    ]


def _part(
    mapped: Mapped,
    name: str,
    members: list[int],
    operators: Sequence[OperatorCost],
    constants: dict[str, float],
) -> PartCost:
    groups, ops = mapped.decisions.groups, mapped.lowered.ops
    working = [i for i in members if groups[i].unit is not Unit.VIEW]
    launch_s = sum(float(ops["launches"][i]) * launch_each_s(mapped, groups[i]) for i in working)
    critical = [operators[i].critical_s for i in members]
    return PartCost(
        name=name,
        devices=list(dict.fromkeys(groups[i].device for i in working)),
        operators=len(working),
        launches=int(sum(ops["launches"][i] for i in members)),
        launch_s=launch_s,
        latency_s=None if None in critical else launch_s + sum(s for s in critical if s is not None),
        energy_j=sum(operators[i].energy_j for i in members),
        dram_bytes=sum(operators[i].dram_bytes for i in members),
        constants_bytes=constants[name],
    )


def language_figures(mapped: Mapped, latency_s: float, energy_j: float) -> LanguageFigures | None:
    """Return the figures by the token, given time and energy of an inference; None of other networks."""
    tokens, prompt = mapped.graph.meta.new_tokens, mapped.graph.meta.prompt_tokens
    if tokens is None or prompt is None:
        return None
    return LanguageFigures(
        tokens=tokens,
        prompt_tokens=prompt,
        token_s=latency_s / tokens,
        tokens_per_s=tokens / latency_s,
        energy_per_token_j=energy_j / tokens,
        time_to_first_token_s=ceil(prompt / tokens) * latency_s,
    )


def launch_each_s(mapped: Mapped, group: Group) -> float:
    """Return the time of one call of the runtime of a group's device (s).

    Of views alone the runtime of the first NPU is called all the same.
    """
    device = group.device or next(iter(mapped.arch.arrays), "")
    return float(mapped.arch[device]["launch_s"]) if device else 0.0


def constants_bytes(mapped: Mapped) -> dict[str, float]:
    """Return the bytes of the constants that each part reads."""
    graph = mapped.graph
    found = dict.fromkeys(graph.parts, 0.0)
    root = roots(graph, mapped.decisions.groups)
    for name in graph.parts:
        read = {stored for op in graph if op.part == name for t in op.inputs for stored in root[t]}
        tensors = (graph.tensors[stored] for stored in sorted(read))
        found[name] = sum(t.stored_bytes for t in tensors if t.kind is TensorKind.CONSTANT)
    return found
