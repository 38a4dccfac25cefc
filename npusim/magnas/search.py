"""Searches architectures with the exact mappings of each as fitness, beside single units and chance."""

from __future__ import annotations

import hashlib
import os
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
from npusim.errors import NpusimError, UnknownNameError
from npusim.explore.scoring_pool import Score
from npusim.explore.store import MANIFEST, Store, changed_inputs, equations
from npusim.explore.sweep import Interrupted
from npusim.files import parquet_bytes
from npusim.magnas.block_costs import Costed, MappedSpace
from npusim.magnas.documents import ArchitectureSearch
from npusim.magnas.findings import Findings, found_document
from npusim.magnas.space import GENES, Architecture, parse_architecture
from npusim.studies.evolution import UNRANKED, ranked
from npusim.studies.map_front import Limits, devices_of

_TRIES = 50
"""Attempts to make new children before architectures are drawn at random."""


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
        self._sizes, self._genes, self._plan = np.asarray(sizes, np.int64), genes, plan
        self._random = np.random.default_rng([plan.seed, stream])
        self._known: set[str] = set()
        self._first = first
        self._members: list[tuple[Any, Any]] = []
        """Genes and objectives of the population, the best first."""

    def ask(self, text_of: Any) -> list[Any]:
        """Return genes of architectures that were not asked for before, fewer where none are left.

        Parameters
        ----------
        text_of : callable
            Returns the text of genes; genes of one text are one architecture.
        """
        proposed: list[Any] = []
        for turn in range(2 * _TRIES):
            if self._first is not None:
                drawn, self._first = self._first, None
            elif turn < _TRIES and len(self._members) > 1:
                drawn = self._children()
            else:
                drawn = anywhere(self._sizes, self._plan.population, self._random)
            for one in drawn:
                text = text_of(one)
                if text not in self._known:
                    self._known.add(text)
                    proposed.append(one)
                    if len(proposed) == self._plan.population:
                        return proposed
        return proposed

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
    *,
    workload: str,
    soc_named: str = "",
    changed: Sequence[str] = (),
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
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
    workload : str
        Name of the backbone.
    soc_named, changed : str, sequence of str
        Name or file of the SoC, and what was changed of SoC and backbone, to be told in the document.
    progress, stop : callable, optional
        Told of generations done and to do; asked after each whether to stop.

    Raises
    ------
    NpusimError
        Where the directory holds something else, or no architecture keeps the limits.
    Interrupted
        Where `stop` said so.
    """
    manifest = _manifest(mapped, scores, plan)
    store = Store(directory)
    store.refuse_impossible()
    if directory.is_dir():
        _refuse_other(store, manifest, resume)
    mapped.refuse_impossible()
    store.make()
    with store.locked():
        if not _refuse_other(store, manifest, resume):
            manifest.write(store.directory / MANIFEST)
        store.clear_drafts()
        run = _Run(mapped, score, store, plan)
        for generation in range(plan.generations):
            if not run.generation(generation):
                break
            if progress is not None:
                progress(generation + 1, plan.generations)
            if stop is not None and generation + 1 < plan.generations and stop():
                raise Interrupted(
                    f"stopped after {generation + 1} of {plan.generations} generations; --resume goes on"
                )
        baselines = run.baselines()
        found = found_document(mapped, run.findings, baselines, workload, scores, _settings(mapped, plan))
        found = found.model_copy(update={"soc_named": soc_named, "changed": list(changed)})
        found.write(store.directory / RESULT)
        store.finish(store.directory / MANIFEST, store.directory / RESULT)
    return found


def read_search(directory: Path) -> ArchitectureSearch:
    """Return what a search found; FileError where a file is missing or not what was written."""
    path = directory / RESULT if directory.is_dir() else directory
    found = ArchitectureSearch.read(path, "`npusim magnas search`")
    if directory.is_dir():
        Store(directory).check(path, remedy="search again")
    return found


def explored(directory: Path, most: int = 4000) -> list[tuple[float, float, float]]:
    """Return accuracy, latency (s) and energy (J) of mapped architectures of an archive, thinned evenly.

    Parameters
    ----------
    directory : Path
        The archive; of a document alone there are none.
    """
    if not directory.is_dir():
        return []
    store, found = Store(directory), []
    paths = sorted(store.chunks.glob("*.parquet"))
    store.check(*paths, remedy="search again with --resume")
    for path in paths:
        table = pq.read_table(path, columns=["accuracy", "latency_s", "energy_j"])
        rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
        found += list(rows)[:: max(1, table.num_rows * len(paths) // most)]
    return found


def _settings(mapped: MappedSpace, plan: Plan) -> dict[str, float]:
    """Return the numbers of a plan and the limits that are set, by name."""
    limits = {f"max_{name}": value for name, value in vars(mapped.limits).items() if name != "shares"}
    shares = {f"max_share_{unit}": share for unit, share in mapped.limits.shares.items()}
    numbers = asdict(plan) | limits | shares
    return {name: float(value) for name, value in numbers.items() if value is not None}


def _manifest(mapped: MappedSpace, scores: str, plan: Plan) -> ArchiveManifest:
    numbers = {key: f"{value:g}" for key, value in _settings(mapped, plan).items() if key != "generations"}
    soc = hashlib.sha256(dump_model(mapped.soc).encode()).hexdigest()[:16]
    backbone = hashlib.sha256(mapped.backbone.model_dump_json().encode()).hexdigest()[:16]
    return ArchiveManifest(
        npusim=npusim.__version__,
        inputs={
            "equations": equations(),
            "space": mapped.space.text,
            "backbone": backbone,
            "data sheet": soc,
            "devices": ", ".join(devices_of(mapped.soc, mapped.devices)),
            "operating points": "all" if mapped.operating_points else "the data sheet's",
            "scores": scores,
            **numbers,
        },
    )


def _refuse_other(store: Store, manifest: ArchiveManifest, resume: bool) -> bool:
    """Refuse an archive of something else; return whether there is one to go on with."""
    path = store.directory / MANIFEST
    if not (resume and os.path.lexists(path)):
        store.refuse_full()
        return False
    found = ArchiveManifest.read(path, "`npusim magnas search`")
    others = changed_inputs(found.inputs, manifest.inputs)
    if others:
        raise NpusimError(
            f"{store.directory}: cannot be resumed: it holds a search with another "
            f"{', another '.join(others)}; search into another directory"
        )
    return True


class _Run:
    """The three searches, generation by generation."""

    def __init__(self, mapped: MappedSpace, score: Score, store: Store, plan: Plan) -> None:
        self.mapped, self.store, self._score = mapped, store, score
        self._accuracy: dict[str, float] = {}
        self._done = store.done(plan.generations)
        self.findings = Findings(SEARCHES)
        sizes = mapped.space.sizes
        first = anywhere(sizes, plan.population, np.random.default_rng([plan.seed, len(SEARCHES)]))
        self._evolutions = {
            name: SuperblockEvolution(sizes, GENES, plan, number, first)
            for number, name in enumerate(SEARCHES)
        }

    def generation(self, index: int) -> bool:
        """Advance every search by a generation; return whether one proposed anything new."""
        space = self.mapped.space
        if self._done[index]:
            table = pq.read_table(self.store.chunk(index), columns=["architecture", "accuracy"])
            self._accuracy |= dict(zip(*(column.to_pylist() for column in table.columns), strict=True))
        genes = {
            name: one.ask(lambda genes: str(space.architecture(genes)))
            for name, one in self._evolutions.items()
        }
        architectures = {name: [space.architecture(one) for one in each] for name, each in genes.items()}
        self._take_scores({str(one) for each in architectures.values() for one in each})
        costed = {name: [self._costed(name, one) for one in each] for name, each in architectures.items()}
        for name in ("nested", "single_unit"):
            self._evolutions[name].tell(genes[name], [one.objectives for one in costed[name]])
        self.findings.add(costed)
        if not self._done[index]:
            self.store.write_chunk(index, parquet_bytes(_table(costed)))
        return any(genes.values())

    def baselines(self) -> list[tuple[Any, Costed]]:
        """Return the largest architecture of each operator, on every single unit."""
        space, unlimited = self.mapped.space, self.mapped.within(Limits())
        largest = {operator: space.homogeneous(operator, True) for operator in space.operators}
        self._take_scores({str(one) for one in largest.values()})
        return [
            (operator, unlimited.on_single_units(one, self._accuracy[str(one)]))
            for operator, one in largest.items()
        ]

    def _take_scores(self, texts: set[str]) -> None:
        """Score the architectures whose accuracy is not known."""
        missing = sorted(texts - set(self._accuracy))
        if missing:
            self._accuracy |= dict(zip(missing, self._score(missing), strict=True))

    def _costed(self, name: str, architecture: Architecture) -> Costed:
        accuracy = self._accuracy[str(architecture)]
        if name == "single_unit":
            return self.mapped.on_single_units(architecture, accuracy)
        return self.mapped.nested(architecture, accuracy)


_CHUNK = pa.schema(
    [
        ("search", pa.string()),
        ("architecture", pa.string()),
        ("accuracy", pa.float64()),
        ("keeps_limits", pa.bool_()),
        ("mapping", pa.string()),
        ("operating_points", pa.string()),
        ("latency_s", pa.float64()),
        ("energy_j", pa.float64()),
    ]
)
"""Columns of a generation's file: a row for each mapping of each architecture."""


def _table(costed: Mapping[str, list[Costed]]) -> Any:
    """Return a generation's architectures with all of their mappings as an Arrow table."""
    rows = [
        (search, architecture, one.accuracy, one.keeps_limits, mapping, points, latency_s, energy_j)
        for search, each in costed.items()
        for one in each
        for (architecture, mapping, points), (_, latency_s, energy_j) in zip(
            one.names, one.values.tolist(), strict=True
        )
    ]
    return pa.Table.from_pylist([dict(zip(_CHUNK.names, row, strict=True)) for row in rows], _CHUNK)


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
