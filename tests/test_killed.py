"""Long runs that are killed, or whose disk is full, lose the part in work and end as they would have."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import hostile_inputs
import numpy as np
import pytest

import npusim
from npusim.cost.kernels import VARIABLE

pytestmark = pytest.mark.slow

HOOK = """
import os, resource, signal, sys
left, main = {renames}, os.getpid()
def count(event, arguments):
    global left
    if event == "os.rename" and os.getpid() == main and {target!r} in str(arguments[1]):
        left -= 1
        if left == 0:
            os.kill(main, signal.SIGKILL)
sys.addaudithook(count)
if {most_bytes}:
    resource.setrlimit(resource.RLIMIT_FSIZE, ({most_bytes}, {most_bytes}))
"""
"""Kills the process as it puts its n-th file in place, or lets no file grow beyond some bytes."""

IMAGES = ["--set=workload.image=32", "--set=workload.channels=16", "--set=workload.knn=2"]
TRAIN = ["magnas", "train", "images", *IMAGES, "--set=workload.precision=fp32", "--depths=1,2", "--batch=8"]
COMMANDS = {
    "sweep": ["sweep", "space.yaml", "--chunk", "4", "--cores", "1"],
    "train": [*TRAIN, "--epochs=3", "--scored=2", "--alone=1"],
    "search": [
        *("magnas", "search", "supernet", *IMAGES, "--population=4", "--generations=3"),
        *("--devices=npu,gpu", "--cores=1"),
    ],
}
"""Long runs that can be resumed, without the directory of their results."""


def ran(
    words: list[str], folder: Path, renames: int = 0, most_bytes: int = 0, target: str = "result"
) -> "subprocess.CompletedProcess[str]":
    hook = folder / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(
        HOOK.format(renames=renames, most_bytes=most_bytes, target=f"{os.sep}{target}")
    )
    path = os.pathsep.join([str(hook), str(Path(npusim.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path, VARIABLE: "plain"}
    line = [sys.executable, "-m", "npusim", *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a design space, images, a supernet, and the undisturbed result of each command."""
    pytest.importorskip("torch")
    image = pytest.importorskip("PIL.Image")
    folder, random = tmp_path_factory.mktemp("killed"), np.random.default_rng(0)
    (folder / "space.yaml").write_text(json.dumps(hostile_inputs.SPACE))
    for name, rows in (("above", slice(0, 4)), ("below", slice(4, 8))):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(20):
            pixels = random.integers(0, 90, (8, 8), np.uint8)
            pixels[rows] += 150
            image.fromarray(pixels).save(folder / "images" / name / f"{i:02d}.png")
    done = ran([*TRAIN, "--epochs=1", "--scored=0", "--alone=0", "-o", "supernet", "-q"], folder)
    assert done.returncode == 0, done.stderr
    for name, words in COMMANDS.items():
        done = ran([*words, "-o", f"whole-{name}", "-q"], folder)
        assert done.returncode == 0, done.stderr
    return folder


def result(folder: Path) -> dict[str, bytes]:
    """Return the files of a result but drafts, checkpoints (torch archives: scores tell) and its own name."""
    left = {"lock", *(file.name for file in folder.rglob(".*.draft"))}
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in left)
    return {
        str(file.relative_to(folder)): file.read_bytes().replace(folder.name.encode(), b"")
        for file in files
        if file.suffix != ".pt"
    }


def resumed(words: list[str], place: Path, target: str, name: str) -> bool:
    """Run a command again; return whether its result is that of a run that nothing disturbed."""
    began = any((place / target).glob("[!.]*"))
    again = ran([*words, "--resume"] if began else words, place)
    assert again.returncode == 0, again.stderr
    return result(place / target) == result(place / f"whole-{name}")


@pytest.mark.parametrize(
    ("name", "renames"),
    [("sweep", 1), ("sweep", 3), ("train", 1), ("train", 3), ("search", 1), ("search", 3)],
)
def test_a_killed_run_is_resumed_to_the_same_result(name: str, renames: int, place: Path) -> None:
    target = f"result-{name}-{renames}"
    words = [*COMMANDS[name], "-o", target, "-q"]
    killed = ran(words, place, renames, target=target)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert resumed(words, place, target, name)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_message_and_the_run_goes_on_with_room(name: str, place: Path) -> None:
    words = [*COMMANDS[name], "-o", f"full-{name}", "-q"]
    full = ran(words, place, most_bytes=700)
    assert full.returncode == 2 and full.stderr.startswith("error: "), full.stderr
    assert "cannot be written" in full.stderr and "Traceback" not in full.stderr
    assert resumed(words, place, f"full-{name}", name)
