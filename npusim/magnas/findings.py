"""Results of architecture searches: fronts, hypervolumes by generation, gains over baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npusim.errors import InfeasibleError
from npusim.magnas.block_costs import Costed, MappedSpace, Points
from npusim.magnas.documents import (
    ArchitectureSearch,
    ChosenArchitecture,
    GenerationStep,
    HomogeneousBaseline,
    MappedArchitecture,
    UnitGain,
)
from npusim.magnas.space import LETTERS, parse_architecture
from npusim.studies.pareto import front, hypervolume_shares

_ERROR, _LATENCY, _ENERGY = range(3)


def merged(best: Points, costed: Sequence[Costed]) -> Points:
    """Return the front of some points and of the mappings of further architectures, by rising latency."""
    allowed = [best, *(one for one in costed if one.keeps_limits)]
    values = np.concatenate([one.values for one in allowed])
    names = [name for one in allowed for name in one.names]
    kept = front(values.T)
    order = kept[np.lexsort(values[kept].T[[_ENERGY, _LATENCY]])]
    return Points(values[order], [names[i] for i in order])


def listed(points: Points) -> list[MappedArchitecture]:
    """Return points as parts of a document."""
    rows = zip(points.names, points.values.tolist(), strict=True)
    return [MappedArchitecture(**point_fields(name, 1.0 - row[_ERROR], row)) for name, row in rows]


def point_fields(name: tuple[str, str, str], accuracy: float, values: Sequence[float]) -> dict[str, Any]:
    """Return the fields of a `MappedArchitecture`."""
    architecture, mapping, points = name
    return {
        "architecture": architecture,
        "mapping": mapping,
        "accuracy": accuracy,
        "latency_s": float(values[_LATENCY]),
        "energy_j": float(values[_ENERGY]),
        "operating_points": points,
    }


class Findings:
    """Fronts of several searches, by generation."""

    def __init__(self, searches: Sequence[str]) -> None:
        self.fronts = {name: Points(np.empty((0, 3)), []) for name in searches}
        self.evaluated = dict.fromkeys(searches, 0)
        self.history: list[tuple[int, dict[str, Points]]] = []
        """Architectures evaluated, and each front."""

    def add(self, generation: Mapping[str, Sequence[Costed]]) -> None:
        """Add a generation of every search."""
        for name, costed in generation.items():
            self.fronts[name] = merged(self.fronts[name], costed)
            self.evaluated[name] += len(costed)
        self.history.append((max(self.evaluated.values()), dict(self.fronts)))

    def steps(self) -> list[GenerationStep]:
        """Return the hypervolumes by generation, over that of all fronts together at the end."""
        together = np.concatenate([one.values for one in self.fronts.values()]).T
        if not together.shape[1]:
            return []
        return [
            GenerationStep(
                generation=number + 1,
                evaluated=evaluated,
                distributed_share=distributed_share(fronts["nested"].names),
                **dict(zip(fronts, shares, strict=True)),
            )
            for number, (evaluated, fronts) in enumerate(self.history)
            if (shares := hypervolume_shares((one.values.T for one in fronts.values()), together))
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
    operators = [one.operator for one in baselines]
    operator = "max_relative" if "max_relative" in operators else operators[0]
    own = [i for i, one in enumerate(baselines) if one.operator == operator]
    reference = min(own, key=lambda i: baselines[i].latency_s)
    chosen = _chosen(mapped, best, baselines[reference])

    def gain(i: int, name: str) -> float:
        """Return the mean over the chosen of a baseline's quantity over theirs."""
        return float(np.mean([getattr(baselines[i], name) / getattr(one, name) for one in chosen]))

    gains = [
        UnitGain(unit=baselines[i].unit, speedup=gain(i, "latency_s"), energy_gain=gain(i, "energy_j"))
        for i in own
    ]
    return ArchitectureSearch(
        workload=workload,
        soc=mapped.soc.name,
        units=dict(mapped.letters),
        space=mapped.space.text,
        points=mapped.space.points,
        scores=scores,
        settings=settings,
        steps=findings.steps(),
        front=listed(best),
        single_unit_front=listed(findings.fronts["single_unit"]),
        chance_front=listed(findings.fronts["chance"]),
        distributed_share=distributed_share(best.names),
        baselines=baselines,
        reference=reference,
        chosen=chosen,
        gains=gains,
    )


def _baselines(
    mapped: MappedSpace, homogeneous: Sequence[tuple[Any, Costed]], best: Points
) -> list[HomogeneousBaseline]:
    """Return the baselines at the data sheet's operating points, each with a point that dominates it."""
    unit_of = {letter: unit for unit, letter in mapped.letters.items()}
    baselines = []
    for operator, costed in homogeneous:
        for name, values in zip(costed.names, costed.values, strict=True):
            if name[-1] != costed.names[0][-1]:
                continue
            better = np.flatnonzero((best.values <= values).all(1) & (best.values < values).any(1))
            baselines.append(
                HomogeneousBaseline(
                    **point_fields(name, costed.accuracy, values),
                    operator=operator,
                    unit=unit_of[name[1][0]],
                    dominated_by=int(better[0]) if len(better) else None,
                )
            )
    return baselines


def _chosen(mapped: MappedSpace, best: Points, reference: HomogeneousBaseline) -> list[ChosenArchitecture]:
    """Return the points of least latency, least energy, their least product, and best accuracy."""
    error, latency_s, energy_j = best.values.T
    accurate = np.flatnonzero(error <= 1.0 - reference.accuracy + 1e-12)
    accurate = accurate if len(accurate) else np.arange(len(error))
    most_accurate = np.flatnonzero(error <= error.min() + 1e-12)
    product = latency_s * energy_j
    chosen_for: dict[int, list[str]] = {}
    for what, allowed, objective in (
        ("least latency", accurate, latency_s),
        ("least energy", accurate, energy_j),
        ("least product", accurate, product),
        ("most accurate", most_accurate, product),
    ):
        chosen_for.setdefault(int(allowed[np.argmin(objective[allowed])]), []).append(what)
    points, chosen = listed(best), []
    for i, reasons in chosen_for.items():
        point = points[i]
        blocks, letters = parse_architecture(point.architecture).superblocks, point.mapping.replace("/", "")
        chosen.append(
            ChosenArchitecture(
                **point.model_dump(),
                chosen_for=", ".join(reasons),
                operators="-".join(LETTERS[one.operator] for one in blocks),
                ffn_use=sum(one.ffn_percent > 0 for one in blocks) / len(blocks),
                preprocess_use=sum(one.preprocess for one in blocks) / len(blocks),
                unit_use={
                    unit: letters.count(letter) / len(letters) for unit, letter in mapped.letters.items()
                },
                speedup=reference.latency_s / point.latency_s,
                energy_gain=reference.energy_j / point.energy_j,
            )
        )
    return chosen
