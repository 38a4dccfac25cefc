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
from npusim.errors import ConfigError, UnknownNameError, as_list
from npusim.locate import DEFAULT_SOC

if TYPE_CHECKING:
    from npusim.api.asking import Progress
    from npusim.config.overrides import Settings
    from npusim.magnas.documents import ArchitectureSearch, MappingFigures, SupernetTraining
    from npusim.magnas.space import ArchitectureSpace
    from npusim.magnas.training import Checkpoint
    from npusim.studies.placement_document import MapFront

_BACKBONE = "magnas-vig"


def train_supernet(
    images: str = "digits",
    directory: str | Path = "supernet",
    *,
    workload: str = "magnas-digits",
    settings: Settings = (),
    depths: str | Sequence[int] = "2,3,4",
    operators: str | Sequence[str] = "max_relative,edgeconv,graphsage,gin",
    widths: str | Sequence[int] = "30,60,100",
    epochs: int = 14,
    batch: int = 32,
    balanced: int = 2,
    learning_rate: float = 0.003,
    weight_decay: float = 0.05,
    dropout: float = 0.2,
    distillation: float = 0.5,
    shift: float = 0.1,
    teacher: str | Path | None = None,
    held: float = 0.5,
    scored: int = 24,
    alone: int = 0,
    seed: int = 0,
    resume: bool = False,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> SupernetTraining:
    """Train a supernet on images: one set of weights for every architecture of the space.

    Sandwich rule: each step trains the largest and the smallest subnet, each with one operator throughout,
    and random ones between, which also learn from the largest. Subnets are scored on images that training
    did not see. The digits take about 3 minutes on one core. Needs the extra `gnn`.

    Parameters
    ----------
    images : str
        digits (scikit-learn's), or a folder of a folder a class.
    directory : str or Path
        New directory for checkpoint and scores.
    workload : str
        Backbone, a workload of kind vision-gnn.
    settings : settings
        Of the workload; paths begin with `workload`.
    depths : sequence of int, or str with commas
        Blocks of a superblock.
    operators : sequence of str, or str with commas
        Graph operators.
    widths : sequence of int, or str with commas
        Hidden features of feed-forward networks, in % of the channels.
    epochs : int
        Epochs.
    batch : int
        Images of a step.
    balanced : int
        Random subnets of a step beside largest and smallest.
    learning_rate : float
        Of the first step.
    weight_decay : float
        Of all weights.
    dropout : float
        In the classifier.
    distillation : float
        What subnets learn from a teacher.
    shift : float
        Most that images are moved, of their side.
    teacher : str or Path, optional
        A supernet trained earlier on the same classes. None: the largest subnet of each step
    held : float
        Images that training does not see: half score, half test.
    scored : int
        Random subnets that are scored afterwards.
    alone : int
        So many of these are trained alone too, to compare the order.
    seed : int
        The same seed gives the same.
    resume : bool
        Go on with what an earlier run left in the directory.
    progress, stop : callable, optional
        Called with the share that is done, 1.0 and the present step; says whether to stop after the epoch.

    Command lines
    -------------
        npusim magnas train -o digits
        npusim magnas train --epochs 30 --alone 8 -o digits
        npusim magnas train flowers --workload magnas-vig --epochs 150 --batch 320 -o supernet
        npusim magnas train -o digits --resume
    """
    space = _space_of(depths, operators, widths)

    from npusim.api.asking import of_workload, telling
    from npusim.magnas.spec import VisionGnnSpec
    from npusim.workloads import load_of_kind

    backbone = load_of_kind(workload, VisionGnnSpec, of_workload(settings, ": training knows no machine"))

    from npusim.magnas.training import Recipe, Task, read_checkpoint, run_training

    recipe = Recipe(epochs, batch, balanced, learning_rate, weight_decay, dropout, distillation, shift, seed)
    taught_by = None if teacher is None else read_checkpoint(Path(teacher))
    fingerprint = "" if taught_by is None else taught_by.fingerprint
    return run_training(
        Task(workload, backbone, space, images, held, recipe, fingerprint),
        Path(directory).expanduser(),
        teacher=taught_by,
        scored=scored,
        alone=alone,
        resume=resume,
        tell=telling(progress) or (lambda step, share: None),
        stop=stop,
    )


def _space_of(
    depths: str | Sequence[int], operators: str | Sequence[str], widths: str | Sequence[int]
) -> ArchitectureSpace:
    """Return the space of architectures that arguments say."""
    from npusim.magnas.space import LETTERS, ArchitectureSpace

    def numbers(option: str, listed: str | Sequence[int], most: int) -> tuple[int, ...]:
        texts = as_list(listed)
        if not all(text.isdigit() and 1 <= int(text) <= most for text in texts):
            allowed = f"whole numbers of 1 to {most} parted by commas"
            raise ConfigError(f"`{listed}`", file=option, allowed=allowed)
        return tuple(sorted({int(text) for text in texts}))

    names = as_list(operators)
    for name in names:
        if name not in LETTERS:
            raise UnknownNameError("graph operator", name, LETTERS)
    return ArchitectureSpace(
        depths=numbers("--depths", depths, 64),
        operators=tuple(name for name in LETTERS if name in names),
        widths_percent=numbers("--widths", widths, 1000),
    )


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
    name = str(soc or DEFAULT_SOC)
    backbone, machine = load_of_kind(workload, VisionGnnSpec, of_workload), load_soc(name, of_soc)
    folder = Path(supernet).expanduser()
    trained = read_checkpoint(folder)
    units = tuple(device.lower() for device in as_list(devices)) or None
    mapped = MappedSpace(backbone, trained.task.space, machine, units, limits_of(**limits), dvfs)
    if progress is not None:
        mapped = replace(mapped, tell=lambda done, total: progress(done / total, 1.0, "costing blocks"))
    with _scores(trained, folder, processes, cluster) as score:
        return run(
            mapped,
            score,
            f"{trained.task.source}, weights {trained.fingerprint}",
            Path(directory).expanduser(),
            Plan(seed, population, generations, mutation, crossover, elite),
            workload=workload,
            soc_named=name,
            changed=[one.origin.removeprefix("--set ") for one in as_overrides(settings)],
            resume=resume,
            progress=progress,
            stop=stop,
        )


@contextmanager
def _scores(trained: Checkpoint, supernet: Path, cores: int | None, cluster: str | None) -> Iterator[Any]:
    """Lend a function that scores a supernet's subnets and keeps the scores beside its checkpoint."""
    from npusim.explore.scoring_pool import on_processes
    from npusim.magnas.documents import SCORES, stored_scores
    from npusim.magnas.training import checkpoint_file

    scorer = trained.scorer()
    if cluster is not None:
        from npusim.explore.cluster import scored_on_cluster

        spread = scored_on_cluster(scorer, cluster)
    else:
        spread = on_processes(scorer, min(cores or os.cpu_count() or 1, os.cpu_count() or 1))
    with spread as score:
        file = checkpoint_file(supernet).with_name(SCORES)
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
        from npusim.magnas.search import architecture_named, read_search

        document = read_search(Path(search).expanduser())
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
    from npusim.magnas.search import read_search

    return read_search(Path(directory).expanduser())


def magnas_figures(
    only: str | Sequence[str] | None = None, progress: Progress | None = None
) -> MappingFigures:
    """Show MaGNAS's tables and figures of mapping, operating points and search beside the paper's.

    Tables 3 to 5 and Figures 7 and 8 are of a Jetson AGX Xavier's GPU and DLA, Figures 9 and 10 of three
    arrays with other dataflows. Numbers that the paper gives stand beside ours; its statements about
    directions are shown to hold or not.

    Parameters
    ----------
    only : sequence of str, or str with commas, optional
        Of table3, table4, table5, figure7, figure8, figure9, figure10, parted by commas. None: all
    progress : callable, optional
        Called with the tables and figures done and their number.

    Command lines
    -------------
        npusim magnas figures
        npusim magnas figures --only table3,figure8
        npusim magnas figures -o figures.json
    """
    from npusim.magnas.figures import mapping_figures

    return mapping_figures([name.lower() for name in as_list(only)], progress or (lambda done, total: None))


_SPACE = option("LIST", panel="Space of architectures")


def _recipe(metavar: str, low: float, high: float, **settings: Any) -> Any:
    return option(metavar, panel="How it is trained", min=low, max=high, **settings)


def _evolution(metavar: str, low: float, high: float) -> Any:
    return option(metavar, panel="Evolution", min=low, max=high)


_TRAIN = Command(
    "npusim.magnas.command:train_supernet",
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
    page="npusim.magnas.page:training_page",
    counted="epochs",
    stops="finishing the epoch",
)
_FIGURES = Command(
    "npusim.magnas.command:magnas_figures",
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
    "npusim.magnas.command:read_architectures",
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
