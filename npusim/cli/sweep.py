"""``npusim sweep``: evaluate every point of a design space."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

from npusim.cli.options import Cores, Format, Quiet, Resume, SpaceName, option
from npusim.errors import ConfigError, NpusimError, shown

_ANSWER_S = 5.0
"""Time for a scheduler to answer."""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)

_EXAMPLES = """
[dim]Examples[/dim]
  npusim sweep gcn-cora -o results
  npusim sweep my_space.yaml -o results --keep top:100
  npusim sweep my_space.yaml -o results --resume
  npusim sweep my_space.yaml -o results --scheduler tcp://192.168.0.10:8786
"""


@app.command(epilog=_EXAMPLES)
def sweep(
    space: SpaceName,
    output: Annotated[Path, option("--output -o DIR", "New directory for the results.", show_default=False)],
    keep: Annotated[
        str | None,
        option(
            "--keep all|pareto|top:N",
            "Points to write: all, those that no other beats, or the N best in the first metric "
            "that the space minimises.",
            default="what the space says",
        ),
    ] = None,
    resume: Resume = False,
    scheduler: Annotated[
        str | None,
        option("--scheduler tcp://HOST:PORT", "Evaluate on the workers of a Dask scheduler."),
    ] = None,
    cores: Cores = None,
    chunk: Annotated[
        int | None,
        option("--chunk N", "Points of a chunk, the unit of work on disk and of resuming.", min=1),
    ] = None,
    intervals: Annotated[
        bool | None,
        option(
            "--intervals/--no-intervals",
            "Give kept points the 90 % interval of their latency, where at most 1000 are kept.",
            default="where the SoC was fitted to measurements",
            show_default=False,
        ),
    ] = None,
    quiet: Quiet = False,
    form: Format = None,
) -> None:
    """Evaluate every point of a design space; results are Parquet files, one per chunk.

    Ctrl-C finishes the chunk; `--resume` goes on, also after a crash. Then: `npusim pareto DIR`,
    `npusim query DIR "SELECT ..."`.
    """
    from npusim.cli.inputs import use_cores
    from npusim.cli.output import Destination
    from npusim.cli.progress import Progress, Stopper
    from npusim.explore import load_space
    from npusim.explore import sweep as run

    destination = Destination(None, form)
    loaded = load_space(space)
    _check_keep(keep)
    use_cores(cores)
    runner = _runner(scheduler)
    stopper = Stopper("finishing the chunk")
    with Progress("points", quiet, rate=True) as progress, stopper.listening():
        result = run(
            loaded,
            output,
            keep=keep,
            resume=resume,
            chunk=chunk,
            runner=runner,
            progress=progress,
            stop=stopper,
            intervals=intervals,
        )

    from npusim.report.exploration import sweep_page

    destination.write(lambda: sweep_page(result, space), result)


def _check_keep(keep: str | None) -> None:
    """Refuse a wrong `--keep` before any work."""
    from npusim.explore import parse_keep

    if keep is None:
        return
    try:
        parse_keep(keep)
    except ValueError as error:
        raise NpusimError(f"--keep: {error}") from None


def _runner(scheduler: str | None) -> Any:
    """Return what runs chunks on a cluster; None runs them here."""
    if scheduler is None:
        return None
    found = re.fullmatch(r"(?:tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})/?", scheduler)
    if not found or not 0 < int(found[2]) < 1 << 16:
        allowed = "tcp://HOST:PORT, such as tcp://192.168.0.10:8786"
        raise ConfigError(shown(scheduler), file="--scheduler", allowed=allowed)
    from npusim.explore.cluster import on_cluster

    try:
        socket.create_connection((found[1].strip("[]"), int(found[2])), timeout=_ANSWER_S).close()
    except (OSError, UnicodeError) as error:
        what = f"no Dask scheduler answers at {shown(scheduler)} ({error})"
        raise ConfigError(what, file="--scheduler", allowed="one that runs: dask scheduler") from None
    return on_cluster(scheduler)
