"""Mixed commands and lesson sessions in one process, for half an hour: memory and open files do not grow.

NPUSIM_SOAK_MINUTES sets the duration; NPUSIM_SOAK_CURVE names a CSV file for the memory after each round.
"""

import gc
import json
import os
import resource
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from queue import Queue
from urllib.request import Request, urlopen

import hostile_inputs
import pytest

pytest.importorskip("openvino")
pytest.importorskip("marimo")

from npusim.cli.program import run
from npusim.course.pages import thumbs
from npusim.course.server import serve

MINUTES = float(os.environ.get("NPUSIM_SOAK_MINUTES", "30"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("own_main"),
    pytest.mark.timeout(60.0 * MINUTES + 3600.0),
]
LEAST_ROUNDS = 120
"""What a process loads once, after its calls have taken long enough, lies in the first quarter."""
MOST_GROWTH_MB = 25.0
"""Between the second quarter of the rounds and the last: less than one result that stays would add."""
MOST_OPEN = 8
"""Files and sockets that may be open beyond those after the second quarter: pages that are just closing."""

COMMANDS = [
    (0, "estimate gcn-cora -t stagr --details -o out.html"),
    (0, "estimate gat-citeseer --format json"),
    (0, "whatif gcn-cora --stack stagr,stagr+quantgr --over npu.sram.per_tile=1MiB,2MiB"),
    (0, "compare gcn-cora stagr stagr+quantgr"),
    (0, "show gcn-cora --after stagr -o out.html"),
    (0, "list workloads"),
    (0, "estimate a.xml"),
    (0, "query r 'SELECT * FROM points'"),
    (0, "pareto r"),
    (0, "report 'estimate gcn-cora -t stagr' -o out.html"),
    (0, "sweep space.yaml -o r -q --resume"),
    (0, "mix gcn-cora:poisson=5/s mobilenet-v2:30/s,deadline=33ms --requests 2000 -o out.html"),
    (0, "map gcn-cora --format json"),
    (0, "stream gcn-cora --updates 50"),
    (0, "estimate gcn-cora -t stagr --engine event --trace trace.json"),
    (0, "trace diff trace.json trace.json"),
    (0, "validate silicon-dma"),
    (0, "schema mix"),
    (0, "advise gcn-cora"),
    (2, "estimate gcn-cora --set npu.tiles=-1"),
    (2, "estimate nowhere.onnx"),
    (2, "estimate bomb.onnx"),
    (2, "whatif gcn-cora --over npu.tiles=1,-1"),
    (2, "query r 'SELECT list_sum(range(1000000000))'"),
    (2, "estimate gcn-cora --soc deep.yaml"),
    (2, "mix gcn-cora:1000000000/s"),
    (2, "pareto r --where 'nonsense > 1'"),
    (2, "validate silicon-dma --figures /dev/zero"),
]


def memory_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def visited(address: str, query: str, lesson: str) -> None:
    """Open a lesson and its first picture, then the explorer with its comparison and pictures."""
    port = int(address.rstrip("/").rpartition(":")[2])
    cookie = {"cookie": f"npusim-{port}={query.removeprefix('?token=')}"}
    picture = import_module(f"npusim.course.lessons.{lesson}").LESSON.pictures[0]
    first = ",".join(str(at) for slider in picture.sliders.values() for at in thumbs(slider))
    design = "core-ultra-series2;gcn-cora;stagr;0,0,0,0"
    for page, parts in {
        f"lessons/{lesson}": ("", "data", f"at/0/{first}"),
        "explorer": ("", f"compared/{design}/{design}", f"pictures/{design}"),
    }.items():
        for part in parts:
            with urlopen(Request(f"{address}{page}/{part}", headers=cookie), timeout=120) as answer:
                assert answer.status == 200 and b'"refused"' not in answer.read()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory as on Linux")
def test_memory_stays_flat_over_mixed_commands_and_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make: dict[str, Callable[[Path], None]] = {
        "a.xml": lambda path: hostile_inputs.MAKERS["product"](path, [64, 64, 64]),
        "bomb.onnx": lambda path: hostile_inputs.MAKERS["onnx"](path, "Tile"),
        "space.yaml": lambda path: path.write_text(json.dumps(hostile_inputs.SPACE)) and None,
        "deep.yaml": lambda path: path.write_text("[" * 30_000) and None,
    }
    for name, written in make.items():
        written(tmp_path / name)
    said: Queue[tuple[str, str]] = Queue()
    threading.Thread(target=serve, args=(0, lambda *words: said.put(words)), daemon=True).start()
    address, query = said.get(timeout=120)
    assert run(["sweep", "space.yaml", "-o", "r", "-q"]) == 0
    curve: list[tuple[float, float, int]] = []
    began = time.monotonic()
    while len(curve) < LEAST_ROUNDS or time.monotonic() - began < 60.0 * MINUTES:
        for status, words in COMMANDS:
            ended = run(hostile_inputs.arguments({"run": words}))
            output, error = capfd.readouterr()
            assert ended == status, (words, error or output)
        visited(address, query, ("roofline", "mac_grid", "int8")[len(curve) % 3])
        curve.append(((time.monotonic() - began) / 60.0, memory_mb(), open_files()))
        if "NPUSIM_SOAK_CURVE" in os.environ:
            lines = ["minutes,megabytes,open_files", *(f"{m:.2f},{mb:.1f},{n}" for m, mb, n in curve)]
            Path(os.environ["NPUSIM_SOAK_CURVE"]).write_text("\n".join(lines) + "\n")
    quarter = len(curve) // 4
    for column, most in ((1, MOST_GROWTH_MB), (2, MOST_OPEN)):
        early, late = curve[quarter : 2 * quarter], curve[-quarter:]
        assert max(row[column] for row in late) <= max(row[column] for row in early) + most, curve
