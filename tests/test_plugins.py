"""Other packages add to npusim's registries: what they bring is there, and what is broken is named."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest

from npusim.cli.program import run
from npusim.engines import Estimate
from npusim.errors import NpusimError, UnknownNameError
from npusim.plugins import GROUPS, PluginError, PluginWarning, Registry, plugin_packages
from npusim.reporting.pages import PAGES, Supplement
from npusim.studies import WhatIf
from npusim.workloads import KINDS, WorkloadKind, load_workload

GROUP = "npusim.reports"
"""Group without an entry of npusim's own."""


@dataclass(frozen=True)
class Thing:
    name: str


def registry(*names: str) -> Registry[Thing]:
    made = Registry(GROUP, "thing", Thing)
    for name in names:
        made.register(Thing(name))
    return made


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package of one module, with an entry point in `GROUP`."""

    def install(source: str, target: str = "member", name: str = "outsider") -> Path:
        (tmp_path / f"{name}_module.py").write_text(source)
        info = tmp_path / f"{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\nmine = {name}_module:{target}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)
        return tmp_path

    return install


THING = "from test_plugins import Thing\nmember = Thing('theirs')\nmore = [Thing('one'), Thing('two')]\n"


def test_a_package_adds_a_member(package):
    package(THING)
    found = registry("ours")
    assert list(found) == ["ours", "theirs"]
    assert found["theirs"] == found.find("theirs") == Thing("theirs")
    assert "outsider 1.2" in plugin_packages()


def test_an_entry_may_be_several_members(package):
    package(THING, "more")
    assert list(registry()) == ["one", "two"]


def test_ours_are_found_without_loading_any_package(package):
    package("raise RuntimeError('loaded')")
    assert registry("ours")["ours"] == Thing("ours")


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("raise RuntimeError('half finished')", "member", "RuntimeError: half finished"),
        ("import no_such_module", "member", "no_such_module"),
        ("import sys\nsys.exit(7)", "member", "SystemExit: 7"),
        ("raise GeneratorExit", "member", "GeneratorExit"),
        (THING, "no_such_name", "no_such_name"),
        ("member = 7", "member", "7 is no Thing"),
        ("from test_plugins import Thing\nmember = Thing('ours')", "member", "of that name already"),
    ],
)
def test_a_broken_package_is_named(package, source, target, why):
    package(source, target, "broken")
    found = registry("ours")
    with pytest.warns(PluginWarning, match=r"package broken 1\.2: its thing `mine`") as warnings:
        assert "ours" in list(found)
    assert len(warnings) == 1
    for _ in range(2):  # and again, not silently left out the second time
        with pytest.raises(PluginError, match=r"package broken 1\.2: its thing `mine`") as error:
            found.find("mine")
        assert why in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.laws
def test_what_cannot_be_read_or_loaded_stops_nothing_of_npusim(package, capfd):
    folder = package("raise GeneratorExit", name="raising")
    bad = folder / "unreadable-1.0.dist-info"
    bad.mkdir()
    (bad / "entry_points.txt").write_bytes(b"\xff\xfe")
    (bad / "METADATA").write_text("Name: unreadable\nVersion: 1\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    for words, warned in (([], True), (["--no-plugins"], False)):
        line = [sys.executable, "-m", "npusim", *words, "estimate", "gcn-cora", "-t", "stagr"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "latency" in done.stdout, done.stderr
        assert "Traceback" not in done.stderr and "unreadable" in done.stderr
        assert done.stderr.count("package raising 1.2") == warned
    line = [sys.executable, "-m", "npusim", "list", "plugins"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert "raising 1.2" in done.stdout and GROUP in done.stdout


EVERY_GROUP = "".join(
    f"[{group}]\nmine = deadly_module:member\n" for group in GROUPS if group != "npusim.reports"
)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "words",
    [
        "estimate gcn-cora -t stagr+quantgr",
        "list plugins",
        "list socs",
        "compare gcn-cora gat-cora",
        "--help",
    ],
)
def test_a_package_is_not_loaded_where_nobody_asks_for_its_names(package, words):
    folder = package("import os\nos._exit(9)", name="deadly")
    entries = EVERY_GROUP.replace("[npusim.commands]\nmine = deadly_module:member\n", "")
    (folder / "deadly-1.2.dist-info" / "entry_points.txt").write_text(entries)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    line = [sys.executable, "-m", "npusim", *words.split()]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("entry_points", "metadata", "says"),
    [
        ("[npusim.commands]\nmine = odd_module:member\n", None, "package odd_module:member: its command"),
        ("[npusim.commands]\nmine = odd_module:member\n", "Name: odd\n", "package odd: its command `mine`"),
        ("[npusim.commands]\nmine = \n", "Name: odd\n", "its command `mine` () cannot be used"),
        ("[npusim.commands]\n[red]m[/x] = odd_module:member\n", "Name: odd\n", "its command `[red]m[/x]`"),
    ],
)
def test_an_odd_package_is_one_warning(package, entry_points, metadata, says):
    folder = package("member = 1", name="odd")
    info = folder / "odd-1.2.dist-info"
    (info / "entry_points.txt").write_text(entry_points)
    (info / "METADATA").unlink() if metadata is None else (info / "METADATA").write_text(metadata)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    line = [sys.executable, "-m", "npusim", "--help"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "estimate" in done.stdout
    assert done.stderr.count("warning:") == 1 and says in done.stderr, done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["entry_points.txt", "METADATA"])
def test_a_pipe_among_the_metadata_is_one_warning(package, name):
    folder = package("member = 1", name="waiting")
    path = folder / "waiting-1.2.dist-info" / name
    path.unlink()
    os.mkfifo(path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    line = [sys.executable, "-m", "npusim", "list", "socs"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "core-ultra-series2" in done.stdout
    assert done.stderr.count("warning:") == 1 and "waiting-1.2" in done.stderr, done.stderr


MARKUP = """
import typer
member = typer.Typer()
@member.command(help="does [/nope] things")
def mine(a: str = typer.Option("", help="[/x]")):
    pass
"""


@pytest.mark.parametrize("words", [["--help"], ["mine", "--help"]])
def test_help_of_a_package_is_text_where_it_is_no_markup(package, words):
    folder = package(MARKUP, name="marked")
    (folder / "marked-1.2.dist-info" / "entry_points.txt").write_text(
        "[npusim.commands]\nmine = marked_module:member\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    line = [sys.executable, "-m", "npusim", *words]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "does [/nope] things" in done.stdout, done.stderr


def test_a_slow_package_is_named_while_it_loads(package, monkeypatch):
    class Elapsed(Timer):
        """A timer whose time has come at once."""

        def start(self):
            self.function(*self.args)

    monkeypatch.setattr("npusim.plugins.Timer", Elapsed)
    package(THING, name="slow")
    with pytest.warns(PluginWarning, match=r"package slow 1\.2: still loading"):
        assert "theirs" in registry()


def test_techniques_of_packages_come_after_ours_of_a_stage_by_name(package):
    package(
        "from test_plugins import Thing\nmore = [Thing('b'), Thing('a')]\n",
        "more",
    )
    both = registry("z", "y")
    assert sorted(both, key=both.rank) == ["z", "y", "a", "b"]


def test_an_unknown_name_gets_the_nearest(package):
    package(THING)
    with pytest.raises(UnknownNameError, match="theirs"):
        registry("ours").find("thiers")


def test_a_name_is_taken_once():
    with pytest.raises(NpusimError, match="already"):
        registry("ours", "ours")


def test_a_page_of_another_package_stands_below_its_document(capsys):
    page = Supplement("cooling", Estimate, lambda e: f"cooling of {e.workload}")
    silent = Supplement("silent", Estimate, lambda e: None)
    elsewhere = Supplement("elsewhere", WhatIf, lambda e: "not here")
    for one in (page, silent, elsewhere):
        PAGES.register(one)
    try:
        assert run(["estimate", "gcn-cora"]) == 0
        assert capsys.readouterr().out.rstrip().endswith("cooling of gcn-cora")
        assert run(["estimate", "gcn-cora", "--format", "json"]) == 0
        assert "cooling" not in capsys.readouterr().out
    finally:
        for one in (page, silent, elsewhere):
            PAGES.remove(one.name)


KIND = """
from typing import Literal
from npusim.workloads import WorkloadKind, WorkloadSpec

class Spec(WorkloadSpec):
    kind: Literal["theirs"]
    model: str = "m"
    precision: str = "fp16"

member = WorkloadKind("theirs", "of a package", Spec, {build})
"""


@pytest.mark.parametrize(
    ("build", "why"),
    [
        ("lambda spec, name, folder: 1 / 0", "ZeroDivisionError: division by zero"),
        ("lambda spec, name, folder: 5", "it builds a int, not a Graph"),
    ],
)
def test_a_builder_of_another_package_that_fails_names_the_package(
    package, tmp_path, monkeypatch, build, why
):
    kinds = Registry(GROUP, "workload kind", WorkloadKind)
    kinds.register(KINDS["gnn"])
    monkeypatch.setattr("npusim.workloads.loading.KINDS", kinds)
    monkeypatch.setattr("npusim.workloads.loading.KINDS", kinds)
    package(KIND.format(build=build), name="builder")
    file = tmp_path / "mine.yaml"
    file.write_text("kind: theirs\n")
    with pytest.raises(PluginError) as error:
        load_workload(file)
    assert str(error.value) == f"package builder 1.2: its workload kind `theirs` cannot build mine: {why}"


def test_what_a_member_of_another_package_raises_names_the_package(package):
    package(THING, name="failing")
    found = registry("ours")
    theirs = next(name for name in found if name != "ours")
    with (
        pytest.raises(PluginError, match=r"package failing 1\.2: its thing cannot: KeyError: 'norm'"),
        found.blamed(theirs, "thing cannot"),
    ):
        raise KeyError("norm")
    with pytest.raises(KeyError), found.blamed("ours", "thing cannot"):
        raise KeyError("norm")
