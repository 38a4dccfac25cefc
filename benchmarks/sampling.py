"""Where a process spends its time: `python sampling.py OUT -m npusim ...`, shares of processor time as JSON.

A timer of processor time interrupts the process; what has passed since the last time is counted to the part
of the package that is at work. An interrupt waits until compiled code returns, so that is counted in full.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

_EVERY_S = 0.002
_COMPILERS = ("/numba/", "/llvmlite/")


def part_of(frame: FrameType | None) -> str:
    """Return the part that is at work: an import, the compiler, a package of npusim, or another library."""
    nearest = ""
    compiling = False
    while frame is not None:
        name = frame.f_code.co_filename.replace("\\", "/")
        if name.startswith("<frozen importlib") or frame.f_code.co_name == "_find_and_load":
            return "imports"
        compiling = compiling or any(one in name for one in _COMPILERS)
        if not nearest and "/npusim/" in name:
            inside = name.rpartition("/npusim/")[2].split("/")
            nearest = "/".join(inside[:2] if len(inside) > 2 else inside[:1])
        frame = frame.f_back
    return "compiler and its cache" if compiling else nearest or "else"


def main() -> None:
    """Run what follows the name of the file that is written, as Python would."""
    out, how, what, *arguments = sys.argv[1:]
    spent: Counter[str] = Counter()
    last = [time.process_time()]

    def count(_: int, frame: FrameType | None) -> None:
        now = time.process_time()
        spent[part_of(frame)] += now - last[0]
        last[0] = now

    signal.signal(signal.SIGPROF, count)
    signal.setitimer(signal.ITIMER_PROF, _EVERY_S, _EVERY_S)
    sys.argv = [what, *arguments]
    try:
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        elif how == "-c":
            sys.argv[0] = "-c"
            exec(compile(what, "<command>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(what, run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        total = sum(spent.values()) or 1.0
        shares = {name: seconds / total for name, seconds in spent.most_common()}
        Path(out).write_text(json.dumps({"processor_s": total, "shares": shares}), encoding="utf-8")


if __name__ == "__main__":
    main()
