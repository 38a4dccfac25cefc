"""``npusim magnas`` and its calls: a supernet of Vision GNNs, and the search in its space."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from npusim.cli.ask import DEVICES, EXPONENTS, LIMITS, MAPPING
from npusim.cli.options import FORM, QUIET, WRITTEN, Command, argument, complete_soc, option
from npusim.errors import as_list
from npusim.locate import DEFAULT_SOC

if TYPE_CHECKING:
    from npusim.api.asking import Progress
    from npusim.config.overrides import Settings
    from npusim.magnas.documents import ArchitectureSearch
    from npusim.magnas.training import Checkpoint
    from npusim.studies.placement_document import MapFront

_BACKBONE = "magnas-vig"


def search_architectures(
    supernet: str | Path,
    directory: str | Path,
    *,
    workload: str = "magnas-vig",
    soc: str | Path | None = None,
    settings: Settings = (),
    devices: str | Sequence[str] | None = None,
    dvfs: bool = False,
    population: int = 100,
    generations: int = 50,
    mutation: float = 0.4,
    crossover: float = 0.5,
    elite: float = 0.3,
    seed: int = 0,
    resume: bool = False,
    processes: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    **limits: Any,
) -> ArchitectureSearch:
    """Search a supernet's architectures for accuracy, latency and energy, each with its exact mappings.

    NSGA-II over superblocks, where an architecture counts with each of its mappings that is not dominated;
    beside it the same search on single units, and random search. The archive can be resumed and grown;
    `npusim magnas report` makes a page of it. Defaults are MaGNAS's. Needs the extras `gnn`, `search`.

    Parameters
    ----------
    supernet : str or Path
        Directory that `npusim magnas train` wrote.
    directory : str or Path
        New directory for the archive.
    workload : str
        Backbone that is costed, of kind vision-gnn.
    soc : str or Path, optional
        Machine: a name from `npusim list socs` or a SoC YAML.
    settings : settings
        Of the workload and the SoC, as for `npusim.Scenario`.
    devices : sequence of str, or str with commas, optional
        Devices to choose from, parted by commas. None: all there are
    population : int
        Architectures of a generation.
    generations : int
        Generations.
    mutation : float
        Probability that a superblock is drawn again.
    crossover : float
        Probability that it is of the other parent.
    elite : float
        Share of the population that may be parents.
    seed : int
        The same seed gives the same.
    resume : bool
        Go on with what an earlier run left in the directory.
    processes : int, optional
        Cores to use. None: all
    cluster : str, optional
        Score on the workers of a Dask scheduler.
    progress, stop : callable, optional
        Called with the generations done, their number and the present step; says whether to stop.
    **limits
        max_latency, max_energy, max_power, max_transitions, max_share: as for `npusim.map`.

    Notes
    -----
    Operating points (`dvfs`) are those of `npusim.map`.

    Command lines
    -------------
        npusim magnas search digits -o found
        npusim magnas search digits --soc jetson-agx-xavier --devices gpu,dla --dvfs -o found
        npusim magnas search digits --population 40 --generations 12 --max-latency 20ms -o found
        npusim magnas search digits -o found --resume --generations 100
    """
    from npusim.api.planning import limits_of
    from npusim.arch import load_soc
    from npusim.config.overrides import as_overrides
    from npusim.magnas.block_costs import MappedSpace
    from npusim.magnas.search import Plan
    from npusim.magnas.search import search_architectures as run
    from npusim.magnas.spec import VisionGnnSpec
    from npusim.magnas.training import read_checkpoint
    from npusim.scenario import split_settings
    from npusim.workloads import load_of_kind

    of_workload, of_soc = split_settings(settings)
    name, folder = str(soc or DEFAULT_SOC), Path(supernet).expanduser()
    backbone, machine = load_of_kind(workload, VisionGnnSpec, of_workload), load_soc(name, of_soc)
    trained = read_checkpoint(folder)
    units = tuple(device.lower() for device in as_list(devices)) or None
    mapped = MappedSpace(backbone, trained.task.space, machine, units, dvfs)
    if progress is not None:
        mapped = replace(mapped, tell=lambda done, total: progress(done / total, 1.0, "costing blocks"))
    with _scores(trained, folder, processes, cluster) as score:
        return run(
            mapped,
            score,
            f"{trained.task.source}, weights {trained.fingerprint}",
            Path(directory).expanduser(),
            Plan(seed, population, generations, mutation, crossover, elite),
            limits_of(**limits),
            resume=resume,
            progress=progress,
            stop=stop,
            workload=workload,
            soc_named=name,
            changed=[one.origin.removeprefix("--set ") for one in as_overrides(settings)],
        )


@contextmanager
def _scores(trained: Checkpoint, supernet: Path, cores: int | None, cluster: str | None) -> Iterator[Any]:
    """Lend a function that scores a supernet's subnets and keeps the scores beside its checkpoint."""
    from npusim.explore.scoring_pool import on_processes
    from npusim.magnas.documents import SCORES, stored_scores

    scorer = trained.scorer()
    if cluster is None:
        spread = on_processes(scorer, min(cores or os.cpu_count() or 1, os.cpu_count() or 1))
    else:
        from npusim.explore.cluster import scored_on_cluster

        spread = scored_on_cluster(scorer, cluster)
    with spread as score:
        file = (supernet if supernet.is_dir() else supernet.parent) / SCORES
        yield stored_scores(file, trained.fingerprint, trained.digest, score)


def map_architecture(
    architecture: str,
    *,
    search: str | Path | None = None,
    workload: str | None = None,
    soc: str | Path | None = None,
    settings: Settings = (),
    devices: str | Sequence[str] | None = None,
    **limits: Any,
) -> MapFront:
    """Show every mapping of an architecture that is not dominated: `npusim map` on its workload.

    Parameters
    ----------
    architecture : str
        Such as S2pf100-G2f60-S3-G4p; with --search also a0, a1 and so on.
    search : str or Path, optional
        What `npusim magnas search` wrote: workload, SoC, settings and devices are its.
    workload : str, optional
        Backbone that is costed, of kind vision-gnn. None: magnas-vig, or the search's
    soc : str or Path, optional
        Machine: a name from `npusim list socs` or a SoC YAML. None: core-ultra-series2, or the search's
    settings : settings
        Of the workload and the SoC, as for `npusim.Scenario`.
    devices : sequence of str, or str with commas, optional
        Devices to choose from, parted by commas. None: all there are
    **limits
        dvfs, mapping, max_latency, max_energy, max_power, max_transitions, max_share, exponents: as for
        `npusim.map`.

    Command lines
    -------------
        npusim magnas map a2 --search found
        npusim magnas map S2pf100-G2f60-S3-G4p --soc core-ultra-series2 --devices npu,gpu
        npusim magnas map a0 --search found --max-transitions 2 -o front.html
    """
    from npusim.api.planning import map as map_network
    from npusim.config.overrides import as_overrides
    from npusim.magnas.space import parse_architecture
    from npusim.magnas.spec import VisionGnnSpec
    from npusim.scenario import split_settings
    from npusim.workloads import load_of_kind

    own_settings = as_overrides(settings)
    if search is None:
        chosen = parse_architecture(architecture)
    else:
        from npusim.magnas.search import architecture_named, read_architectures

        document = read_architectures(search)
        workload, soc = workload or document.workload, soc or document.soc_named or document.soc
        own_settings = [*as_overrides(document.changed), *own_settings]
        devices = devices or list(document.units)
        chosen = architecture_named(architecture, document)
    workload = workload or _BACKBONE
    backbone = load_of_kind(workload, VisionGnnSpec, split_settings(own_settings)[0])
    keys = chosen.keys(backbone)
    own_settings += as_overrides([f"workload.{key}={json.dumps(value)}" for key, value in keys.items()])
    asked: Any = {"minimise": "latency,energy", "devices": devices, "settings": own_settings, **limits}
    return cast("MapFront", map_network(workload, soc, **asked))


_SPACE = option("LIST", panel="Space of architectures")


def _recipe(metavar: str, low: float, high: float, **settings: Any) -> Any:
    return option(metavar, panel="How it is trained", min=low, max=high, **settings)


def _evolution(metavar: str, low: float, high: float) -> Any:
    return option(metavar, panel="Evolution", min=low, max=high)


_TRAIN = Command(
    "npusim.magnas.training:train_supernet",
    {
        "images": argument("[IMAGES]"),
        "directory": option("--output -o DIR", Path, default=Path("supernet"), show_default=False),
        "workload": option("NAME|FILE"),
        **dict.fromkeys(("depths", "operators", "widths"), _SPACE),
        "epochs": _recipe("N", 1, 100_000),
        "batch": _recipe("N", 2, 100_000),
        "balanced": _recipe("N", 0, 64),
        "learning_rate": _recipe("X", 0.0, 1.0),
        "weight_decay": _recipe("X", 0.0, 1.0),
        "dropout": _recipe("SHARE", 0.0, 0.9),
        "distillation": _recipe("SHARE", 0.0, 1.0),
        "shift": _recipe("SHARE", 0.0, 0.5),
        "teacher": option("DIR", Path, panel="How it is trained", show_default=False),
        "held": option("SHARE", min=0.05, max=0.9),
        "scored": option("N", min=0, max=100_000),
        "alone": option("N", min=0, max=1000),
        "seed": option("S", min=0),
        "resume": option(),
        **QUIET,
        **FORM,
    },
    fields=("settings",),
    described="npusim.magnas.training:Recipe",
    page="npusim.magnas.page:training_page",
    counted="epochs",
    stops="finishing the epoch",
)
_FIGURES = Command(
    "npusim.magnas.figures:magnas_figures",
    {"only": option("LIST", show_default=False), **WRITTEN},
    page="npusim.magnas.page:figures_page",
    counted="tables and figures",
)
_SEARCH = Command(
    "npusim.magnas.command:search_architectures",
    {
        "supernet": argument("SUPERNET", Path),
        "directory": option("--output -o DIR", Path, show_default=False),
        "workload": option("NAME|FILE"),
        **DEVICES,
        **LIMITS,
        "population": _evolution("N", 4, 100_000),
        "generations": _evolution("N", 1, 1_000_000),
        "mutation": _evolution("P", 0.0, 1.0),
        "crossover": _evolution("P", 0.0, 1.0),
        "elite": _evolution("SHARE", 0.0, 1.0),
        "seed": option("S", min=0),
        "resume": option(),
        "processes": option("--cores N", int, min=1),
        "cluster": option("ADDRESS", show_default=False),
        **QUIET,
        **FORM,
    },
    fields=("soc", "settings"),
    described="npusim.api.planning:map",
    page="npusim.magnas.page:search_page",
    counted="generations",
    stops="finishing the generation",
)
_MAP = Command(
    "npusim.magnas.command:map_architecture",
    {
        "architecture": argument("ARCHITECTURE"),
        "search": option("DIR", Path, show_default=False),
        "workload": option("NAME|FILE", show_default=False),
        "soc": option("NAME|FILE", autocompletion=complete_soc, show_default=False),
        **DEVICES,
        **MAPPING,
        **LIMITS,
        **EXPONENTS,
        **WRITTEN,
    },
    fields=("settings",),
    described="npusim.api.planning:map",
)
_REPORT = Command(
    "npusim.magnas.search:read_architectures",
    {"directory": argument("DIR", Path), **WRITTEN},
    page="npusim.magnas.page:search_page",
    page_argument="directory",
)
COMMAND = (
    """Search Vision GNNs for accuracy, latency and energy: architecture, units and clocks (MaGNAS).

    Train a supernet on images, search its architectures with the exact mappings of each as fitness, map
    one, and report it all as a page.
    """,
    {"train": _TRAIN, "figures": _FIGURES, "search": _SEARCH, "map": _MAP, "report": _REPORT},
    """
npusim magnas train -o digits
npusim magnas search digits --population 24 --generations 8 -o found
npusim magnas report found -o found.html
""",
)
