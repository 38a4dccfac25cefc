"""Searches architectures with the exact mappings of each as fitness, beside single units and chance."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

import npusim
from npusim.config import dump_model
from npusim.documents import Document
from npusim.errors import InfeasibleError, NpusimError, UnknownNameError
from npusim.explore.scoring_pool import Score
from npusim.explore.store import MANIFEST, Store, changed_inputs, equations
from npusim.explore.sweep import Interrupted
from npusim.files import parquet_bytes
from npusim.magnas import documents
from npusim.magnas.block_costs import Costed, MappedSpace, values_of
from npusim.magnas.documents import ArchitectureSearch, HomogeneousBaseline, MappedArchitecture
from npusim.magnas.space import GENES, LETTERS, Architecture, parse_architecture
from npusim.studies.evolution import UNRANKED, ranked
from npusim.studies.map_front import Limits, devices_of
from npusim.studies.pareto import front, hypervolume_shares

_TRIES = 50
"""Attempts to make new children before architectures are drawn at random."""
_ROUNDING = 1e-12
"""Difference of equal accuracies."""


@dataclass(frozen=True)
class Plan:
    """Length of a search and how children are made; defaults of MaGNAS, sections 4.2.2 and 5.1.3.

    `npusim.search_architectures` describes the fields. Section 5.1.3 has mutation 0.8 and crossover 0.4.
    """

    seed: int = 0
    population: int = 100
    generations: int = 50
    mutation: float = 0.4
    crossover: float = 0.5
    elite: float = 0.3


class SuperblockEvolution:
    """A population of architectures: `ask` proposes new ones, `tell` takes their objectives.

    Parameters
    ----------
    sizes : sequence of int
        Values of each gene.
    genes : int
        Genes of a superblock.
    stream : int
        Random stream of the plan's seed; equal seeds and streams propose equal architectures.
    first : array of int64, shape (architectures, genes), optional
        Genes that the first generation begins with, as `anywhere` draws them.
    """

    def __init__(
        self, sizes: Sequence[int], genes: int, plan: Plan, stream: int = 0, first: Any = None
    ) -> None:
        self._sizes, self._genes, self._plan, self._first = sizes, genes, plan, first
        self._random = np.random.default_rng([plan.seed, stream])
        self._known: set[str] = set()
        self._members: list[tuple[Any, Any]] = []
        """Genes and objectives of the population, the best first."""

    def ask(self, text_of: Any) -> list[Any]:
        """Return genes of architectures that were not asked for before, fewer where none are left.

        Parameters
        ----------
        text_of : callable
            Returns the text of genes; genes of one text are one architecture.
        """
        proposed: dict[str, Any] = {}
        for turn in range(2 * _TRIES):
            if self._first is not None:
                drawn, self._first = self._first, None
            elif turn < _TRIES and len(self._members) > 1:
                drawn = self._children()
            else:
                drawn = anywhere(self._sizes, self._plan.population, self._random)
            for genes in drawn:
                text = text_of(genes)
                if text not in self._known and len(proposed) < self._plan.population:
                    self._known.add(text)
                    proposed[text] = genes
            if len(proposed) == self._plan.population:
                break
        return list(proposed.values())

    def tell(self, genes: Sequence[Any], objectives: Sequence[Any]) -> None:
        """Choose the next population from this one and some architectures.

        Parameters
        ----------
        objectives : sequence of array of float, shape (points, objectives)
            Of each architecture, less is better; no points where it may not be taken.
        """
        everyone = [*self._members, *zip(genes, objectives, strict=True)]
        owners = np.repeat(np.arange(len(everyone)), [len(points) for _, points in everyone])
        values = np.concatenate([points for _, points in everyone])
        rank, crowding = ranked(values, owners, len(everyone), self._plan.population)
        order = np.lexsort([-crowding, rank])[: self._plan.population]
        self._members = [everyone[i] for i in order if rank[i] < UNRANKED]

    def _children(self) -> Any:
        """Return children of the elite, shape (population, genes)."""
        random, plan = self._random, self._plan
        parents = max(2, round(plan.elite * len(self._members)))
        elite = np.stack([genes for genes, _ in self._members[:parents]])
        first, second = elite[random.integers(0, len(elite), (2, plan.population))]
        shape = (plan.population, len(self._sizes) // self._genes)
        swapped = np.repeat(random.random(shape) < plan.crossover, self._genes, axis=1)
        mutated = np.repeat(random.random(shape) < plan.mutation, self._genes, axis=1)
        drawn = anywhere(self._sizes, plan.population, random)
        return np.where(mutated, drawn, np.where(swapped, second, first))


def anywhere(sizes: Any, count: int, random: np.random.Generator) -> Any:
    """Draw genes, all values of each of these sizes alike; array of int64, shape (count, genes)."""
    return random.integers(0, np.asarray(sizes, np.int64), (count, len(sizes)))


RESULT = "search.json"
SEARCHES = ("nested", "single_unit", "chance")


class ArchiveManifest(Document):
    """What an archive of architectures is of; a search goes on only where all of it is the same."""

    schema_: Literal["npusim.magnas-archive/1"] = Field("npusim.magnas-archive/1", alias="schema")
    """Version of this file format."""
    npusim: str
    """Version of npusim that made it."""
    inputs: dict[str, str]
    """What the search depends on, by name: a value or a fingerprint."""


def search_architectures(
    mapped: MappedSpace,
    score: Score,
    scores: str,
    directory: Path,
    plan: Plan,
    limits: Limits | None = None,
    *,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    **named: Any,
) -> ArchitectureSearch:
    """Search a space of architectures for accuracy, latency and energy.

    Parameters
    ----------
    score : callable
        Returns the accuracies of architectures, given as texts; asked once for each.
    scores : str
        What the accuracies are of; an archive of others is not gone on with.
    directory : Path
        Where the archive goes; new or empty unless `resume`.
    progress, stop : callable, optional
        Told of generations done and to do; asked after each whether to stop.
    **named
        Fields of the document: name of the backbone (`workload`), and name or file of the SoC (`soc_named`)
        and what was `changed` of both.

    Raises
    ------
    NpusimError
        Where the directory holds something else, or no architecture keeps the limits.
    Interrupted
        Where `stop` said so.
    """
    store, run = Store(directory), _Run(mapped, score, plan, limits or Limits())
    manifest = run.manifest(scores)
    store.refuse_impossible()
    if directory.is_dir():
        _refuse_other(store, manifest, resume)
    mapped.refuse_impossible(run.limits)
    store.make()
    with store.locked():
        if not _refuse_other(store, manifest, resume):
            manifest.write(store.directory / MANIFEST)
        store.clear_drafts()
        for number, is_done in enumerate(store.done(plan.generations), 1):
            if not run.generation(store, number - 1, is_done):
                break
            if progress is not None:
                progress(number, plan.generations)
            if stop is not None and number < plan.generations and stop():
                raise Interrupted(
                    f"stopped after {number} of {plan.generations} generations; --resume goes on"
                )
        document = run.document(scores, named)
        document.write(store.directory / RESULT)
        store.finish(store.directory / MANIFEST, store.directory / RESULT)
    return document


def _refuse_other(store: Store, manifest: ArchiveManifest, resume: bool) -> bool:
    """Refuse an archive of something else; return whether there is one to go on with."""
    path = store.directory / MANIFEST
    if not (resume and os.path.lexists(path)):
        store.refuse_full()
        return False
    others = changed_inputs(ArchiveManifest.read(path, "`npusim magnas search`").inputs, manifest.inputs)
    if others:
        raise NpusimError(
            f"{store.directory}: cannot be resumed: it holds a search with another "
            f"{', another '.join(others)}; search into another directory"
        )
    return True


class _Run:
    """The three searches, generation by generation, and what they find."""

    def __init__(self, mapped: MappedSpace, score: Score, plan: Plan, limits: Limits) -> None:
        self.mapped, self.plan, self.limits, self._score = mapped, plan, limits, score
        self._accuracy: dict[str, float] = {}
        self._evaluated = Counter[str]()
        self.fronts: dict[str, list[MappedArchitecture]] = {name: [] for name in SEARCHES}
        self._history: list[tuple[int, dict[str, list[MappedArchitecture]]]] = []
        """Architectures evaluated, and each front, by generation."""
        sizes = mapped.space.sizes
        first = anywhere(sizes, plan.population, np.random.default_rng([plan.seed, len(SEARCHES)]))
        self._evolutions = {
            name: SuperblockEvolution(sizes, GENES, plan, stream, first)
            for stream, name in enumerate(SEARCHES)
        }

    def settings(self) -> dict[str, float]:
        """Return the numbers of the plan and the limits that are set, by name."""
        limits = {f"max_{name}": value for name, value in vars(self.limits).items() if name != "shares"}
        shares = {f"max_share_{unit}": share for unit, share in self.limits.shares.items()}
        numbers = asdict(self.plan) | limits | shares
        return {name: float(value) for name, value in numbers.items() if value is not None}

    def manifest(self, scores: str) -> ArchiveManifest:
        """Return what the archive is of."""
        mapped = self.mapped
        numbers = {key: f"{value:g}" for key, value in self.settings().items() if key != "generations"}
        inputs = {
            "equations": equations(),
            "space": mapped.space.text,
            "backbone": hashlib.sha256(mapped.backbone.model_dump_json().encode()).hexdigest()[:16],
            "data sheet": hashlib.sha256(dump_model(mapped.soc).encode()).hexdigest()[:16],
            "devices": ", ".join(devices_of(mapped.soc, mapped.devices)),
            "operating points": "all" if mapped.operating_points else "the data sheet's",
            "scores": scores,
        }
        return ArchiveManifest(npusim=npusim.__version__, inputs=inputs | numbers)

    def generation(self, store: Store, index: int, is_done: bool) -> bool:
        """Advance every search by a generation; return whether one proposed anything new."""
        space, costed = self.mapped.space, dict[str, list[Costed]]()
        if is_done:
            table = pq.read_table(store.chunk(index), columns=["architecture", "accuracy"])
            self._accuracy |= dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
        genes = {
            name: evolution.ask(lambda own: str(space.architecture(own)))
            for name, evolution in self._evolutions.items()
        }
        proposed = {name: [space.architecture(own) for own in each] for name, each in genes.items()}
        self._take_scores([one for each in proposed.values() for one in each])
        for name, architectures in proposed.items():
            cost = self.mapped.on_single_units if name == "single_unit" else self.mapped.nested
            costed[name] = [cost(one, self._accuracy[str(one)], self.limits) for one in architectures]
            if name != "chance":
                self._evolutions[name].tell(genes[name], [one.objectives for one in costed[name]])
            found = [point for one in costed[name] if one.keeps_limits for point in one.points]
            self.fronts[name] = front_of([*self.fronts[name], *found])
            self._evaluated[name] += len(architectures)
        self._history.append((max(self._evaluated.values()), dict(self.fronts)))
        if not is_done:
            store.write_chunk(index, parquet_bytes(_table(costed)))
        return any(genes.values())

    def _take_scores(self, architectures: Sequence[Architecture]) -> None:
        """Score the architectures whose accuracy is not known."""
        missing = sorted({str(one) for one in architectures} - set(self._accuracy))
        if missing:
            self._accuracy |= dict(zip(missing, self._score(missing), strict=True))

    def document(self, scores: str, named: Mapping[str, Any]) -> ArchitectureSearch:
        """Return the document of the search.

        Raises
        ------
        InfeasibleError
            Where no architecture that was tried keeps the limits.
        """
        best, mapped = self.fronts["nested"], self.mapped
        if not best:
            raise InfeasibleError(
                f"none of {self._evaluated['nested']:,} architectures has a mapping that keeps the limits; "
                "relax them, or add generations"
            )
        baselines = self._baselines()
        operators = [one.operator for one in baselines]
        operator = "max_relative" if "max_relative" in operators else operators[0]
        own = [i for i, one in enumerate(baselines) if one.operator == operator]
        reference = min(own, key=lambda i: baselines[i].latency_s)
        chosen = self._chosen(baselines[reference])

        def gain(i: int, name: str) -> float:
            """Return the mean over the chosen of a baseline's quantity over theirs."""
            return float(np.mean([getattr(baselines[i], name) / getattr(one, name) for one in chosen]))

        return ArchitectureSearch(
            soc=mapped.soc.name,
            units=dict(mapped.letters),
            space=mapped.space.text,
            points=mapped.space.points,
            scores=scores,
            settings=self.settings(),
            steps=self._steps(),
            front=best,
            single_unit_front=self.fronts["single_unit"],
            chance_front=self.fronts["chance"],
            distributed_share=distributed_share(best),
            baselines=baselines,
            reference=reference,
            chosen=chosen,
            gains=[
                documents.UnitGain(
                    unit=baselines[i].unit, speedup=gain(i, "latency_s"), energy_gain=gain(i, "energy_j")
                )
                for i in own
            ],
            **named,
        )

    def _steps(self) -> list[documents.GenerationStep]:
        """Return the hypervolumes by generation, over that of all fronts together at the end."""
        together = values_of([point for points in self.fronts.values() for point in points]).T
        steps = []
        for number, (evaluated, fronts) in enumerate(self._history, 1):
            shares = hypervolume_shares((values_of(points).T for points in fronts.values()), together)
            step = documents.GenerationStep(
                generation=number,
                evaluated=evaluated,
                distributed_share=distributed_share(fronts["nested"]),
                **dict(zip(fronts, shares, strict=True)),
            )
            steps.append(step)
        return steps

    def _baselines(self) -> list[HomogeneousBaseline]:
        """Return the largest of each operator on single units, at the data sheet's operating points."""
        space, unit_of = self.mapped.space, {letter: unit for unit, letter in self.mapped.letters.items()}
        largest = {operator: space.homogeneous(operator, True) for operator in space.operators}
        self._take_scores(list(largest.values()))
        best, baselines = values_of(self.fronts["nested"]), []
        for operator, one in largest.items():
            points = self.mapped.on_single_units(one, self._accuracy[str(one)], Limits()).points
            for point in points:
                if point.operating_points == points[0].operating_points:
                    values = values_of([point])
                    better = np.flatnonzero((best <= values).all(1) & (best < values).any(1))
                    baseline = HomogeneousBaseline(
                        **dict(point),
                        operator=operator,
                        unit=unit_of[point.mapping[0]],
                        dominated_by=int(better[0]) if len(better) else None,
                    )
                    baselines.append(baseline)
        return baselines

    def _chosen(self, reference: HomogeneousBaseline) -> list[documents.ChosenArchitecture]:
        """Return the points of least latency, least energy, their least product, and best accuracy."""
        points = self.fronts["nested"]
        error, latency_s, energy_j = values_of(points).T
        accurate = np.flatnonzero(error <= 1.0 - reference.accuracy + _ROUNDING)
        accurate = accurate if len(accurate) else np.arange(len(error))
        most_accurate = np.flatnonzero(error <= error.min() + _ROUNDING)
        reasons: dict[int, list[str]] = {}
        for what, allowed, objective in (
            ("least latency", accurate, latency_s),
            ("least energy", accurate, energy_j),
            ("least product", accurate, latency_s * energy_j),
            ("most accurate", most_accurate, latency_s * energy_j),
        ):
            reasons.setdefault(int(allowed[np.argmin(objective[allowed])]), []).append(what)
        chosen = []
        for i, names in reasons.items():
            superblocks = parse_architecture(points[i].architecture).superblocks
            letters = points[i].mapping.replace("/", "")
            units = self.mapped.letters.items()
            architecture = documents.ChosenArchitecture(
                **dict(points[i]),
                chosen_for=", ".join(names),
                operators="-".join(LETTERS[one.operator] for one in superblocks),
                ffn_use=sum(one.ffn_percent > 0 for one in superblocks) / len(superblocks),
                preprocess_use=sum(one.preprocess for one in superblocks) / len(superblocks),
                unit_use={unit: letters.count(letter) / len(letters) for unit, letter in units},
                speedup=reference.latency_s / points[i].latency_s,
                energy_gain=reference.energy_j / points[i].energy_j,
            )
            chosen.append(architecture)
        return chosen


def front_of(points: Sequence[MappedArchitecture]) -> list[MappedArchitecture]:
    """Return the points that no other dominates, by rising latency."""
    values = values_of(points)
    kept = front(values.T)
    _, latency_s, energy_j = values[kept].T
    return [points[i] for i in kept[np.lexsort([energy_j, latency_s])]]


def distributed_share(points: Sequence[MappedArchitecture]) -> float:
    """Return the share of mappings that use several units."""
    return sum(len(set(point.mapping) - {"/"}) > 1 for point in points) / max(1, len(points))


_ARROW = {str: pa.string(), bool: pa.bool_(), float: pa.float64()}
_COLUMNS: dict[str, Any] = {"search": str, "keeps_limits": bool}
_COLUMNS |= {name: field.annotation for name, field in MappedArchitecture.model_fields.items()}
_CHUNK = pa.schema([(name, _ARROW[kind]) for name, kind in _COLUMNS.items()])
"""Columns of a generation's file: a row for each mapping of each architecture."""


def _table(costed: Mapping[str, list[Costed]]) -> Any:
    """Return a generation's architectures with all of their mappings as an Arrow table."""
    rows = [
        {"search": search, "keeps_limits": one.keeps_limits} | dict(point)
        for search, each in costed.items()
        for one in each
        for point in one.points
    ]
    return pa.Table.from_pylist(rows, _CHUNK)


def read_architectures(directory: str | Path) -> ArchitectureSearch:
    """Show what a search found: fronts, hypervolumes, chosen architectures and their mappings.

    Parameters
    ----------
    directory : str or Path
        What `npusim magnas search` wrote.

    Command lines
    -------------
        npusim magnas report found -o found.html
        npusim magnas report found --format json
    """
    folder = Path(directory).expanduser()
    path = folder / RESULT if folder.is_dir() else folder
    document = ArchitectureSearch.read(path, "`npusim magnas search`")
    if folder.is_dir():
        Store(folder).check(path, remedy="search again")
    return document


def explored(directory: Path, most: int = 4000) -> list[MappedArchitecture]:
    """Return the mapped architectures of an archive, thinned evenly.

    Parameters
    ----------
    directory : Path
        The archive; of a document alone there are none.
    """
    store, points = Store(directory), list[MappedArchitecture]()
    paths = sorted(store.chunks.glob("*.parquet"))
    store.check(*paths, remedy="search again with --resume")
    for path in paths:
        rows = pq.read_table(path, columns=list(MappedArchitecture.model_fields)).to_pylist()
        points += [MappedArchitecture(**row) for row in rows[:: max(1, len(rows) * len(paths) // most)]]
    return points


def architecture_named(text: str, search: ArchitectureSearch) -> Architecture:
    """Return the architecture that a text names: itself, or one that a search chose, as `a0`.

    Raises
    ------
    UnknownNameError
        Where the search chose fewer.
    """
    if text[:1] == "a" and text[1:].isdigit():
        chosen = {f"a{i}": one.architecture for i, one in enumerate(search.chosen)}
        if text not in chosen:
            raise UnknownNameError("chosen architecture", text, list(chosen))
        text = chosen[text]
    return parse_architecture(text)
