"""The command line does what its help says: documents, tables, help, completion, speed of starting."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.main import get_command

import npusim
from npusim.api.exploring import READ_FILES
from npusim.cli.options import Command
from npusim.cli.program import command_app, command_names, run
from npusim.plugins import announced
from npusim.reporting.kinds import DOCUMENTS

Runner = Callable[..., str]
HEAVY = "numba,numpy,scipy,networkx,torch,openvino,dask,marimo,plotly,duckdb,yaml"
OPTIONAL = ("torch", "torch_geometric", "openvino", "nncf", "dask", "distributed", "marimo", "pymoo")


@pytest.fixture
def out(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Run a command that must succeed, with nothing on standard error; returns its output."""

    def call(*arguments: str) -> str:
        capsys.readouterr()
        status = run(arguments)
        captured = capsys.readouterr()
        assert (status, captured.err) == (0, "")
        return captured.out

    return call


@pytest.fixture(scope="module")
def default_whatif(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a comparison without options."""
    file: Path = tmp_path_factory.mktemp("whatif") / "whatif.json"
    assert run(["whatif", "gcn-cora", "-o", str(file)]) == 0
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def npusim_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "npusim", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=900,
        check=False,
    )


def test_estimate_as_json_is_one_document_that_fits_its_schema(out: Runner) -> None:
    document = json.loads(out("estimate", "gcn-cora", "--format", "json"))
    jsonschema.validate(document, json.loads(out("schema", "estimate")))
    assert document["schema"] == "npusim.estimate/1"
    assert (document["workload"], document["soc"]) == ("gcn-cora", "core-ultra-series2")


@pytest.mark.laws
def test_whatif_as_json_fits_its_schema_and_starts_with_the_baseline(
    out: Runner, default_whatif: dict[str, Any]
) -> None:
    document = default_whatif
    jsonschema.validate(document, json.loads(out("schema", "whatif")))
    assert document["variants"][0]["techniques"] == document["baseline"] == "stagr"
    asked = {variant["techniques"] for variant in document["variants"]}
    assert {"stagr", "stagr+quantgr", "stagr+symg", "stagr+cacheg"} <= asked
    assert "grasp" in document["left_out"]


@pytest.mark.parametrize("what", ["socs", "workloads", "techniques", "ops", "suites"])
def test_list_as_json_fits_its_schema(out: Runner, what: str) -> None:
    document = json.loads(out("list", what, "--format", "json"))
    jsonschema.validate(document, json.loads(out("schema", "list")))
    assert document["catalogue"] == what


@pytest.mark.laws
def test_list_shows_what_can_be_estimated(out: Runner) -> None:
    assert "core-ultra-series1" in out("list", "socs")
    assert "gat-citeseer" in out("list", "workloads")
    assert "cacheg" in out("list", "techniques")
    assert "MatMul" in out("list", "ops")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [*READ_FILES, *DOCUMENTS])
def test_every_schema_is_valid_json_schema(out: Runner, name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(out("schema", name)))


def test_every_document_schema_names_its_version(out: Runner) -> None:
    for name in DOCUMENTS:
        assert json.loads(out("schema", name))["properties"]["schema"]["const"] == f"npusim.{name}/1"


def figures(out: Runner, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(out("estimate", "gcn-cora", "--format", "json", *arguments))
    return document


def test_every_option_of_estimate_has_an_effect(out: Runner) -> None:
    plain = figures(out)
    assert figures(out, "--techniques", "stagr+quantgr")["techniques"] == "stagr+quantgr"
    assert figures(out, "--soc", "core-ultra-series1")["soc"] == "core-ultra-series1"
    assert figures(out, "--hint", "throughput")["requests"] > plain["requests"]
    assert figures(out, "--hint", "throughput", "--requests", "3")["requests"] == 3
    assert figures(out, "--tiles", "2")["tiles"] == 2
    assert figures(out, "--device", "cpu")["units"]["npu.dpu"]["busy_s"] == 0
    assert figures(out, "--set", "workload.hidden=128")["macs"] > plain["macs"]
    stagr = figures(out, "-t", "stagr")
    slow = figures(out, "-t", "stagr", "--set", "dram.bandwidth=10 GB/s")
    assert slow["latency_s"] > stagr["latency_s"]


def test_settings_go_to_the_workload_or_to_the_machine_by_their_first_word(out: Runner) -> None:
    both = figures(out, "--set", "workload.layers=3", "--set", "npu.tiles=4", "--set", "npu.dpu.clock=1 GHz")
    assert len(both["operators"]) > len(figures(out)["operators"])


@pytest.mark.laws
def test_whatif_compares_the_stacks_that_are_named(out: Runner) -> None:
    def compared(*stacks: str) -> list[str]:
        document = json.loads(out("whatif", "gcn-cora", "--format", "json", "--stack", *stacks))
        return [variant["techniques"] for variant in document["variants"]]

    assert compared("stagr,symg+stagr") == ["stagr", "stagr+symg"]
    assert compared("stagr") == ["none", "stagr"]
    assert "graphsplit+grad+nodepad" in compared("paper")


def test_show_names_the_operators_that_a_technique_changes(out: Runner, tmp_path: Path) -> None:
    assert "layer0/aggregate/matmul" in out("show", "gcn-cora", "--after", "stagr")
    document = json.loads(
        out("show", "gcn-cora", "-t", "stagr", "--after", "stagr+quantgr", "--format", "json")
    )
    jsonschema.validate(document, json.loads(out("schema", "graph-difference")))
    assert document["before"]["techniques"] == "stagr" and not document["removed"]
    out("show", "gcn-cora", "--after", "stagr", "-o", str(tmp_path / "graphs.html"))
    assert "After: stagr" in (tmp_path / "graphs.html").read_text(encoding="utf-8")


@pytest.mark.laws
def test_whatif_ends_with_what_bounds_the_best_stack(out: Runner, default_whatif: dict[str, Any]) -> None:
    last_words = out("whatif", "gcn-cora").split("\n\n")[-1]
    assert last_words.split() == default_whatif["conclusion"].split()


def test_the_same_command_gives_the_same_bytes(out: Runner) -> None:
    assert out("estimate", "gat-cora", "--format", "json") == out("estimate", "gat-cora", "--format", "json")


def test_python_and_the_command_line_agree(out: Runner) -> None:
    graph = npusim.apply(npusim.load_workload("gat-cora"), "stagr+effop")
    here = npusim.estimate(graph, npusim.load_soc("core-ultra-series1"), hint="throughput")
    there = out(
        "estimate",
        "gat-cora",
        "-t",
        "effop+stagr",
        "--soc",
        "core-ultra-series1",
        "--hint",
        "throughput",
        "--format",
        "json",
    )
    assert json.loads(there) == json.loads(here.to_json())


@pytest.mark.laws
def test_an_exported_model_can_be_estimated(out: Runner, planetoid_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    model = tmp_path / "gcn.xml"
    told = out("export", "gcn-cora", "--data", str(planetoid_root), "-t", "stagr", "-o", str(model))
    assert told.startswith(f"{model}: gcn-cora with stagr, ")
    document = json.loads(out("estimate", str(model), "--format", "json"))
    assert document["macs"] == figures(out, "-t", "stagr")["macs"]


def test_version(out: Runner) -> None:
    assert out("--version") == f"npusim {npusim.__version__}\n"


def test_help_lists_every_command(out: Runner) -> None:
    page = out("--help")
    assert all(f" {name} " in page for name in command_names())


def test_help_groups_the_commands_by_what_people_come_for(out: Runner) -> None:
    page = out("--help")
    panels = ["Ask", "Explore", "Measure and trust", "Learn"]
    places = [page.index(f"─ {panel} ─") for panel in panels]
    assert places == sorted(places)
    for name in announced("npusim.commands"):  # of papers
        assert places[2] < page.index(f" {name} ", page.index("─ Papers ─")) < places[3]


def test_every_command_is_a_call_of_python_too() -> None:
    added = announced("npusim.commands")
    assert set(command_names()) - set(added) <= set(dir(npusim))
    for entry in added.values():
        declared = entry.load()
        commands = [declared] if isinstance(declared, Command) else declared[1].values()
        assert {one.call.partition(":")[2] for one in commands} <= set(dir(npusim))


@pytest.mark.parametrize("command", command_names())
def test_every_option_says_what_it_is_for(command: str) -> None:
    top = get_command(command_app(command))
    for each in getattr(top, "commands", {"": top}).values():
        assert each.help
        assert all(parameter.help for parameter in each.params), [p.name for p in each.params if not p.help]


@pytest.mark.parametrize("command", command_names())
def test_help_of_a_command_fits_80_columns_and_shows_examples(out: Runner, command: str) -> None:
    page = out(command, "--help")
    assert f"  npusim {command} " in page
    assert max(map(len, page.splitlines())) <= 80


def test_without_a_command_the_help_is_shown_and_counts_as_bad_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([]) == 2
    assert "estimate" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    """One process shows every page of help, so that a library that any of them imports is seen."""
    code = """
import sys
from npusim.cli.program import run

heavy, *commands = sys.argv[1:]
for command in ["", *commands]:
    assert run([*command.split(), "--help"]) == 0
    unwanted = [*heavy.split(","), *([] if command else ["pydantic"])]  # typer calls a command with it
    loaded = [name for name in unwanted if name in sys.modules]
    if loaded:
        sys.exit(f"npusim {command} --help imports {loaded}")
"""
    command = [sys.executable, "-c", code, HEAVY, *command_names()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.calm
def test_help_is_fast() -> None:
    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        npusim_process("--help")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    # Time of the processor, and the best of a few: other work on the machine must not count.
    assert min(cpu_s() for _ in range(5)) < 0.4


def test_estimate_needs_no_optional_library() -> None:
    code = (
        "import sys\n"
        f"for name in {OPTIONAL}:\n"
        "    sys.modules[name] = None\n"
        "from npusim.cli.program import run\n"
        "sys.exit(run(['estimate', 'gcn-cora', '--format', 'json']))"
    )
    environment = os.environ | {"NPUSIM_KERNELS": "plain"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_estimate_imports_only_what_it_needs() -> None:
    """A count, not a time: what another kind of network, technique or question needs stays out."""
    code = (
        "import sys\n"
        "from npusim.cli.program import run\n"
        "assert run(['estimate', 'gcn-cora']) == 0\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    environment = os.environ | {"NPUSIM_KERNELS": "plain"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    loaded = set(done.stderr.split())
    others = {
        "networkx", "numba", "numpy.ma", "scipy",
        "npusim.engines.event", "npusim.graph.difference", "npusim.mapping.nests",
        "npusim.studies.perturbation", "npusim.techniques.masking", "npusim.workloads.cnn",
        "npusim.workloads.transformer",
    }  # fmt: skip
    assert not loaded & others
    assert sum(name.startswith("npusim.") for name in loaded) <= 142  # seven are rooms without code


def completed(*words: str) -> list[str]:
    words = ("npusim", *words)
    environment = {
        "_NPUSIM_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    return npusim_process(**environment).stdout.split()


@pytest.mark.laws
def test_completion_knows_commands_workloads_machines_and_techniques() -> None:
    assert completed("es") == ["estimate"]
    assert completed("estimate", "gcn") == ["gcn-citeseer", "gcn-cora"]
    assert "core-ultra-series1" in completed("estimate", "gcn-cora", "--soc", "core")
    assert completed("estimate", "gcn-cora", "--techniques", "stagr+quan") == ["stagr+quantgr"]
    assert completed("whatif", "gcn-cora", "--stack", "pap") == ["paper"]
    assert completed("estimate", "gcn-cora", "--hint", "t") == ["throughput"]


def test_completion_does_not_offer_a_technique_twice() -> None:
    assert "stagr+stagr" not in completed("estimate", "gcn-cora", "--techniques", "stagr+st")


def test_completion_finds_model_files(tmp_path: Path) -> None:
    (tmp_path / "model.xml").touch()
    (tmp_path / "model.txt").touch()
    assert completed("estimate", f"{tmp_path}/mod") == [f"{tmp_path}/model.xml"]


def test_every_shell_gets_its_completion_script() -> None:
    for shell in ("bash", "zsh", "fish"):
        shown = npusim_process("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
        assert "_NPUSIM_COMPLETE" in shown.stdout
