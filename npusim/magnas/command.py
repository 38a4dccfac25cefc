"""``npusim magnas``: Vision GNNs trained as one supernet, and the search for architecture and mapping."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npusim.cli import map as limits
from npusim.cli import options as opt
from npusim.magnas.figures_command import FIGURES_EXAMPLES, figures
from npusim.magnas.train_command import TRAIN_EXAMPLES, Seed, spec_of, train

if TYPE_CHECKING:
    from npusim.magnas.block_costs import MappedSpace
    from npusim.magnas.checkpoint import Checkpoint
    from npusim.magnas.documents import ArchitectureSearch
    from npusim.magnas.search import Plan

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim magnas train -o digits
  npusim magnas search digits --population 24 --generations 8 -o found
  npusim magnas report found -o found.html
"""


@app.callback(epilog=_EXAMPLES)
def magnas() -> None:
    """Search Vision GNNs for accuracy, latency and energy: architecture, units and clocks (MaGNAS).

    Train a supernet on images, search its architectures with the exact mappings of each as fitness, map
    one, and report it all as a page.
    """


_SEARCH_EXAMPLES = """
[dim]Examples[/dim]
  npusim magnas search digits -o found
  npusim magnas search digits --soc jetson-agx-xavier --devices gpu,dla --dvfs -o found
  npusim magnas search digits --population 40 --generations 12 --max-latency 20ms -o found
  npusim magnas search digits -o found --resume --generations 100
"""
_MAP_EXAMPLES = """
[dim]Examples[/dim]
  npusim magnas map a2 --search found
  npusim magnas map S2pf100-G2f60-S3-G4p --soc core-ultra-series2 --devices npu,gpu
  npusim magnas map a0 --search found --max-transitions 2 -o front.html
"""
_REPORT_EXAMPLES = """
[dim]Examples[/dim]
  npusim magnas report found -o found.html
  npusim magnas report found --format json
"""


app.command(epilog=TRAIN_EXAMPLES)(train)
app.command(epilog=FIGURES_EXAMPLES)(figures)


def _evolution(flags: str, help: str, **settings: Any) -> Any:
    return opt.option(flags, help, panel="Evolution", **settings)


_Supernet = Annotated[Path, opt.argument("SUPERNET", "Directory that `npusim magnas train` wrote.")]
_Archive = Annotated[
    Path, opt.option("--output -o DIR", "New directory for the archive.", show_default=False)
]
_BACKBONE = "magnas-vig"
_COSTED = "--workload NAME|FILE", "Backbone that is costed, of kind vision-gnn."
_Costed = Annotated[str, opt.option(*_COSTED)]
_CostedToo = Annotated[
    str | None, opt.option(*_COSTED, default=f"{_BACKBONE}, or the search's", show_default=False)
]
_SocToo = Annotated[
    str | None,
    opt.option(
        "--soc NAME|FILE",
        "Machine: a name from `npusim list socs` or a SoC YAML.",
        default=f"{opt.DEFAULT_SOC}, or the search's",
        autocompletion=opt.complete_soc,
        show_default=False,
    ),
]
_Population = Annotated[
    int, _evolution("--population N", "Architectures of a generation.", min=4, max=100_000)
]
_Generations = Annotated[int, _evolution("--generations N", "Generations.", min=1, max=1_000_000)]
_Mutation = Annotated[
    float, _evolution("--mutation P", "Probability that a superblock is drawn anew.", min=0.0, max=1.0)
]
_Crossover = Annotated[
    float,
    _evolution("--crossover P", "Probability that it is of the other parent.", min=0.0, max=1.0),
]
_Elite = Annotated[
    float, _evolution("--elite SHARE", "Share of the population that may be parents.", min=0.0, max=1.0)
]
_Cluster = Annotated[
    str | None,
    opt.option("--cluster ADDRESS", "Score on the workers of a Dask scheduler.", show_default=False),
]


@app.command(epilog=_SEARCH_EXAMPLES)
def search(
    supernet: _Supernet,
    output: _Archive,
    workload: _Costed = _BACKBONE,
    soc: opt.SocName = opt.DEFAULT_SOC,
    settings: opt.Settings = None,
    devices: limits.Devices = None,
    dvfs: limits.Dvfs = False,
    max_latency: limits.MaxLatency = None,
    max_energy: limits.MaxEnergy = None,
    max_power: limits.MaxPower = None,
    max_transitions: limits.MaxTransitions = None,
    max_share: limits.MaxShare = None,
    population: _Population = 100,
    generations: _Generations = 50,
    mutation: _Mutation = 0.4,
    crossover: _Crossover = 0.5,
    elite: _Elite = 0.3,
    seed: Seed = 0,
    resume: opt.Resume = False,
    cores: opt.Cores = None,
    cluster: _Cluster = None,
    quiet: opt.Quiet = False,
    form: opt.Format = None,
) -> None:
    """Search a supernet's architectures for accuracy, latency and energy, each with its exact mappings.

    NSGA-II over superblocks, where an architecture counts with every mapping of its blocks that no other
    beats; beside it the same search on single units, and random search. The archive can be resumed and
    grown; `npusim magnas report` makes a page of it. Defaults are MaGNAS's. Needs the extras `gnn`, `search`.
    """
    from npusim.arch import load_soc
    from npusim.cli.output import Destination
    from npusim.magnas.block_costs import MappedSpace
    from npusim.magnas.search import Plan, Rates
    from npusim.scenario import split_settings

    destination = Destination(None, form)
    of_workload, of_soc = split_settings(settings or ())
    named = None if devices is None else tuple(name.strip().lower() for name in devices.split(","))
    kept = limits.limits_of(
        {
            "max-latency": max_latency,
            "max-energy": max_energy,
            "max-power": max_power,
            "max-transitions": max_transitions,
            "max-share": max_share,
        }
    )
    backbone, machine = spec_of(workload, of_workload), load_soc(soc, of_soc)

    from npusim.magnas.checkpoint import read_checkpoint

    trained = read_checkpoint(supernet.expanduser())
    mapped = MappedSpace(backbone, trained.task.space, machine, named, kept, dvfs)
    plan = Plan(population, generations, Rates(mutation, crossover, elite), seed)
    told = {"workload": workload, "soc_named": soc, "changed": list(settings or ())}
    with _scores(trained, supernet.expanduser(), cores, cluster) as score:
        found = _searched(trained, score, mapped, plan, output.expanduser(), resume, quiet, told)

    from npusim.magnas.page import search_page

    destination.write(lambda: search_page(found), found)


def _searched(
    trained: Checkpoint,
    score: Any,
    mapped: MappedSpace,
    plan: Plan,
    output: Path,
    resume: bool,
    quiet: bool,
    told: dict[str, Any],
) -> ArchitectureSearch:
    """Search until the last generation, or until somebody wants to stop."""
    from npusim.cli.progress import Progress, Stopper
    from npusim.magnas.search import search_architectures

    scores = f"{trained.task.source}, weights {trained.fingerprint}"
    stopper = Stopper("finishing the generation")
    with Progress("generations", quiet) as progress, stopper.listening():
        costing = replace(mapped, tell=lambda done, of: progress.share("costing blocks", done / of))
        return search_architectures(
            costing, score, scores, output, plan, resume=resume, progress=progress, stop=stopper, **told
        )


@contextmanager
def _scores(trained: Checkpoint, supernet: Path, cores: int | None, cluster: str | None) -> Iterator[Any]:
    """Lend what scores a supernet's subnets, and keeps the scores beside its checkpoint."""
    import os

    from npusim.explore.scoring_pool import on_processes
    from npusim.magnas.checkpoint import checkpoint_file
    from npusim.magnas.documents import SCORES, StoredScores

    scorer = trained.scorer()
    if cluster is not None:
        from npusim.explore.cluster import scored_on_cluster

        spread = scored_on_cluster(scorer, cluster)
    else:
        spread = on_processes(scorer, min(cores or os.cpu_count() or 1, os.cpu_count() or 1))
    with spread as score:
        file = checkpoint_file(supernet).with_name(SCORES)
        yield StoredScores(file, trained.fingerprint, trained.digest, score)


@app.command(name="map", epilog=_MAP_EXAMPLES)
def map_(
    architecture: Annotated[
        str,
        opt.argument("ARCHITECTURE", "Such as S2pf100-G2f60-S3-G4p; with --search also a0, a1 and so on."),
    ],
    found: Annotated[
        Path | None,
        opt.option(
            "--search DIR",
            "What `npusim magnas search` wrote: workload, SoC, settings and devices are its.",
            show_default=False,
        ),
    ] = None,
    workload: _CostedToo = None,
    soc: _SocToo = None,
    settings: opt.Settings = None,
    devices: limits.Devices = None,
    mapping: limits.Mapping = None,
    dvfs: limits.Dvfs = False,
    max_latency: limits.MaxLatency = None,
    max_energy: limits.MaxEnergy = None,
    max_power: limits.MaxPower = None,
    max_transitions: limits.MaxTransitions = None,
    max_share: limits.MaxShare = None,
    exponents: limits.Exponents = "1,1",
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Show every mapping of an architecture that no other beats: `npusim map` on its workload."""
    from npusim.magnas.space import parse_architecture

    if found is None:
        chosen = parse_architecture(architecture)
    else:
        from npusim.magnas.search import architecture_named, read_search

        document = read_search(found.expanduser())
        workload, soc = workload or document.workload, soc or document.soc_named or document.soc
        settings = [*document.changed, *(settings or ())]
        devices = devices or ",".join(document.units)
        chosen = architecture_named(architecture, document)
    workload = workload or _BACKBONE
    keys = chosen.keys(spec_of(workload, [one for one in settings or () if one.startswith("workload.")]))
    named = [f"workload.{key}={json.dumps(value)}" for key, value in keys.items()]
    limits.map_(
        workload, soc or opt.DEFAULT_SOC, minimise="latency,energy", devices=devices, mapping=mapping,
        dvfs=dvfs, max_latency=max_latency, max_energy=max_energy, max_power=max_power,
        max_transitions=max_transitions, max_share=max_share, exponents=exponents,
        settings=[*(settings or ()), *named], form=form, output=output,
    )  # fmt: skip


@app.command(epilog=_REPORT_EXAMPLES)
def report(
    found: Annotated[Path, opt.argument("DIR", "What `npusim magnas search` wrote.")],
    form: opt.Format = None,
    output: opt.Output = None,
) -> None:
    """Show what a search found: fronts, hypervolumes, chosen architectures and their mappings."""
    from npusim.cli.output import Destination
    from npusim.magnas.search import explored, read_search

    destination, directory = Destination(output, form), found.expanduser()
    document = read_search(directory)

    from npusim.magnas.page import search_page

    destination.write(lambda: search_page(document, lambda: explored(directory)), document)
