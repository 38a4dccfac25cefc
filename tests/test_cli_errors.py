"""What a user gets wrong ends with status 2 and one message; what npusim gets wrong says so."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import npusim
from npusim.cli.program import run

Refusal = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Run a command that must be refused; returns its one message."""

    def call(*arguments: str) -> str:
        capsys.readouterr()
        status = run(arguments)
        captured = capsys.readouterr()
        assert (status, captured.out) == (2, "")
        assert captured.err.startswith("error: ")
        assert "Traceback" not in captured.err
        return captured.err

    return call


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["estimate", "gcn-cara"], "unknown workload `gcn-cara`; did you mean `gcn-cora`?"),
        (
            ["estimate", "gcn-cora", "--soc", "core-ultra-series9"],
            "unknown SoC `core-ultra-series9`; did you mean `core-ultra-series",
        ),
        (
            ["estimate", "gcn-cora", "-t", "stagr+quantgrr"],
            "unknown technique `quantgrr`; did you mean `quantgr`?",
        ),
        (["estimate", "gcn-cora", "-t", "nodepad:capazity=3000"], "did you mean `capacity`?"),
        (["whatif", "gcn-cora", "--stack", "stagr,symgg"], "did you mean `symg`?"),
        (["whatif", "gcn-cora", "--stack", "papper"], "did you mean `paper`?"),
        (["estmate", "gcn-cora"], "unknown command `estmate`; did you mean `estimate`?"),
        (
            ["estimate", "gcn-cora", "--techniqes", "stagr"],
            "no option `--techniqes`; did you mean `--techniques`?",
        ),
        (
            ["estimate", "gcn-cora", "--hint", "latncy"],
            "unknown value of --hint `latncy`; did you mean `latency`?",
        ),
        (["estimate", "gcn-cora", "--format", "jsn"], "did you mean `json`?"),
        (["list", "workload"], "unknown catalogue `workload`; did you mean `workloads`?"),
        (["schema", "estimates"], "unknown schema `estimates`; did you mean `estimate`?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    refused: Refusal, arguments: list[str], told: str
) -> None:
    assert told in refused(*arguments)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("npu.sram.per_tile=3 GHz", ["npu.sram.per_tile", "3 GHz", "amount of data"]),
        ("npu.sram.per_tile=-1 MiB", ["npu.sram.per_tile", "-1 MiB", "above 0"]),
        ("npu.dpu.clock=3 MiB", ["clock", "3 MiB", "frequency"]),
        ("npu.dpu.clock=nan GHz", ["clock", "nan GHz"]),
        ("npu.tiles=0", ["tiles", "`0`", "1 or more"]),
        ("npu.tiles=two", ["tiles", "two"]),
        ("npu.sram.pertile=2MiB", ["npu.sram.pertile", "did you mean `npu.sram.per_tile`?"]),
        ("workload.hiden=128", ["workload.hiden", "did you mean `workload.hidden`?"]),
        ("worklaod.hidden=128", ["worklaod.hidden", "did you mean `workload.hidden`?"]),
        ("workload.hidden=0", ["hidden", "`0`"]),
        ("workload.form=spherical", ["form", "spherical"]),
        ("npu.tiles", ["npu.tiles", "PATH=VALUE"]),
        ("=3", ["PATH=VALUE"]),
        ("npu..tiles=3", ["PATH=VALUE"]),
        ("npu.tiles=[", ["--set npu.tiles=["]),
    ],
)
def test_a_setting_that_is_impossible_is_refused(refused: Refusal, setting: str, told: list[str]) -> None:
    message = refused("estimate", "gcn-cora", "--set", setting)
    assert all(words in message for words in ["--set", *told]), message


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--tiles", "0"], "--tiles"),
        (["--tiles", "99"], "1 to 6"),
        (["--tiles", "many"], "--tiles"),
        (["--requests", "-1"], "--requests"),
        (["--shape", "x=[3,4]"], "only for a model file"),
        (["--shape", "x"], "INPUT=[N,...]"),
        (["--shape", "x=[3,-4]"], "INPUT=[N,...]"),
        (["--shape", "x=[3]", "--shape", "x=[4]"], "second time"),
        (["--device", "tpu"], "unknown device `tpu`"),
        (["-t", "symg"], "symg needs"),
        (["-t", "stagr+grad"], "excludes"),
        (["-t", "nodepad:capacity=10"], "capacity"),
        (["unexpected"], "unexpected"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_value_that_is_impossible_is_refused(refused: Refusal, arguments: list[str], told: str) -> None:
    assert told in refused("estimate", "gcn-cora", *arguments)


def test_a_missing_argument_is_named_and_the_help_pointed_at(refused: Refusal) -> None:
    message = refused("estimate")
    assert "WORKLOAD" in message
    assert "npusim estimate --help" in message


def test_a_broken_machine_file_is_named_with_its_line(
    refused: Refusal, tmp_path: Path, repository: Path
) -> None:
    text = (repository / "configs" / "socs" / "core-ultra-series2.yaml").read_text(encoding="utf-8")
    broken = tmp_path / "mine.yaml"
    broken.write_text(text.replace("    launch_overhead:", "    lunch_overhead:"), encoding="utf-8")
    line = 1 + broken.read_text(encoding="utf-8").splitlines().index(
        next(line for line in broken.read_text(encoding="utf-8").splitlines() if "lunch_overhead" in line)
    )
    message = refused("estimate", "gcn-cora", "--soc", str(broken))
    assert f"{broken}:{line}: " in message
    assert "did you mean `launch_overhead`?" in message


def test_a_file_that_is_missing_or_a_directory_is_told(refused: Refusal, tmp_path: Path) -> None:
    assert "no such file" in refused("estimate", str(tmp_path / "none.yaml"))
    assert "does not exist" in refused("estimate", str(tmp_path / "none.xml"))
    assert "is a directory" in refused("estimate", "gcn-cora", "--soc", str(tmp_path))


def saved_model(path: Path, shape: list[int], with_operator: bool) -> None:
    """Save an IR of one Relu, or of none."""
    ov = pytest.importorskip("openvino")
    import numpy as np
    from openvino import opset13

    given = opset13.parameter(shape, np.float32, name="x")
    given.output(0).set_names({"x"})
    ov.save_model(
        ov.Model([opset13.relu(given) if with_operator else opset13.result(given)], [given], "net"), path
    )


def test_a_model_file_without_fixed_shapes_says_how_to_fix_them(
    refused: Refusal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "dynamic.xml"
    saved_model(model, [-1, 4], with_operator=True)
    assert "--shape 'x=[...]'" in refused("estimate", str(model))
    assert "unknown input `y`" in refused("estimate", str(model), "--shape", "y=[3,4]")
    assert run(["estimate", str(model), "--shape", "x=[3,4]"]) == 0
    capsys.readouterr()


def test_a_model_file_without_operators_is_refused(refused: Refusal, tmp_path: Path) -> None:
    model = tmp_path / "empty.xml"
    saved_model(model, [2, 4], with_operator=False)
    assert "no operators" in refused("estimate", str(model))


@pytest.mark.parametrize("content", [b"", b"<net", b"\x00\xff\x00", b"not a model"])
def test_a_damaged_model_file_is_refused(refused: Refusal, tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("openvino")
    model = tmp_path / "damaged.xml"
    model.write_bytes(content)
    assert str(model) in refused("estimate", str(model))


@pytest.mark.laws
@pytest.mark.parametrize(
    ("library", "extra", "arguments"),
    [
        ("openvino", "openvino", ["estimate", "MODEL"]),
        ("torch", "gnn", ["export", "gcn-cora", "-o", "OUT"]),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, library: str, extra: str, arguments: list[str]) -> None:
    model = tmp_path / "model.xml"
    model.write_text("<net/>", encoding="utf-8")
    named = {"MODEL": str(model), "OUT": str(tmp_path / "out.xml")}
    code = f"import sys; sys.modules[{library!r}] = None; from npusim.cli import main; main()"
    command = [sys.executable, "-c", code, *(named.get(word, word) for word in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f'pip install "npusim[{extra}]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_export_refuses_settings_of_a_machine_and_other_endings(refused: Refusal, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    target = str(tmp_path / "model.xml")
    assert "a model file knows no machine" in refused(
        "export", "gcn-cora", "-o", target, "--set", "npu.tiles=2"
    )
    assert ".xml" in refused("export", "gcn-cora", "-o", str(tmp_path / "model.onnx"))
    assert "--data" in refused("export", "gcn-cora", "-o", target, "--data", str(tmp_path / "none"))


def let_learn_end_in(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a call in the place of `learn` that ends as no input can make it end."""

    def fail(**values: object) -> None:
        raise error

    monkeypatch.setattr(npusim, "learn", fail)


def test_an_interruption_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    let_learn_end_in(KeyboardInterrupt(), monkeypatch)
    assert run(["learn"]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


def test_a_bug_shows_its_traceback_and_is_no_check_that_fell_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    let_learn_end_in(ZeroDivisionError("division by zero"), monkeypatch)
    assert run(["learn"]) == 70
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "bug in npusim" in told


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a system with signals and pipes as on Unix")
def test_a_reader_that_leaves_early_is_met_with_silence() -> None:
    command = f"'{sys.executable}' -m npusim schema soc | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize("command", ["accuracy", "stream", "export"])
def test_a_model_file_without_its_data_graph_is_refused_with_what_is_allowed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["-o", "x.xml"] if command == "export" else []
    assert run([command, "sage.onnx", *extra]) == 2
    said = capsys.readouterr().err
    assert "kind gnn" in said or "named workload" in said
    assert "says nothing of its data graph" in " ".join(said.split())
    assert ".onnx file" not in said


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        ["estimate", "gcn-cora", "--engine", "event", "--trace", "x.json", "-o", "./x.json"],
        ["whatif", "gcn-cora", "--html", "x.html", "-ox.html"],
        ["mix", "gcn-cora:30/s", "--trace", "x.json", "--output=x.json"],
    ],
)
def test_two_outputs_of_one_name_are_refused(
    command: list[str], there: bool, refused: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "x.html" if "x.html" in command else "x.json"
    if there:
        Path(name).write_text("kept")
    assert f"{name}: is another output, or an input, of this command" in refused(*command)
    assert not there or Path(name).read_text() == "kept"
