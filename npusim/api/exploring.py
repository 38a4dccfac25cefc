"""Calls that explore a design space, and those that list, explain and collect.

The docstrings are the help of the command line too: what stands under a parameter is shown beside its option.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError, NpusimError, UnknownNameError, shown
from npusim.plugins import announced
from npusim.reporting.pages import DOCUMENTS, loaded

if TYPE_CHECKING:
    from npusim.api.asking import Progress
    from npusim.catalogues import Listing
    from npusim.documents import Document
    from npusim.explore import Space, SweepResult
    from npusim.explore.fronts import Front
    from npusim.explore.search import SearchResult
    from npusim.reporting.pages import Result

_SCHEMA = "npusim.space/1"
_ANSWER_S = 5.0
"""Time for a scheduler to answer."""
_ADDRESS = re.compile(r"(?:tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})/?")
READ_FILES = {
    "soc": "npusim.arch:Soc",
    "workload": "npusim.workloads:workload_file",
    "dataset": "npusim.workloads:DatasetStatistics",
    "stacks": "npusim.techniques.stack:NamedStacks",
    "toolchain": "npusim.arch.loading:Toolchain",
    "suite": "npusim.validation:Suite",
    "space": "npusim.explore:Space",
    "measurement-suite": "npusim.measuring.suites:MeasurementSuite",
}
"""Module and model, or function that returns the model, of each kind of file that npusim reads."""
REPORTED = "a JSON file that npusim wrote, the directory of a sweep, or a command in quotes"


def sweep(
    space: str | Path | Space | Mapping[str, Any],
    directory: str | Path | None = None,
    *,
    keep: str | None = None,
    resume: bool = False,
    scheduler: str | None = None,
    chunk: int | None = None,
    intervals: bool | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> SweepResult:
    """Evaluate every point of a design space; results are Parquet files, one per chunk.

    Ctrl-C finishes the chunk; `--resume` goes on, also after a crash. Then: `npusim pareto DIR`,
    `npusim query DIR "SELECT ..."`.

    Parameters
    ----------
    space : str, Path, Space or mapping
        A design space: a shipped name such as gcn-cora, or a YAML file (`npusim schema space`).
    directory : str or Path, optional
        New directory for the results.
    keep : str, optional
        Points to write: all, those that are not dominated, or the N best in the first metric that the space
        minimises. None: what the space says
    resume : bool
        Go on with what an earlier run left in the directory.
    scheduler : str, optional
        Evaluate on the workers of a Dask scheduler.
    chunk : int, optional
        Points of a chunk, the unit of work on disk and of resuming.
    intervals : bool, optional
        Give kept points the 90 % interval of their latency, where at most 1000 are kept. None: where the SoC
        was fitted to measurements
    progress, stop : callable, optional
        Called with the points done and their number; says whether to stop after the chunk.

    Returns
    -------
    SweepResult
        Its points by `records()` and `to_frame()`; `npusim.pareto` and `npusim.query` take it too. Without
        `directory` they live as long as the result.

    Notes
    -----
    A mapping needs no `schema`, and the values of an axis may stand as a plain list. Without a directory a
    mapping that does not say what to keep keeps all points.

    Examples
    --------
    >>> import npusim
    >>> swept = npusim.sweep({"workload": "gcn-cora", "axes": {"npu.tiles": [1, 2, 4]}})
    >>> [record["npu.tiles"] for record in swept.records()]
    [1, 2, 4]
    """
    from npusim.explore import parse_keep
    from npusim.explore import sweep as run

    if directory is None and isinstance(space, Mapping) and keep is None and "keep" not in space:
        keep = "all"
    design = space_of(space)
    if keep is not None:
        try:
            parse_keep(keep)
        except ValueError as error:
            raise NpusimError(f"--keep: {error}") from None
    target = Path(tempfile.mkdtemp(prefix="npusim-sweep-")) / "points" if directory is None else directory
    try:
        result = run(
            design,
            target,
            keep=keep,
            resume=resume,
            chunk=chunk,
            runner=_runner(scheduler),
            progress=progress,
            stop=stop,
            intervals=intervals,
        )
    except BaseException:
        if directory is None:
            shutil.rmtree(Path(target).parent, ignore_errors=True)
        raise
    if directory is None:
        weakref.finalize(result, shutil.rmtree, Path(target).parent, ignore_errors=True)
    return result


def space_of(space: str | Path | Space | Mapping[str, Any]) -> Space:
    """Return a design space from its name, its file or a mapping, in which axes may be plain lists."""
    from npusim.explore import load_space

    if isinstance(space, Mapping):
        axes = {path: _axis(axis) for path, axis in space.get("axes", {}).items()}
        space = {"schema": _SCHEMA, **space, "axes": axes}
    return load_space(space)


def _axis(axis: Any) -> Any:
    is_list = isinstance(axis, Sequence) and not isinstance(axis, str)
    return {"values": axis} if is_list else axis


def _runner(scheduler: str | None) -> Any:
    """Return what runs chunks on a cluster; None runs them here."""
    if scheduler is None:
        return None
    address = _ADDRESS.fullmatch(scheduler)
    if not address or not 0 < int(address[2]) < 1 << 16:
        allowed = "tcp://HOST:PORT, such as tcp://192.168.0.10:8786"
        raise ConfigError(shown(scheduler), file="--scheduler", allowed=allowed)
    from npusim.explore.cluster import on_cluster

    try:
        socket.create_connection((address[1].strip("[]"), int(address[2])), timeout=_ANSWER_S).close()
    except (OSError, UnicodeError) as error:
        what = f"no Dask scheduler answers at {shown(scheduler)} ({error})"
        raise ConfigError(what, file="--scheduler", allowed="one that runs: dask scheduler") from None
    return on_cluster(scheduler)


def _directory(swept: str | Path | SweepResult) -> str | Path:
    return swept if isinstance(swept, str | Path) else swept.directory


def pareto(
    directory: str | Path | SweepResult,
    minimise: str | Sequence[str] | None = None,
    where: str | None = None,
    maximise: str | Sequence[str] | None = None,
) -> Front:
    """Find the front of a sweep: the points that are not dominated, and the knee among them.

    Parameters
    ----------
    directory : str, Path or SweepResult
        Directory that `npusim sweep` wrote.
    minimise : sequence of str, or str with commas, optional
        Metrics parted by commas, such as latency_s,energy_j,area_mm2. None: what the space says
    where : str, optional
        A condition, such as '"npu.tiles" <= 4'.
    maximise : sequence of str, or str with commas, optional
        Metrics of which more is better, such as throughput_per_s. None: what the space says

    Examples
    --------
    >>> import npusim
    >>> swept = npusim.sweep({"workload": "gcn-cora", "axes": {"npu.tiles": [1, 2, 4]}})
    >>> npusim.pareto(swept, "latency_s,area_mm2").front
    3
    """
    from npusim.explore.fronts import pareto as front_of

    return front_of(_directory(directory), minimise, where, maximise)


def query(directory: str | Path | SweepResult, sql: str, most: int | None = None) -> Any:
    """Ask the results of a sweep in SQL (DuckDB).

    Parameters
    ----------
    directory : str, Path or SweepResult
        Directory that `npusim sweep` wrote.
    sql : str
        A query of the table `points`: a column for each axis by its path, in double quotes, and one for each
        metric.
    most : int, optional
        Rows beyond which the query is refused.

    Returns
    -------
    pyarrow.Table

    Examples
    --------
    >>> import npusim
    >>> swept = npusim.sweep({"workload": "gcn-cora", "axes": {"npu.tiles": [1, 2, 4]}})
    >>> npusim.query(swept, "SELECT count(*) AS points FROM points").to_pylist()
    [{'points': 3}]
    """
    from npusim.explore.query import query as ask

    return ask(_directory(directory), sql, most)


def search(
    space: str | Path | Space | Mapping[str, Any],
    directory: str | Path,
    budget: int,
    *,
    minimise: str | Sequence[str] | None = None,
    maximise: str | Sequence[str] | None = None,
    seed: int = 0,
    population: int | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> SearchResult:
    """Search a space for its front by evolution (NSGA-II), with random search as the yardstick.

    Parameters
    ----------
    space : str, Path, Space or mapping
        A design space: a shipped name such as gcn-cora, or a YAML file (`npusim schema space`).
    directory : str or Path
        New directory for front and log.
    budget : int
        Points to evaluate.
    minimise : sequence of str, or str with commas, optional
        Metrics parted by commas, such as latency_s,energy_j,area_mm2. None: what the space says
    maximise : sequence of str, or str with commas, optional
        Metrics of which more is better, such as throughput_per_s. None: what the space says
    seed : int
        The same seed finds the same.
    population : int, optional
        Points of a generation. None: about the square root of the budget
    resume : bool
        Go on with what an earlier run left in the directory.
    progress, stop : callable, optional
        Called with the evaluations done and to do; says whether to stop after the generation.
    """
    from npusim.explore.fronts import with_objectives
    from npusim.explore.search import search as run

    return run(
        with_objectives(space_of(space), minimise, maximise),
        directory,
        budget=budget,
        seed=seed,
        population=population,
        resume=resume,
        progress=progress,
        stop=stop,
    )


def list(catalogue: str) -> Listing:
    """List machines, workloads, techniques, operators, validation suites or design spaces.

    Parameters
    ----------
    catalogue : {"socs", "workloads", "techniques", "ops", "suites", "spaces"}
        socs: machines; workloads: networks by name; techniques; ops: operator types; suites: published
        figures to check against; spaces: designs to sweep.

    Examples
    --------
    >>> import npusim
    >>> npusim.list("ops").entries[0]["name"]
    'Abs'
    """
    from npusim.catalogues import CATALOGUES, listing

    if catalogue not in CATALOGUES:
        raise UnknownNameError("catalogue", catalogue, tuple(CATALOGUES))
    return listing(catalogue)


def document_names() -> tuple[str, ...]:
    """Return the names of all documents; packages that announce some are not imported."""
    return tuple(dict.fromkeys((*DOCUMENTS.own_names(), *announced("npusim.documents"))))


def models() -> dict[str, str]:
    """Return module and model of each kind of file that npusim reads, and of document that it writes."""
    return READ_FILES | {name: kind.model for name, kind in DOCUMENTS.items()}


def schema(name: str) -> dict[str, Any]:
    """Print the JSON schema of a file or document: every key with its meaning, unit and bounds.

    Parameters
    ----------
    name : str
        A file that npusim reads, or a document that it writes.

    Returns
    -------
    dict
        The JSON schema.

    Examples
    --------
    >>> import npusim
    >>> npusim.schema("estimate")["properties"]["schema"]["const"]
    'npusim.estimate/1'
    """
    from npusim.config import schema_of

    known = (*READ_FILES, *document_names())
    if name not in known:
        raise UnknownNameError("schema", name, known)
    model = loaded(READ_FILES.get(name) or DOCUMENTS[name].model)
    return schema_of(model if isinstance(model, type) else model())


def report(
    runs: Sequence[Document | Result | str | Path],
    output: str | Path | None = None,
    title: str = "npusim report",
) -> str:
    """Write several results as one HTML page: a summary, then the figures, tables and source of each.

    The page needs no other file and no network. A command in quotes is run, so that the page names what made
    its result and has all of its pictures; a JSON file is named with its SHA-256.

    Parameters
    ----------
    runs : sequence of Document, str or Path
        JSON files that npusim wrote, directories of sweeps, or commands in quotes.
    output : str or Path, optional
        The page, an .html file.
    title : str
        Heading of the page.

    Returns
    -------
    str
        The page.

    Notes
    -----
    In Python results stand in the place of commands: `npusim.report([estimate, "before.json"], "page.html")`.
    """
    from npusim.files import write_whole
    from npusim.reporting.pages import report_html

    page = report_html(title, [result_of(run) for run in runs], "")
    if output is not None:
        write_whole(Path(output).expanduser(), page.encode())
    return page


def result_of(run: Document | Result | str | Path) -> Result:
    """Return a document, a JSON file or the directory of a sweep as a result of a report."""
    import hashlib

    from npusim.explore import SweepResult
    from npusim.explore.fronts import pareto as front_of
    from npusim.reporting.pages import Result

    if isinstance(run, Result):
        return run
    if isinstance(run, SweepResult):  # its points lie in the directory
        return Result(front_of(run.directory), "", "")
    if not isinstance(run, str | Path):
        return Result(run, "", "")
    path = Path(run).expanduser()
    if str(run) and path.is_dir():
        return Result(front_of(path), "", f"directory {run}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Result(_read(path), "", f"{run}, SHA-256 {digest}")


def _read(path: Path) -> Document:
    """Read a document of any kind."""
    from npusim.config.reading import read_json

    data = read_json(path).data
    schema = data.get("schema") if isinstance(data, dict) else None
    name = str(schema).partition("/")[0].removeprefix("npusim.")
    if schema is None or name not in DOCUMENTS:
        what = "no key `schema`" if schema is None else shown(schema)
        allowed = f"{REPORTED}: one of {', '.join(DOCUMENTS)}"
        raise ConfigError(what, file=str(path), line=1, allowed=allowed)
    model: type[Document] = loaded(DOCUMENTS[name].model)
    return model.read(path, "npusim")


def learn(
    lesson: str | None = None,
    port: int = 0,
    data: str | Path | None = None,
    no_browser: bool = False,
    tell: Callable[[str], None] = print,
) -> None:
    """Open lessons: the MAC grid, rooflines, GNNs on NPUs, sparsity, fronts, language models and more.

    Pages come from this machine alone and are shown to this machine alone. Ctrl-C ends the server.

    Parameters
    ----------
    lesson : str, optional
        Name or number of a lesson to open, or `explorer`; none: the list.
    port : int
        Port on 127.0.0.1; 0 takes a free one.
    data : str or Path, optional
        Folder of real data sets (cora/raw/ind.cora.x ...), shown in lesson 6.
    no_browser : bool
        Print the address and open nothing.
    tell : callable
        Called with a line that names the address.
    """
    from npusim.course.catalogue import lessons

    known = {one.name: one for one in lessons()}
    by_number = {str(one.number): one.name for one in lessons()}
    name = by_number.get(lesson or "", lesson)
    if name not in (None, "explorer", *known):
        raise UnknownNameError("lesson", str(name), ["explorer", *known])
    if data is not None:
        from npusim.gnn_models.planetoid import read_planetoid
        from npusim.locate import DATA_VARIABLE

        read_planetoid("cora", Path(data))
        os.environ[DATA_VARIABLE] = str(data)
    from npusim.course.server import serve

    def ready(address: str) -> None:
        path = "" if name is None else "explorer/" if name == "explorer" else f"lessons/{name}/"
        tell(f"Lessons at {address}{path}  (Ctrl-C ends)")
        if not no_browser:
            import webbrowser

            webbrowser.open(address + path)

    serve(port, ready)
