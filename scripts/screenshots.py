"""Makes the pictures in docs/screenshots: ``python scripts/screenshots.py [KIND...]``, all kinds without one.

Every kind of HTML page and every lesson as a browser shows it 1280 and 390 pixels wide, and tables as a
terminal of 80 columns shows them. It needs the extra `dev` and a Chromium; nothing is loaded from a network.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

from npusim.arch import load_soc
from npusim.cli.program import run
from npusim.course.catalogue import lessons
from npusim.course.server import serve
from npusim.gnn_models.document import AccuracyReport
from npusim.locate import dataset_root
from npusim.measuring.document import Benchmark, Device, Measurement, Row, Spread, Workload
from npusim.measuring.models import graph_of
from npusim.reporting.pages import html_of
from npusim.scenario import Scenario
from npusim.studies.perturbation import moved

TARGET = Path(__file__).resolve().parents[1] / "docs" / "screenshots"
SOC = "core-ultra-series2"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OFFLINE = (
    "--no-sandbox",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
    "--disable-gpu",
)
WIDTHS = (1280, 390)
HIGHEST = {1280: 2600, 390: 3600}
"""Pixels of a page that are shown."""
_COLOURS = 160
"""Colours of a picture: text and plots need no more, and a quarter of the bytes goes."""
SLIDER = ".sliders :is(input, select)"
"""What a visitor of a lesson moves."""
FULL_HEIGHT = "document.documentElement.scrollHeight"

SPACE = f"""
schema: npusim.space/1
title: Tiles, SRAM and INT8
workload: gcn-cora
soc: {SOC}
axes:
  techniques: {{values: [stagr, stagr+quantgr]}}
  npu.tiles: {{from: 1, to: 6, step: 1}}
  npu.sram.per_tile: {{values: [512KiB, 1MiB, 1536KiB, 2MiB, 4MiB]}}
keep: all
"""
PAGES: dict[str, str] = {
    "estimate": "estimate gcn-cora -t stagr",
    "estimate-event": "estimate gcn-cora -t stagr --engine event",
    "whatif": "whatif gcn-cora",
    "over": "whatif gcn-cora --stack stagr,symg,quantgr --over npu.tiles=2,4,6",
    "compare": "compare gcn-cora stagr stagr+quantgr",
    "map": "map gat-cora -t effop",
    "stream": "stream gcn-cora --updates 60",
    "pareto": "pareto sweep",
    "trace-diff": "trace diff none.json stagr.json",
    "validate": "validate silicon-dma",
    "list": "list techniques",
    "mix": "mix mobilenet-v2:poisson=200/s,deadline=20ms gcn-cora:poisson=5/s --requests 2000",
    "llm": f"llm llama3.2-1b llama3-8b --soc {SOC}",
}
"""Command of each kind of page that `-o FILE.html` makes; it runs in a folder that `prepared` filled."""
OTHERS: dict[str, str] = {
    "timeline": "estimate gat-cora -t stagr --engine event -o timeline.json --trace timeline.html",
    "calibrate": f"calibrate {SOC} --measurements measured.json -o fitted.yaml --report calibrate.html -q",
    "report": "report 'estimate gcn-cora -t stagr --engine event' 'whatif gcn-cora' sweep -o report.html",
    "search": "",
    "measure": "",
    "accuracy": "",
}
"""Pages that another option makes, or no command without a device."""
TERMINAL: dict[str, str] = {
    "estimate": "estimate gcn-cora -t stagr",
    "event": "estimate gcn-cora -t stagr --engine event",
    "whatif": "whatif gcn-cora",
    "over": "whatif gcn-cora --stack stagr,symg,quantgr --over npu.tiles=1,2,3,4,5,6",
    "map": "map gat-cora -t effop",
    "stream": "stream gcn-cora --updates 60",
    "pareto": "pareto sweep",
    "compare": "compare gcn-cora stagr stagr+quantgr",
    "trace-diff": "trace diff none.json stagr.json",
    "validate": "validate silicon-dma",
    "list": "list techniques",
    "error": "estimate gcn-cora -t stager",
}


LEARN = {"lessons": "", "explorer": "explorer/"}
LEARN |= {f"lesson-{one.number:02}-{one.name}": f"lessons/{one.name}/" for one in lessons()}
"""Address of each page of `npusim learn` on its server."""

_PATIENCE_MS = 300_000
_LATER_MS = 3000
"""How long a page of `npusim learn` may take to follow what was done to it."""


def prepared(folder: Path) -> None:
    """Fill a folder with what the commands of `PAGES` and `OTHERS` read: traces, a sweep, a measurement."""
    for stack in ("none", "stagr"):
        quietly(f"estimate gcn-cora -t {stack} --engine event -o estimate.json --trace {stack}.json", folder)
    (folder / "space.yaml").write_text(SPACE)
    quietly("sweep space.yaml -o sweep --quiet", folder)
    (folder / "measured.json").write_text(simulated_measurement().to_json())


def quietly(command: str, folder: Path) -> None:
    """Run a command of npusim in a folder; SystemExit where it fails."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            status = run(shlex.split(command))
    finally:
        os.chdir(before)
    if status != 0:
        raise SystemExit(f"npusim {command}: exit status {status}")


def simulated_measurement() -> Measurement:
    """Return the times of a CPU that differs from its data sheet, with 2 % of noise."""
    truth = {("devices", "cpu", "clock"): 2.6e9, ("devices", "cpu", "dram_bandwidth"): 70e9}
    machine, random = moved(load_soc(SOC), truth), np.random.default_rng(0)
    sizes = ((64, 64), (2708, 256), (2708, 2708))
    models: dict[str, Any] = {"empty": Benchmark(operator="Empty", sizes={})}
    for m, k, n in ((64, 64, 64), (2708, 1433, 64), (1024, 1024, 1024)):
        models[f"matmul {m}"] = Benchmark(operator="MatMul", sizes={"m": m, "k": k, "n": n})
    for operator in ("Add", "Softmax"):
        for rows, columns in sizes:
            named = Benchmark(operator=operator, sizes={"rows": rows, "columns": columns})
            models[f"{operator.lower()} {rows}x{columns}"] = named
    for size in (1 << 14, 1 << 20, 1 << 25):
        models[f"copy {size}"] = Benchmark(operator="Copy", sizes={"bytes": size})
    models["gcn"] = Workload(workload="gcn-cora", techniques="stagr")
    found = []
    for name, model in models.items():
        mapped = Scenario(graph_of(model, "f32"), machine, device="cpu").mapped
        seconds = float(mapped.total["latency_s"]) * float(np.exp(0.02 * random.standard_normal()))
        spread = Spread(median_s=seconds, low_s=0.98 * seconds, high_s=1.05 * seconds, repetitions=9)
        found.append(Row(id=name, model=model, precision="f32", latency_s=spread))
    device = Device(kind="cpu", name="Intel(R) Core(TM) Ultra 7 256V, simulated")
    return Measurement(npusim="0", date="2026-01-31", device=device, rows=tuple(found))


def some_accuracies() -> AccuracyReport:
    """Return a report with made-up figures, for tests: real ones take a training on real data."""
    each = {
        "workload": "gcn-cora",
        "agreement": 1.0,
        "largest_difference": 0.0,
        "expected": "same",
        "seeds": [],
    }
    shown = (
        ("none", "fp32", 0.815, 0.0),
        ("stagr", "fp16", 0.815, 0.0),
        ("stagr+quantgr", "int8", 0.812, -0.003),
    )
    training = {"learning_rate": 0.01, "weight_decay": 5e-4, "epochs": 200, "torch": "made up"}
    results = [
        {**each, "techniques": stack, "numbers": numbers, "accuracy": share, "change": change}
        for stack, numbers, share, change in shown
    ]
    return AccuracyReport.model_validate({"training": training, "results": results, "skipped": []})


def write_page(kind: str, folder: Path, *, is_real: bool = False) -> Path:
    """Write the page of a kind into a prepared folder and return it.

    Parameters
    ----------
    is_real : bool
        Whether accuracies come from a training on real data, in the folder that NPUSIM_DATA names.
    """
    page = folder / f"{kind}.html"
    if kind in PAGES:
        quietly(f"{PAGES[kind]} -o {page.name}", folder)
    elif kind == "measure":
        page.write_text(html_of(simulated_measurement(), ""))
    elif kind == "accuracy" and is_real:
        quietly(f"accuracy gcn-cora -o {page.name}", folder)
    elif kind == "accuracy":
        page.write_text(html_of(some_accuracies(), ""))
    elif kind == "search":
        from npusim.explore.search import search

        page.write_text(html_of(search(folder / "space.yaml", folder / "found", budget=40), ""))
    else:
        quietly(OTHERS[kind], folder)
    return page


@contextmanager
def browser() -> Iterator[Any]:
    """Lend a browser that reaches no network."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise SystemExit(f"no browser: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(OFFLINE))
        yield started
        started.close()


def shoot(view: Any, width: int, target: Path, highest: int = 4000) -> None:
    """Write what a page shows, as far as it is high, into a picture."""
    from PIL import Image

    for _ in range(2):  # a page may grow with its window
        height = min(view.evaluate(FULL_HEIGHT), highest)
        view.set_viewport_size({"width": width, "height": height})
        view.wait_for_timeout(400)  # plots are drawn again for the new size
    with Image.open(io.BytesIO(view.screenshot())) as picture:
        few = picture.convert("RGB").quantize(_COLOURS, kmeans=1, dither=Image.Dither.NONE).convert("RGB")
        few.save(target, lossless=True, quality=100, method=4)


def terminal_page(command: str, folder: Path) -> str:
    """Return what a command shows in a terminal of 80 columns, as HTML."""
    from rich.console import Console
    from rich.text import Text

    environment = {**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-m", "npusim", *command.split()], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    console = Console(record=True, width=80, file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(f"$ npusim {command}\n{done.stdout}"))
    style = "margin: 12px; font: 14px/1.35 'DejaVu Sans Mono', monospace"
    return console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')


def main(wanted: list[str]) -> None:
    """Make the pictures of some kinds, or of all."""
    TARGET.mkdir(parents=True, exist_ok=True)
    jobs: dict[str, Callable[[Any, Path], None]] = {}
    for kind in [*PAGES, *OTHERS]:
        jobs[kind] = lambda one, folder, kind=kind: _page(one, folder, kind)
    for kind in LEARN:
        jobs[kind] = lambda one, folder, kind=kind: _lesson(one, kind)
    for kind in TERMINAL:
        jobs[f"terminal-{kind}"] = lambda one, folder, kind=kind: _terminal(one, folder, kind)
    unknown = [name for name in wanted if name not in jobs]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(jobs)}")
    with tempfile.TemporaryDirectory() as name, browser() as started:
        folder = Path(name)
        if not wanted or set(wanted) - set(LEARN):
            prepared(folder)
        for kind in wanted or jobs:
            jobs[kind](started, folder)


def _page(started: Any, folder: Path, kind: str) -> None:
    if kind == "accuracy" and dataset_root() is None:
        print("accuracy: left out, NPUSIM_DATA names no folder with data sets")
        return
    page = write_page(kind, folder, is_real=True)
    for width in WIDTHS:
        view = started.new_page(viewport={"width": width, "height": 900})
        view.set_default_timeout(_PATIENCE_MS)
        view.goto(page.as_uri())
        shoot(view, width, TARGET / f"{kind}-{width}.webp", HIGHEST[width])
        view.close()


@cache
def _server() -> tuple[str, str]:
    """Return the address of a server of the lessons that runs until this script ends, and its query."""
    said: Queue[tuple[str, str]] = Queue()
    threading.Thread(target=serve, args=(0, lambda *words: said.put(words)), daemon=True).start()
    return said.get()


def _lesson(started: Any, kind: str) -> None:
    """Take a lesson as far as a slider and a wrong answer, so that all it can say is seen."""
    view = started.new_page(viewport={"width": WIDTHS[0], "height": 900})
    view.set_default_timeout(_PATIENCE_MS)
    address, query = _server()
    view.goto(address + LEARN[kind] + query)
    if LEARN[kind]:
        view.wait_for_selector("[data-drawn]")
    if kind == "explorer":
        view.wait_for_selector("[data-block=pictures] [data-drawn]")
    if LEARN[kind].startswith("lessons/"):
        view.get_by_role("radio").first.click()
        view.wait_for_selector(f"{SLIDER}:enabled")
        view.locator(SLIDER).first.focus()
        view.keyboard.press("ArrowRight")
        answer = view.get_by_placeholder("a number")
        answer.fill("1")
        answer.press("Enter")
        view.get_by_text("Not yet").wait_for()
    view.wait_for_function("[...document.querySelectorAll('.busy')].every((one) => !one.textContent)")
    view.wait_for_timeout(_LATER_MS)
    for width in WIDTHS:
        view.set_viewport_size({"width": width, "height": 900})
        view.wait_for_timeout(_LATER_MS / 4)
        shoot(view, width, TARGET / f"{kind}-{width}.webp")
    view.close()


def _terminal(started: Any, folder: Path, kind: str) -> None:
    page = folder / f"terminal-{kind}.html"
    page.write_text(terminal_page(TERMINAL[kind], folder))
    view = started.new_page(viewport={"width": 720, "height": 300})
    view.goto(page.as_uri())
    shoot(view, 720, TARGET / f"terminal-{kind}.webp")
    view.close()


if __name__ == "__main__":
    main(sys.argv[1:])
