"""Mixed commands and lesson sessions in one process, for half an hour: memory does not grow.

NPUSIM_SOAK_ROUNDS sets the number of rounds; 80 take half an hour on two busy cores.
"""

import gc
import json
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from uuid import uuid4

import hostile_inputs
import pytest

pytest.importorskip("openvino")
pytest.importorskip("marimo")

from websockets.sync.client import connect

from npusim.cli.program import run
from npusim.course.server import LOOPBACK, serve

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_main")]

ROUNDS = int(os.environ.get("NPUSIM_SOAK_ROUNDS", "80"))
MOST_GROWTH_MB = 25.0
"""Between the second quarter of the rounds and the last: less than one result that stays would add."""

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
    (2, "estimate gcn-cora --set npu.tiles=-1"),
    (2, "estimate nowhere.onnx"),
    (2, "estimate bomb.onnx"),
    (2, "whatif gcn-cora --over npu.tiles=1,-1"),
    (2, "query r 'SELECT list_sum(range(1000000000))'"),
    (2, "estimate gcn-cora --soc deep.yaml"),
]


def memory_mb() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def visited(address: str, query: str, lesson: str) -> None:
    """Open a lesson, wait until its first cells have run, and leave."""
    port = int(address.rstrip("/").rpartition(":")[2])
    cookie = {"cookie": f"npusim-{port}={query.removeprefix('?token=')}"}
    place = f"ws://{LOOPBACK}:{port}/lessons/{lesson}/ws?session_id=s_{uuid4().hex[:6]}"
    with connect(place, origin=f"http://{LOOPBACK}:{port}", additional_headers=cookie, max_size=None) as page:
        while "completed-run" not in str(page.recv(timeout=120)):
            pass


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
    curve = []
    for number in range(ROUNDS):
        for status, words in COMMANDS:
            ended = run(hostile_inputs.arguments({"run": words}))
            output, error = capfd.readouterr()
            assert ended == status, (words, error or output)
        visited(address, query, ("roofline", "mac_grid", "int8")[number % 3])
        curve.append(memory_mb())
    with capfd.disabled():
        print("\nMB after each round:", " ".join(f"{one:.0f}" for one in curve))
    quarter = max(ROUNDS // 4, 1)
    assert max(curve[-quarter:]) < max(curve[quarter : 2 * quarter], default=curve[0]) + MOST_GROWTH_MB
