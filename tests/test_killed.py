"""Long runs that are killed, whose disk is full or whose clock jumps lose the part in work and end alike."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import hostile_inputs
import numpy as np
import pytest

import npusim
from npusim.compiling.kernels import VARIABLE

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
OF_MAGNAS = ("train", "search")
SUITE = {
    "schema": "npusim.measurements/1",
    "benchmarks": [{"operator": "MatMul", "grid": {"m": [*range(16, 50)], "k": [16], "n": [16]}}],
}
"""34 rows, which are two groups."""


def ran(
    words: list[str],
    folder: Path,
    renames: int = 0,
    most_bytes: int = 0,
    target: str = "result",
    **variables: str,
) -> "subprocess.CompletedProcess[str]":
    hook = folder / "hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(
        HOOK.format(renames=renames, most_bytes=most_bytes, target=f"{os.sep}{target}")
    )
    path = os.pathsep.join([str(hook), str(Path(npusim.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": path, VARIABLE: "plain"} | variables
    line = [sys.executable, "-m", "npusim", *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a design space and a suite of measurements."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "space.yaml").write_text(json.dumps(hostile_inputs.SPACE))
    (folder / "suite.yaml").write_text(json.dumps(SUITE))
    return folder


@cache
def whole(place: Path, name: str) -> dict[str, bytes]:
    """Return the undisturbed result of a command; magnas first gets images and a supernet."""
    if name in OF_MAGNAS:
        pytest.importorskip("npusim.magnas")
        pytest.importorskip("torch")
        supernet(place)
    done = ran([*COMMANDS[name], "-o", f"whole-{name}", "-q"], place)
    assert done.returncode == 0, done.stderr
    return result(place / f"whole-{name}")


@cache
def supernet(place: Path) -> None:
    """Write images and train a supernet on them."""
    image, random = pytest.importorskip("PIL.Image"), np.random.default_rng(0)
    for name, rows in (("above", slice(0, 4)), ("below", slice(4, 8))):
        (place / "images" / name).mkdir(parents=True)
        for i in range(20):
            pixels = random.integers(0, 90, (8, 8), np.uint8)
            pixels[rows] += 150
            image.fromarray(pixels).save(place / "images" / name / f"{i:02d}.png")
    done = ran([*TRAIN, "--epochs=1", "--scored=0", "--alone=0", "-o", "supernet", "-q"], place)
    assert done.returncode == 0, done.stderr


def result(folder: Path) -> dict[str, bytes]:
    """Return the files of a result but drafts, checkpoints (torch archives: scores tell) and its own name."""
    left = {"lock", *(file.name for file in folder.rglob(".*.draft"))}
    files = (file for file in folder.rglob("*") if file.is_file() and file.name not in left)
    return {
        str(file.relative_to(folder)): file.read_bytes().replace(folder.name.encode(), b"")
        for file in files
        if file.suffix != ".pt"
    }


def resumed(words: list[str], place: Path, target: str, name: str, **variables: str) -> bool:
    """Run a command again; return whether its result is that of a run that nothing disturbed."""
    began = any((place / target).glob("[!.]*"))
    again = ran([*words, "--resume"] if began else words, place, **variables)
    assert again.returncode == 0, again.stderr
    return result(place / target) == whole(place, name)


@pytest.mark.parametrize(
    ("name", "renames"),
    [("sweep", 1), ("sweep", 3), ("train", 1), ("train", 3), ("search", 1), ("search", 3)],
)
def test_a_killed_run_is_resumed_to_the_same_result(name: str, renames: int, place: Path) -> None:
    whole(place, name)
    target = f"result-{name}-{renames}"
    words = [*COMMANDS[name], "-o", target, "-q"]
    killed = ran(words, place, renames, target=target)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert resumed(words, place, target, name)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_message_and_the_run_goes_on_with_room(name: str, place: Path) -> None:
    whole(place, name)
    words = [*COMMANDS[name], "-o", f"full-{name}", "-q"]
    full = ran(words, place, most_bytes=700)
    assert full.returncode == 2 and full.stderr.startswith("error: "), full.stderr
    assert "cannot be written" in full.stderr and "Traceback" not in full.stderr
    assert resumed(words, place, f"full-{name}", name)


MEASURE = ["measure", "--suite", "suite.yaml", "--device", "CPU", "--seconds", "0.05", "-q", "-o"]


def rows_of(file: Path) -> list[Any]:
    return list(json.loads(file.read_text())["rows"])


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_a_killed_measurement_keeps_its_groups_and_is_resumed(renames: int, place: Path) -> None:
    """Files are put in place after each of two groups, and at the end."""
    pytest.importorskip("openvino")
    name = f"run{renames}.json"
    killed = ran([*MEASURE, name], place, renames, target=name)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    kept = [] if renames == 1 else rows_of(place / name)
    assert len(kept) == (0, 32, 34)[renames - 1]
    again = ran([*MEASURE, name, "--resume"], place)
    assert again.returncode == 0, again.stderr
    rows = rows_of(place / name)
    assert json.loads((place / name).read_text())["complete"]
    assert [row["model"]["sizes"]["m"] for row in rows] == [*range(16, 50)]
    assert all(row in rows for row in kept)


def test_a_measurement_on_a_full_disk_is_one_message(place: Path) -> None:
    pytest.importorskip("openvino")
    (place / "full.json").write_text("{}")
    full = ran([*MEASURE, "full.json"], place, most_bytes=700)
    assert full.returncode == 2 and "full.json: cannot be written" in full.stderr, full.stderr
    assert "Traceback" not in full.stderr and (place / "full.json").read_text() == "{}"


JUMPING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long jump(void) {
    static long calls;
    return (++calls % 3 - 1) * 40L * 365 * 86400;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += jump();
    return status;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int status = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return status;
}
time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now) *now = exact.tv_sec;
    return exact.tv_sec;
}
"""
"""A system clock that is 40 years slow, right and 40 years fast in turn."""


@pytest.fixture(scope="module")
def jumping(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process whose system clock jumps at every reading."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(JUMPING)
    line = [compiler, "-shared", "-fPIC", "-O1", "-o", "clock.so", "clock.c", "-ldl"]
    subprocess.run(line, cwd=folder, check=True)
    variables = {"LD_PRELOAD": str(folder / "clock.so")}
    code = "import time; print(len({round(time.time() / 1e9) for _ in range(9)}))"
    told = subprocess.run([sys.executable, "-c", code], env=os.environ | variables, capture_output=True)
    assert told.stdout.split() == [b"3"], told.stderr
    return variables


@pytest.mark.parametrize("name", COMMANDS)
def test_a_clock_that_jumps_loses_nothing(name: str, place: Path, jumping: dict[str, str]) -> None:
    whole(place, name)
    target = f"clock-{name}"
    words = [*COMMANDS[name], "-o", target, "-q"]
    killed = ran(words, place, 3, target=target, **jumping)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    for number, file in enumerate(sorted((place / target).rglob("*"))):
        os.utime(file, (number % 2 * 4e9, number % 2 * 4e9))
    assert resumed(words, place, target, name, **jumping)


def test_a_measurement_does_not_read_the_clock_that_jumps(place: Path, jumping: dict[str, str]) -> None:
    pytest.importorskip("openvino")
    done = ran([*MEASURE, "clock.json"], place, **jumping)
    assert done.returncode == 0, done.stderr
    assert all(0.0 < row["latency_s"]["median_s"] < 1.0 for row in rows_of(place / "clock.json"))
