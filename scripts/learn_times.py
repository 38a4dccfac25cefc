"""Times of ``npusim learn`` in a browser: ``python scripts/learn_times.py [LESSON...]``, all without one.

From the start of the command to the first picture of a lesson (wanted: under 6 s), and from the press of a
key on its slider to the changed picture (wanted: under 0.3 s at the median). Each lesson has a server of its
own, which nothing has warmed, but kernels are compiled before and the browser runs already. It needs a
machine with nothing else to do, and a Chromium. Exit status 1 where a time is over its limit.

``--fresh`` gives each server an empty home and cache, as on a new machine, and prints two times: from the
command to its address, and from opening the page to its first picture (wanted: under 3 s); and the processor
time of server and browser until then.
``--static FOLDER [LESSON...]`` opens the pages that ``npusim learn --export FOLDER`` wrote, from their files
and without a network: bytes of a page with the library (wanted: under 2 MB), time to the first picture (under
2 s), and the processor time of the browser until then, which other programs change little.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from screenshots import SLIDER, browser

import npusim
from npusim.course.catalogue import lessons

FIRST_PICTURE_S, FRESH_PICTURE_S, UPDATE_S = 6.0, 3.0, 0.3
STATIC_BYTES, STATIC_PICTURE_S = 2_000_000, 2.0
MOVES = 12
PLACE, PLACES = "(one) => one.selectedIndex ?? +one.value", "(one) => +(one.max ?? one.length - 1)"
"""Where a slider, or a list of choices, stands, and its last place; the first is 0."""
PATIENCE_MS = 120_000
WATCH = """() => {
  globalThis.moves = [];
  let pressed = null;
  addEventListener("keydown", () => { pressed = performance.now(); }, true);
  const seen = () => {
    if (pressed !== null) { moves.push(performance.now() - pressed); pressed = null; }
  };
  const drawn = { attributes: true, attributeFilter: ["data-drawn"], subtree: true };
  const watch = (root) => {
    new MutationObserver(seen).observe(root, drawn);
    root.querySelectorAll("*").forEach((one) => one.shadowRoot && watch(one.shadowRoot));
  };
  watch(document);
}"""


def times(started: Any, name: str) -> tuple[float, float, list[float]]:
    """Return times in s: of the server's processor until the first picture, that picture's, each move's."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "npusim", "learn", name, "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+", server.stdout.readline())
            if address is None:
                raise SystemExit(f"{' '.join(command)}: no address")
            view = started.new_page(viewport={"width": 1280, "height": 1400})
            view.set_default_timeout(PATIENCE_MS)
            view.goto(address[0])
            view.wait_for_selector("[data-drawn]")
            first, worked = time.perf_counter() - begun, processor_time(server.pid)
            view.get_by_role("radio").first.click()
            view.wait_for_selector(f"{SLIDER}:enabled")
            view.wait_for_timeout(1000)
            view.evaluate(WATCH)
            slider = view.locator(SLIDER).first
            slider.focus()
            there, back, places = "ArrowRight", "ArrowLeft", slider.evaluate(PLACES)
            for move in range(1, MOVES + 1):
                if slider.evaluate(PLACE) == (places if there == "ArrowRight" else 0):
                    there, back = back, there
                view.keyboard.press(there)
                view.wait_for_function(f"moves.length >= {move}")
            moves = [one / 1000 for one in view.evaluate("moves")]
            view.close()
        finally:
            server.terminate()
    return worked, first, moves


def processor_time(process: int) -> float:
    """Return the processor time of a process in s; 0 where the system does not say."""
    stat = Path(f"/proc/{process}/stat")
    if not stat.is_file():
        return 0.0
    user, system = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def fresh_times(started: Any, name: str) -> tuple[float, float, float, float]:
    """Return times in s on a new machine: to the address, from the page to its picture, of the processor."""
    begun = time.perf_counter()
    with TemporaryDirectory() as home:
        command = [sys.executable, "-m", "npusim", "learn", name, "--no-browser"]
        places = {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **places}
        ) as server:
            try:
                assert server.stdout is not None
                address = re.search(r"http://\S+", server.stdout.readline())
                assert address is not None
                ready, view, before = time.perf_counter(), started.new_page(), browser_time(started)
                view.set_default_timeout(4 * PATIENCE_MS)
                view.goto(address[0], wait_until="commit")
                view.wait_for_selector("[data-drawn]")
                picture = time.perf_counter()
                served, drawn = processor_time(server.pid), browser_time(started) - before
                view.close()
                return ready - begun, picture - ready, served, drawn
            finally:
                server.kill()  # it may be compiling


def browser_time(started: Any) -> float:
    """Return the processor time of a browser's processes (s)."""
    session = started.new_browser_cdp_session()
    return sum(each["cpuTime"] for each in session.send("SystemInfo.getProcessInfo")["processInfo"])


def static_times(started: Any, folder: Path, names: list[str]) -> int:
    """Print bytes and time to the first picture of each static page; return 1 where one is over its limit."""
    is_over, library = 0, (folder / "library.js").stat().st_size
    for path in sorted(set(folder.glob("*.html")) - {folder / "index.html"}):
        if names and path.stem not in names:
            continue
        size = path.stat().st_size + library
        with started.new_context(offline=True) as context:
            view, worked, begun = context.new_page(), browser_time(started), time.perf_counter()
            view.goto(path.resolve().as_uri(), wait_until="commit")
            view.wait_for_selector("[data-drawn]")
            first, worked = time.perf_counter() - begun, browser_time(started) - worked
        is_over |= size >= STATIC_BYTES or first >= STATIC_PICTURE_S
        print(f"{size / 1e6:6.2f} MB {first:6.2f} s, processor {worked:5.2f} s  {path.stem}", flush=True)
    return int(is_over)


def main(wanted: list[str]) -> int:
    """Print a line for each lesson and the medians; return 1 where one is over its limit."""
    if wanted[:1] == ["--static"]:
        with browser() as started:
            return static_times(started, Path(wanted[1]), wanted[2:])
    is_fresh = wanted[:1] == ["--fresh"]
    wanted = wanted[is_fresh:]
    known = [one.name for one in lessons()]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    if is_fresh:
        print("address  page to first picture  processor: server, browser  lesson")
        slowest_s = 0.0
        with browser() as started:
            for name in wanted or known:
                address_s, picture_s, served_s, drawn_s = fresh_times(started, name)
                processor = f"{served_s:17.2f} s {drawn_s:6.2f} s"
                print(f"{address_s:5.1f} s {picture_s:20.1f} s {processor}  {name}", flush=True)
                slowest_s = max(slowest_s, picture_s)
        return int(slowest_s >= FRESH_PICTURE_S)
    firsts, updates = [], []
    npusim.estimate("gcn-cora", interval=False)  # compiles, once on a machine
    print("first picture  server's processor  slider: median  longest  lesson")
    with browser() as started:
        for name in wanted or known:
            worked, first, moves = times(started, name)
            firsts.append(first)
            updates += moves
            middle, longest = 1000 * median(moves), 1000 * max(moves)
            print(f"{first:11.2f} s {worked:17.2f} s {middle:13.0f} ms {longest:5.0f} ms  {name}", flush=True)
    print(f"first picture: at most {max(firsts):.2f} s (wanted: under {FIRST_PICTURE_S:g} s)")
    print(f"slider: median {1000 * median(updates):.0f} ms (wanted: under {1000 * UPDATE_S:g} ms)")
    return int(max(firsts) > FIRST_PICTURE_S or median(updates) > UPDATE_S)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
