"""Calls that list, explain and collect: list, schema, report, learn.

The docstrings are the help of the command line too: what stands under a parameter is shown beside its option.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from npusim.errors import ConfigError, UnknownNameError, shown
from npusim.plugins import announced
from npusim.reporting.kinds import DOCUMENTS

if TYPE_CHECKING:
    from npusim.catalogues import Listing
    from npusim.documents import Document
    from npusim.reporting.pages import Result

READ_FILES = {
    "soc": "npusim.arch:Soc",
    "workload": "npusim.workloads:workload_file",
    "dataset": "npusim.workloads:DatasetStatistics",
    "stacks": "npusim.techniques.stack:NamedStacks",
    "toolchain": "npusim.arch.loading:Toolchain",
    "suite": "npusim.validation:Suite",
    "space": "npusim.explore.spaces:Space",
    "mix": "npusim.system.mix:Mix",
    "mapping": "npusim.mapping:MappingFile",
    "measurement-suite": "npusim.measuring.suites:MeasurementSuite",
}
"""Module and model, or function that returns the model, of each kind of file that npusim reads."""
REPORTED = "a JSON file that npusim wrote, the directory of a sweep, or a command in quotes"


def list(catalogue: str) -> Listing:
    """List machines, workloads, techniques, operators, validation suites or design spaces.

    Parameters
    ----------
    catalogue : str
        socs: machines; workloads: networks by name; techniques; ops: operator types; suites: published
        figures to check against; spaces: designs to sweep; schedulers: orders of requests (mix); formats:
        numbers of weights and activations; plugins: what installed packages add.

    Examples
    --------
    >>> import npusim
    >>> npusim.list("ops").entries[0]["name"]
    'Abs'

    Command lines
    -------------
        npusim list techniques
        npusim list socs --format json
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

    Command lines
    -------------
        npusim schema soc
        npusim schema estimate -o estimate.schema.json
    """
    from npusim.config import schema_of

    known = (*READ_FILES, *document_names())
    if name not in known:
        raise UnknownNameError("schema", name, known)
    model = resolve_name(READ_FILES.get(name) or DOCUMENTS[name].model)
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

    Command lines
    -------------
        npusim report "estimate gcn-cora -t stagr" "whatif gcn-cora" -o report.html
        npusim report before.json after.json results -o report.html
        npusim report fitted.json "validate granite" --title "Our laptop" -o report.html
    """
    from npusim.files import write_whole
    from npusim.reporting.pages import report_html

    page = report_html(title, [result_of(run) for run in runs], "")
    if output is not None:
        write_whole(Path(output).expanduser(), page.encode())
    return page


def result_of(run: Document | Result | str | Path) -> Result:
    """Return a document, a JSON file or the directory of a sweep as a result of a report."""
    from npusim.explore.fronts import pareto
    from npusim.explore.sweep import SweepResult
    from npusim.files import read_bounded
    from npusim.reporting.pages import Result

    if isinstance(run, Result):
        return run
    if isinstance(run, SweepResult):  # its points lie in the directory
        return Result(pareto(run.directory), "", "")
    if not isinstance(run, str | Path):
        return Result(run, "", "")
    path = Path(run).expanduser()
    if str(run) and path.is_dir():
        return Result(pareto(path), "", f"directory {run}")
    import hashlib

    digest = hashlib.sha256(read_bounded(path)).hexdigest()
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
    model: type[Document] = resolve_name(DOCUMENTS[name].model)
    return model.read(path, "npusim")


def learn(
    lesson: str | None = None,
    lab: str | Path | None = None,
    port: int = 0,
    data: str | Path | None = None,
    no_browser: bool = False,
    export: str | Path | None = None,
    tell: Callable[[str], None] = print,
) -> bool:
    """Open lessons: the MAC grid, rooflines, GNNs on NPUs, sparsity, fronts, language models and more.

    Pages come from this machine alone and are shown to this machine alone. Ctrl-C ends the server.
    `labs` writes problems into a folder, as Python files with cells; `check` tells whether a student has
    solved one.

    Parameters
    ----------
    lesson : str, optional
        Name or number of a lesson to open, `explorer`, `labs` or `check`; none: the page of all lessons.
    lab : str or Path, optional
        After `check` the student's file, such as lab03.py; after `labs` the folder to write.
    port : int from 0 to 65,535
        Port on 127.0.0.1; 0 takes a free one.
    data : str or Path, optional
        Folder of real data sets (cora/raw/ind.cora.x ...), shown in lesson 6.
    no_browser : bool
        Print the address and open nothing.
    export : str or Path, optional
        Folder to write the lessons into as static pages, which need no server and no network; opens nothing.
    tell : callable
        Called with a line that names the address or a file, or what a check says.

    Returns
    -------
    bool
        False where a checked lab is not solved yet.

    Command lines
    -------------
        npusim learn
        npusim learn roofline
        npusim learn explorer
        npusim learn --port 8080 --no-browser
        npusim learn labs mylabs
        npusim learn check mylabs/lab01.py
        npusim learn --export site
    """
    if lesson in ("labs", "check"):
        return _lab(lesson, lab, tell)
    if lab is not None:
        raise ConfigError(shown(str(lab)), file="LAB", allowed="a file or folder after `check` or `labs`")
    from npusim.course.catalogue import lessons

    known = {one.name: one for one in lessons()}
    by_number = {str(one.number): one.name for one in lessons()}
    name = by_number.get(lesson or "", lesson)
    if name not in (None, "explorer", *known):
        raise UnknownNameError("lesson", str(name), ["explorer", "labs", "check", *known])
    if data is not None:
        from npusim.gnn_models.planetoid import read_planetoid
        from npusim.locate import DATA_VARIABLE

        read_planetoid("cora", Path(data))
        os.environ[DATA_VARIABLE] = str(data)
    if export is not None:
        from npusim.course.export import export_lessons

        if name == "explorer":
            raise ConfigError("`explorer`", file="--export", allowed="lessons: the explorer needs a server")
        export_lessons(Path(export), [name] if name else [], tell)
        return True
    from npusim.course.server import serve

    def ready(address: str, query: str) -> None:
        path = "" if name is None else "explorer/" if name == "explorer" else f"lessons/{name}/"
        tell(f"Lessons at {address}{path}{query}  (Ctrl-C ends)")
        if not no_browser:
            import webbrowser

            webbrowser.open(address + path + query)

    serve(port, ready)
    return True


def _lab(action: str, lab: str | Path | None, tell: Callable[[str], None]) -> bool:
    """Write the labs into a folder, or check a student's file."""
    from npusim.course.labs import check_lab, write_labs

    if lab is None:
        allowed = "a folder, such as mylabs" if action == "labs" else "a file, such as lab01.py"
        raise ConfigError("nothing", file="LAB", allowed=allowed)
    path = Path(lab).expanduser()
    if action == "labs":
        first, *_ = write_labs(path)
        tell(f"The labs are in {path}; `npusim learn check {first}` checks one")
        return True
    properties = check_lab(path)
    for each in properties:
        tell(f"yes      {each.claim}" if each.holds else f"no       {each.claim}\n         {each.hint}")
    is_solved = all(each.holds for each in properties)
    if is_solved:
        tell("solved")
    return is_solved
