"""Results of architecture searches: fronts, hypervolumes by generation, gains over baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.errors import InfeasibleError
from npusim.explore.pareto import corner_of, corner_of_unit, front, hypervolume, scaled
from npusim.magnas.block_costs import Costed, MappedSpace
from npusim.magnas.documents import (
    ArchitectureSearch,
    ChosenArchitecture,
    GenerationStep,
    HomogeneousBaseline,
    MappedArchitecture,
    UnitGain,
)
from npusim.magnas.space import LETTERS, parse_architecture

_ERROR, _LATENCY, _ENERGY = range(3)


@dataclass(frozen=True)
class _Points:
    """Architectures under mappings, none of which another beats."""

    values: Any
    """Error, latency (s) and energy (J), shape (points, 3)."""
    names: list[tuple[str, str, str]]
    """Architecture, mapping, operating points."""

    def merged(self, costed: Sequence[Costed]) -> _Points:
        """Return the front of these and of further architectures."""
        values, names = [self.values], list(self.names)
        for one in costed:
            if one.keeps_limits:
                error = np.full(len(one.latency_s), 1.0 - one.accuracy)
                values.append(np.stack([error, one.latency_s, one.energy_j], 1))
                names += [
                    (one.architecture, mapping, points)
                    for mapping, points in zip(one.mappings, one.settings, strict=True)
                ]
        together = np.concatenate(values)
        kept = front(together.T)
        order = kept[np.lexsort(together[kept].T[[_ENERGY, _LATENCY]])]
        return _Points(together[order], [names[i] for i in order])

    def __getitem__(self, i: int) -> MappedArchitecture:
        architecture, mapping, points = self.names[i]
        return MappedArchitecture(
            architecture=architecture,
            mapping=mapping,
            accuracy=1.0 - float(self.values[i, _ERROR]),
            latency_s=float(self.values[i, _LATENCY]),
            energy_j=float(self.values[i, _ENERGY]),
            operating_points=points,
        )

    def listed(self) -> list[MappedArchitecture]:
        """Return all of them, by rising latency."""
        return [self[i] for i in range(len(self.names))]


class Findings:
    """Fronts of several searches, generation by generation."""

    def __init__(self, searches: Sequence[str]) -> None:
        self.fronts = {name: _Points(np.empty((0, 3)), []) for name in searches}
        self.evaluated = dict.fromkeys(searches, 0)
        self.history: list[tuple[int, dict[str, Any], float]] = []
        """Architectures evaluated, values of each front, share of distributed mappings."""

    def add(self, name: str, costed: Sequence[Costed]) -> None:
        """Take in a generation of a search."""
        self.fronts[name] = self.fronts[name].merged(costed)
        self.evaluated[name] += len(costed)

    def close_generation(self) -> None:
        """Note how far all searches are."""
        values = {name: one.values for name, one in self.fronts.items()}
        share = distributed_share(self.fronts["nested"].names)
        self.history.append((max(self.evaluated.values()), values, share))

    def steps(self) -> list[GenerationStep]:
        """Return the hypervolumes by generation, over that of all fronts together at the end."""
        together = np.concatenate([one.values for one in self.fronts.values()]).T
        if not together.shape[1]:
            return []
        corner, reference = corner_of(together[:, front(together)]), corner_of_unit(3)
        whole = hypervolume(scaled(together, corner), reference)
        return [
            GenerationStep(
                generation=number + 1,
                evaluated=evaluated,
                distributed_share=share,
                **{
                    name: hypervolume(scaled(one.T, corner), reference) / whole if len(one) else 0.0
                    for name, one in values.items()
                },
            )
            for number, (evaluated, values, share) in enumerate(self.history)
        ]


def distributed_share(names: Sequence[tuple[str, str, str]]) -> float:
    """Return the share of mappings that use several units."""
    return sum(len(set(mapping) - {"/"}) > 1 for _, mapping, _ in names) / max(1, len(names))


def found_document(
    mapped: MappedSpace,
    findings: Findings,
    homogeneous: Sequence[tuple[Any, Costed]],
    workload: str,
    scores: str,
    settings: dict[str, float],
) -> ArchitectureSearch:
    """Return the document of a search.

    Raises
    ------
    InfeasibleError
        Where no architecture that was tried keeps the limits.
    """
    best = findings.fronts["nested"]
    if not best.names:
        raise InfeasibleError(
            f"none of {findings.evaluated['nested']:,} architectures has a mapping that keeps the limits; "
            "relax them, or add generations"
        )
    baselines = _baselines(mapped, homogeneous, best)
    reference = _reference(baselines)
    chosen = _chosen(mapped, best, baselines[reference])
    return ArchitectureSearch(
        workload=workload,
        soc=mapped.soc.name,
        units=dict(mapped.letters),
        space=mapped.space.text,
        points=mapped.space.points,
        scores=scores,
        settings=settings,
        steps=findings.steps(),
        front=best.listed(),
        single_unit_front=findings.fronts["single_unit"].listed(),
        chance_front=findings.fronts["chance"].listed(),
        distributed_share=distributed_share(best.names),
        baselines=baselines,
        reference=reference,
        chosen=chosen,
        gains=_gains(chosen, baselines, baselines[reference].operator),
    )


def _baselines(
    mapped: MappedSpace, homogeneous: Sequence[tuple[Any, Costed]], best: _Points
) -> list[HomogeneousBaseline]:
    """Return the baselines at the operating points of the data sheet, each with what dominates it."""
    unit_of, found = {letter: unit for unit, letter in mapped.letters.items()}, []
    for operator, costed in homogeneous:
        for i, mapping in enumerate(costed.mappings):
            if costed.settings[i] != costed.settings[0]:
                continue
            own = np.array([1.0 - costed.accuracy, costed.latency_s[i], costed.energy_j[i]])
            better = (best.values <= own).all(1) & (best.values < own).any(1)
            first = int(np.flatnonzero(better)[0]) if better.any() else None
            found.append(
                HomogeneousBaseline(
                    architecture=costed.architecture,
                    mapping=mapping,
                    accuracy=costed.accuracy,
                    latency_s=float(costed.latency_s[i]),
                    energy_j=float(costed.energy_j[i]),
                    operating_points=costed.settings[i],
                    operator=operator,
                    unit=unit_of[mapping[0]],
                    dominated_by=first,
                )
            )
    return found


def _reference(baselines: Sequence[HomogeneousBaseline]) -> int:
    """Return the baseline of max_relative, the operator of ViG-S, on its fastest unit."""
    operators = [one.operator for one in baselines]
    operator = "max_relative" if "max_relative" in operators else operators[0]
    own = [i for i, one in enumerate(baselines) if one.operator == operator]
    return min(own, key=lambda i: baselines[i].latency_s)


def _chosen(mapped: MappedSpace, best: _Points, reference: HomogeneousBaseline) -> list[ChosenArchitecture]:
    """Return the points of least latency, of least energy, of their least product, the most accurate."""
    values = best.values
    enough = np.flatnonzero(values[:, _ERROR] <= 1.0 - reference.accuracy + 1e-12)
    enough = enough if len(enough) else np.arange(len(values))
    product = values[:, _LATENCY] * values[:, _ENERGY]
    least_error = values[:, _ERROR].min()
    most_accurate = np.flatnonzero(values[:, _ERROR] <= least_error + 1e-12)
    picked = {
        "least latency": enough[np.argmin(values[enough, _LATENCY])],
        "least energy": enough[np.argmin(values[enough, _ENERGY])],
        "least product": enough[np.argmin(product[enough])],
        "most accurate": most_accurate[np.argmin(product[most_accurate])],
    }
    for_each: dict[int, list[str]] = {}
    for what, i in picked.items():
        for_each.setdefault(int(i), []).append(what)
    return [_as_in_table_2(mapped, best[i], ", ".join(what), reference) for i, what in for_each.items()]


def _as_in_table_2(
    mapped: MappedSpace, point: MappedArchitecture, what: str, reference: HomogeneousBaseline
) -> ChosenArchitecture:
    blocks = parse_architecture(point.architecture).superblocks
    letters = point.mapping.replace("/", "")
    return ChosenArchitecture(
        **point.model_dump(),
        chosen_for=what,
        operators="-".join(LETTERS[one.operator] for one in blocks),
        ffn_use=sum(one.ffn_percent > 0 for one in blocks) / len(blocks),
        preprocess_use=sum(one.preprocess for one in blocks) / len(blocks),
        unit_use={unit: letters.count(letter) / len(letters) for unit, letter in mapped.letters.items()},
        speedup=reference.latency_s / point.latency_s,
        energy_gain=reference.energy_j / point.energy_j,
    )


def _gains(
    chosen: Sequence[ChosenArchitecture], baselines: Sequence[HomogeneousBaseline], operator: str
) -> list[UnitGain]:
    """Return the mean gains over an operator's baseline on each unit."""

    def mean(of: HomogeneousBaseline, name: str) -> float:
        return float(np.mean([getattr(of, name) / getattr(one, name) for one in chosen]))

    return [
        UnitGain(unit=one.unit, speedup=mean(one, "latency_s"), energy_gain=mean(one, "energy_j"))
        for one in baselines
        if one.operator == operator
    ]
