"""What strangers hand over (`tests/hostile/*.yaml`) is refused in one message, soon, and changes nothing."""

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile_inputs
import pytest
from hostile_server import DIED, MOST_S, Request, Server
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, save

import npusim
from npusim.cli.program import run
from npusim.config.reading import compose, parse_json
from npusim.errors import FileError, NpusimError
from npusim.gnn_models.planetoid import read_raw
from npusim.locate import cache_dir
from npusim.workloads import load_workload

CASES = dict(hostile_inputs.cases())
FIRST = {hostile_inputs.rule(name, case): name for name, case in reversed(CASES.items())}
"""The first case of each rule, which `make test` runs; `make laws` runs all."""
RUNS = [
    pytest.param(name, "auto", marks=() if name in FIRST.values() else pytest.mark.laws) for name in CASES
]
RUNS += [
    pytest.param(name, "compiled", marks=pytest.mark.laws if "most_s" in case else pytest.mark.slow)
    for name, case in CASES.items()
]
"""Cases and kinds of kernels: as users have them, or compiled where the cost must not grow with the size."""


@pytest.fixture(scope="module", autouse=True)
def results() -> Path:
    """Results of sweeps, which cost no case its processor time."""
    return hostile_inputs.results()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The process that runs each case in a child of its own."""
    server = Server()
    yield server
    server.close()


DEATHS = {
    "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "while True: pass": -signal.SIGXCPU,
    "bytearray(1 << 29)": DIED,
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("code", "status"), DEATHS.items())
def test_a_death_is_one_failed_case(code: str, status: int, server: Server, tmp_path: Path) -> None:
    deadly = Request([code], str(tmp_path), runs_code=True, killed_s=1, most_memory=1 << 28)
    assert server.ask(deadly).status == status
    assert server.ask(Request(["list", "socs"], str(tmp_path))).status == 0


def contents(folder: Path) -> dict[str, Any]:
    """Everything in a folder: kind, size and time of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(folder))] = (
            status.st_mode,
            *((0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)),
        )
    return found


@pytest.mark.parametrize(("name", "kernels"), RUNS)
def test_a_hostile_input_is_refused_in_one_message_and_changes_nothing(
    name: str, kernels: str, server: Server, tmp_path: Path
) -> None:
    case = CASES[name]
    needed = case.get("needs")
    if needed:
        pytest.importorskip(needed)
    hostile_inputs.place(tmp_path, case)
    before = contents(tmp_path)
    most_s = case.get("most_s", MOST_S)
    answer = server.ask(Request(hostile_inputs.arguments(case), str(tmp_path), kernels, most_s))
    complaints = hostile_inputs.complaints(case, answer.status, answer.output, answer.error)
    assert not complaints, answer.error or answer.output
    assert contents(tmp_path) == before


def test_there_are_enough_cases_of_each_kind() -> None:
    groups = [name.partition("-")[0] for name in CASES]
    assert len(CASES) >= 300
    assert min(map(groups.count, set(groups))) >= 30


def test_every_finding_is_held_by_a_test() -> None:
    tests = Path(__file__).parent
    page = (tests.parent / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| (`.*`) \|$", page.partition("## Findings")[2], re.MULTILINE)
    held_by = [reference for row in rows for reference in re.findall("`([^`]+)`", row)]
    assert len(rows) > 20
    for reference in held_by:
        file, is_test, name = reference.partition("::")
        if is_test:
            assert f"def {name}(" in (tests / file).read_text(encoding="utf-8"), reference
        else:
            file, _, text = reference.partition(": ")
            lines = (hostile_inputs.FOLDER / file).read_text(encoding="utf-8").splitlines()
            assert any(text in line for line in lines), reference


@pytest.mark.laws
def test_what_is_printed_goes_through_one_door() -> None:
    package = Path(npusim.__file__).parent
    doors = {"cli/output.py", "cli/__init__.py", "confined.py", "calibration/fits.py"}
    found = []
    for path in package.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            called = ast.unparse(call.func)
            prints = called in ("print", "pprint", "os.write") or re.search(
                r"\b(std(out|err)(\.buffer)?\.write|s?echo|rich\.print)$", called
            )
            as_markup = called == "Console" and "markup=False" not in ast.unparse(call)
            as_markup |= called.endswith("from_markup")
            if as_markup or (prints and path.relative_to(package).as_posix() not in doors):
                found.append(f"{path.relative_to(package)}:{call.lineno}: {called}")
    assert not found


def test_traces_without_a_common_layer_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        hostile_inputs.MAKERS["trace"](tmp_path / f"{name}.json", {"traceEvents/0/name": name})
    assert run(["trace", "diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    assert "they have no layer in common" in capsys.readouterr().out


@pytest.mark.laws
def test_a_pipe_of_the_shell_is_read_and_home_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps(hostile_inputs.SOC))
    line = ("estimate", "gcn-cora", "-t", "stagr", "--format", "json", "--soc")
    for soc, before in (("/dev/stdin", "cat mine.yaml |"), ("~/mine.yaml", ""), ("/dev/stdin", "yes |")):
        done = command(*line, soc, folder=tmp_path, before=before, HOME=str(tmp_path))
        if before == "yes |":
            assert done.returncode == 2 and b"/dev/stdin: is too large" in done.stderr
        else:
            assert json.loads(done.stdout)["soc"] == "mine", done.stderr


@pytest.mark.laws
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("estimate /dev/stdin -t stagr", "{model: gcn, dataset: cora}"),
        (
            "mix /dev/stdin -q",
            "{schema: npusim.mix/1, requests: 100, streams: [{network: gcn-cora, arrivals: {kind: closed}}]}",
        ),
        ("sweep /dev/stdin -q -o out", json.dumps(hostile_inputs.SPACE)),
    ],
)
def test_networks_mixes_and_spaces_come_through_a_pipe(words: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    done = command(*words.split(), folder=tmp_path, before="cat a.yaml |")
    assert done.returncode == 0, done.stderr


def test_a_document_whose_parts_do_not_fit_together_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(npusim.compare("gcn-cora", "stagr", "stagr+quantgr").to_json())
    del document["runs"][0]["figures"]["power_w"]
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert run(["report", str(tmp_path / "a.json"), "-o", str(tmp_path / "x.html")]) == 2
    assert re.search(r"error: .*a\.json.*do not fit together.*power_w", capsys.readouterr().err)
    assert not (tmp_path / "x.html").exists()


def command(
    *words: str, folder: Path, before: str = "", **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command line in a shell, after some other commands."""
    script = f'{before} exec "$@"' if not before.endswith("|") else f'{before} "$@"'
    environment = os.environ | {"PYTHONPATH": str(Path(npusim.__file__).parents[1])} | variables
    line = ["bash", "-c", script, "bash", sys.executable, "-m", "npusim", *words]
    return subprocess.run(line, env=environment, cwd=folder, capture_output=True, check=False, timeout=900)


INTERRUPTING = """
import os, signal, sys
left = {imports}
def count(event, arguments):
    global left
    if event == "import" and (left < {imports} or arguments[0] == "npusim.lazy"):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(count)
"""


@pytest.mark.few(3)
@pytest.mark.parametrize("imports", [1, 2, 3, 10, 30, 100, 200, 400, 700])
def test_ctrl_c_ends_without_a_traceback_from_the_first_import_on(imports: int, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING.format(imports=imports))
    path = os.pathsep.join([str(tmp_path), str(Path(npusim.__file__).parents[1])])
    done = command("estimate", "gcn-cora", folder=tmp_path, PYTHONPATH=path)
    assert done.returncode in (130, -signal.SIGINT) and b"Traceback" not in done.stderr, done.stderr
    assert not done.stdout


TURNED = """
import os, signal, sys
from npusim.cli import program
from npusim.errors import NpusimError
def turned(*arguments, **options):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        raise {raised} from None
program.program = turned
status = program.run(["estimate", "gcn-cora"])
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
sys.exit(status)
"""


@pytest.mark.few(1)
@pytest.mark.parametrize("raised", ["ValueError('by a library')", "RuntimeError('x')", "NpusimError('x')"])
def test_an_error_that_ctrl_c_became_is_an_interruption(raised: str) -> None:
    run_alone = [sys.executable, "-c", TURNED.format(raised=raised)]
    done = subprocess.run(run_alone, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "error: interrupted")


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("before", "variables", "says"),
    [
        ("ulimit -v 300000;", {}, "ulimit -v: found 300000 KiB"),
        ("ulimit -d 100000;", {}, "ulimit -d: found 100000 KiB"),
        ("", {"NUMBA_NUM_THREADS": "0"}, "NUMBA_NUM_THREADS: found `0`"),
        ("", {"NUMBA_NUM_THREADS": "100000"}, "NUMBA_NUM_THREADS"),
        ("", {"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT: found `1`"),
        ("", {"NUMBA_THREADING_LAYER": "nonsense"}, "NUMBA_THREADING_LAYER"),
        ("", {"NPUSIM_CACHE": "/proc/nowhere"}, "NPUSIM_CACHE names it as the cache"),
        ("exec >&-;", {}, "standard output"),
        ("exec >/dev/full;", {}, "standard output"),
    ],
)
def test_an_odd_process_is_told_what_is_wrong(
    before: str, variables: dict[str, str], says: str, tmp_path: Path
) -> None:
    done = command("estimate", "gcn-cora", "-t", "stagr", folder=tmp_path, before=before, **variables)
    error = done.stderr.decode()
    assert done.returncode == 2 and "\nerror: " in f"\n{error}" and says in error, error
    assert "Traceback" not in error and not list(tmp_path.iterdir())


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("before", "variables"),
    [
        ("exec 2>&-;", {}),
        ("exec <&-;", {}),
        ("", {"COLUMNS": "0"}),
        ("", {"COLUMNS": "-1"}),
        ("", {"COLUMNS": "99999999"}),
        ("", {"NPUSIM_CACHE": "", "HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}),
    ],
)
def test_an_odd_terminal_makes_no_difference(before: str, variables: dict[str, str], tmp_path: Path) -> None:
    table = command("list", "socs", folder=tmp_path, before=before, **variables)
    assert table.returncode == 0 and b"core-ultra-series2" in table.stdout
    assert max(map(len, table.stdout.split(b"\n"))) < 1100


@pytest.mark.few(1)
@pytest.mark.parametrize("threads", ["2", "64"])
@pytest.mark.parametrize("before", ["ulimit -v 2097152;", "ulimit -d 1048576;"])
def test_a_front_is_found_under_the_least_limits(
    before: str, threads: str, results: Path, tmp_path: Path
) -> None:
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
    words = ("pareto", str(results / "results"), "-o", "page.html")
    done = command(*words, folder=tmp_path, before=before, **dict.fromkeys(names, threads))
    is_told = threads == "64" and done.returncode == 2 and b"not enough memory" in done.stderr
    assert is_told or done.returncode == 0, done.stderr
    assert is_told is not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("problem", [MemoryError(), OSError("x: Cannot allocate memory"), RuntimeError("y")])
def test_what_lacks_memory_is_told_apart_from_a_bug(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*words: object, **options: object) -> None:
        raise problem

    monkeypatch.setattr(npusim, "estimate", failing)
    is_bug = "memory" not in str(problem) and not isinstance(problem, MemoryError)
    assert run(["estimate", "gcn-cora"]) == (70 if is_bug else 2)
    assert ("not enough memory" in capsys.readouterr().err) is not is_bug


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "words",
    ["estimate {} -t stagr --format json", "query {} 'SELECT 1'", "mix {}:5/s", "report {} -o x.html"],
)
def test_a_name_that_is_no_text_is_refused(words: str, tmp_path: Path) -> None:
    (tmp_path / "a\udcff.yaml").write_text("{model: gcn, dataset: cora}")
    done = command(*shlex.split(words.format("a\udcff.yaml")), folder=tmp_path)
    assert done.returncode == 2 and b"found `a\\udcff.yaml" in done.stderr, done.stderr
    assert b"in UTF-8" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.laws
def test_a_folder_whose_name_is_no_text_is_worked_in_or_named(results: Path, tmp_path: Path) -> None:
    place = tmp_path / "a\udcff"
    shutil.copytree(results / "results", place / "r")
    for words in (
        ("query", "r", "SELECT count(*) FROM points"),
        ("pareto", "r", "-o", "x.html"),
        ("pareto", "r", "--format", "json"),
    ):
        done = command(*words, folder=place)
        named = b"whose name is not UTF-8" in done.stderr and b"Traceback" not in done.stderr
        assert done.returncode == 0 or (done.returncode == 2 and named), done.stderr


def test_a_folder_that_has_gone_is_told(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = command("estimate", "mine.yaml", folder=gone, before="rmdir ../gone;")
    assert done.returncode == 2 and b"mine.yaml" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners as on Unix")
def test_code_is_never_loaded_from_a_folder_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("NPUSIM_CACHE", str(own))
    assert cache_dir("kernels").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("NPUSIM_CACHE", str(shared / "cache"))
    with pytest.raises(FileError, match="others can write to it"):
        cache_dir("kernels")
    (tmp_path / "link").symlink_to(shared)
    monkeypatch.setenv("NPUSIM_CACHE", str(tmp_path / "link"))
    with pytest.raises(FileError, match="others can write to it"):
        cache_dir("kernels")
    monkeypatch.delenv("NPUSIM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    assert not cache_dir("kernels").is_relative_to(shared)


def test_two_sweeps_never_write_to_one_folder(tmp_path: Path) -> None:
    def second(done: int, points: int) -> None:
        with pytest.raises(FileError, match="another sweep"):
            npusim.sweep(hostile_inputs.SPACE, tmp_path, resume=True)

    npusim.sweep(hostile_inputs.SPACE, tmp_path, chunk=2, progress=second)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "damage",
    [
        ["chunks/00000001.parquet", "truncate"],
        ["chunks/00000001.parquet", "text", ""],
        ["chunks/00000001.parquet", "flip"],
        ["chunks/00000001.parquet", "copy", "00000002.parquet"],
        ["chunks/00000001.parquet", "other"],
        ["checksums", "truncate"],
    ],
    ids=lambda damage: " ".join(damage),
)
def test_a_damaged_chunk_is_computed_anew_and_that_is_said(damage: list[Any], tmp_path: Path) -> None:
    hostile_inputs.place(tmp_path, {"whole": {"results": []}, "hurt": {"results": [damage]}})
    if damage[0] == "checksums":  # the manifest's line must be there, or nothing is known
        lines = (tmp_path / "whole" / "checksums").read_text().splitlines(keepends=True)
        (tmp_path / "hurt" / "checksums").write_text("".join(lines[-2:]))
    result = npusim.sweep(hostile_inputs.SPACE, tmp_path / "hurt", resume=True)
    assert result.recomputed >= 1
    whole, mended = (
        {str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()}
        for f in (tmp_path / "whole", tmp_path / "hurt")
    )
    assert mended == whole


@pytest.mark.parametrize("axes", [{"npu.tiles": {"from": 1, "to": 6, "step": 1}}])
def test_a_space_of_one_axis_is_swept_and_explained(
    axes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(json.dumps(hostile_inputs.SPACE | {"axes": axes}))
    assert run(["sweep", str(file), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert run(["pareto", str(tmp_path / "out")]) == 0
    assert "npu.tiles" in capsys.readouterr().out


def test_a_name_of_a_million_letters_is_cut_where_it_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])
    node = helper.make_node("Relu", ["x"], ["y"], name="n" * 1_000_000)
    model = helper.make_model(helper.make_graph([node], "g", [shape], [result]))
    save(model, tmp_path / "long.onnx")
    assert run(["estimate", str(tmp_path / "long.onnx"), "--details"]) == 0
    assert len("".join(capsys.readouterr())) < 10_000


@pytest.mark.parametrize("read", [compose, parse_json])
@given(
    st.text(st.sampled_from("[]{}:,-?&*!|>'\"%@#\n\t \\ab01.eE\x00\x1b\ud7ff~<"), max_size=200)
    | st.text(max_size=100)
)
@settings(max_examples=150)
def test_any_text_is_data_or_a_message(read: Callable[[str, str], Any], text: str) -> None:
    try:
        read(text, "file")
    except NpusimError as error:
        assert str(error).startswith("file")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["layers", "hidden", "heads", "form", "dataset", "kind", "model", "x"]), VALUES)
@settings(max_examples=50)
def test_any_value_in_a_workload_makes_a_network_or_a_message(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_text(json.dumps({"model": "gat", "dataset": "cora"} | {key: value}))
    try:
        load_workload(path)
    except NpusimError as error:
        assert error.exit_status == 2 and str(error)


@pytest.mark.laws
@given(st.binary(max_size=200))
@settings(max_examples=100)
def test_any_bytes_as_raw_data_are_numbers_or_a_message(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "ind.cora.x"
    path.write_bytes(content)
    try:
        read_raw(path)
    except FileError as error:
        assert str(path) in str(error)
