"""Foreign model files and modules are read in a child process that the operating system limits."""

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import hostile_inputs
import pytest

import npusim
from npusim.confined import confined
from npusim.errors import NpusimError, UnknownNameError
from npusim.frontends import apart

pytest.importorskip("openvino")

MODULE = """
import os, sys, torch
class Foreign(torch.nn.Module):
    def forward(self, x):
        {body}
net = Foreign(), {{"x": torch.zeros(2, 2)}}
"""


def module(folder: Path, body: str) -> str:
    path = folder / "m.py"
    path.write_text(MODULE.format(body=body))
    return f"{path}:net"


def test_a_file_gives_the_same_graph_in_a_child_and_here(tmp_path: Path) -> None:
    from npusim.frontends.openvino_ir import import_model

    hostile_inputs.MAKERS["product"](tmp_path / "a.xml", [64, 32, 16])
    there, here = apart.graph_of_file(tmp_path / "a.xml"), import_model(tmp_path / "a.xml")
    assert (there.name, there.operators, there.tensors) == (here.name, here.operators, here.tensors)
    with pytest.raises(UnknownNameError, match="nonsense"):
        apart.graph_of_file(tmp_path / "a.xml", {"nonsense": [1]})


@pytest.mark.few(1)
@pytest.mark.parametrize("make", hostile_inputs.ONNX_BOMBS)
def test_a_small_file_that_asks_for_all_memory_is_refused(make: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    hostile_inputs.MAKERS["onnx"](tmp_path / "a.onnx", make)
    with pytest.raises(NpusimError, match=r"reading .*a\.onnx.* takes more than 4096 MiB of memory"):
        npusim.load_workload(tmp_path / "a.onnx")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("os._exit(0)", "ended its process .status 0"),
        ("os.abort()", "ended its process .SIGABRT"),
        ("raise KeyboardInterrupt", "ended its process"),
        ("sys.exit(3)", "cannot be converted"),
        ("raise GeneratorExit", "cannot be converted"),
        ("return x + torch.zeros(10**6, 10**6).sum()", "cannot be converted.*memory"),
    ],
)
def test_a_module_that_ends_its_process_is_reported(body: str, says: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(NpusimError, match=says):
        npusim.load_workload(module(tmp_path, body))


@pytest.mark.laws
def test_a_module_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(apart, "_MODULE_S", 5.0)
    with pytest.raises(NpusimError, match=r"tracing .* takes more than 5 seconds"):
        npusim.load_workload(module(tmp_path, "\n        while True: pass"))


def test_an_answer_holds_classes_of_npusim_alone(tmp_path: Path) -> None:
    for foreign in (os.system, subprocess.Popen, npusim.estimate):
        answer = pickle.dumps(foreign)
        with pytest.raises(pickle.UnpicklingError, match="no class of npusim"):
            apart._OwnClasses(apart.io.BytesIO(answer)).load()
    dotted = b"\x80\x04\x8c\x0fnpusim.confined\x8c\x10subprocess.Popen\x93."
    with pytest.raises(pickle.UnpicklingError, match="no class of npusim"):
        apart._OwnClasses(apart.io.BytesIO(dotted)).load()


def write_forever(stream: object, number: str) -> None:
    """Say which process this is, and never end."""
    Path(number).write_text(str(os.getpid()))
    while True:
        time.sleep(1.0)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl")
def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    number = tmp_path / "number"
    code = (
        "from npusim.confined import confined\n"
        f"confined('test_confined:write_forever', {str(number)!r}, seconds=60, most_bytes=2**30,"
        " what='it', remedy='')"
    )
    path = os.pathsep.join([str(Path(npusim.__file__).parents[1]), str(Path(__file__).parent)])
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path})
    while not number.exists() or not number.read_text():
        time.sleep(0.02)
    child = int(number.read_text())
    parent.kill()
    parent.wait()
    for _ in range(500):
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().split()[2] == "Z":
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child lives on")


def test_limits_hold_for_every_work(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"most_bytes": 1 << 28, "what": "it", "remedy": "less"}
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with pytest.raises(NpusimError, match="it takes more than 256 MiB of memory; less"):
        confined("test_confined:write_much", seconds=20, **limits)
    with pytest.raises(NpusimError, match="it takes more than 1 seconds; less"):
        confined("test_confined:write_forever", os.devnull, seconds=1, **limits)


def write_much(stream: object) -> None:
    """Use a gigabyte."""
    bytearray(1 << 30)


def test_a_child_without_files_to_open_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(
        "{schema: npusim.space/1, workload: gcn-cora, techniques: stagr, axes: {npu.tiles: {values: [1]}}}"
    )
    npusim.sweep(tmp_path / "space.yaml", tmp_path / "store")
    line = f"ulimit -n 8; exec {sys.executable} -m npusim query {tmp_path}/store 'SELECT 1'"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the query cannot run in a process of its own: Too many open files" in done.stderr
