"""An estimate in a fresh process, everything compiled: quick and small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import atexit, resource, runpy, sys
def report():
    used = resource.getrusage(resource.RUSAGE_SELF)
    with open("/proc/self/status") as status:  # ru_maxrss would count the process that started this one
        kib = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(used.ru_utime + used.ru_stime, kib * 1024 / 1e6, file=sys.stderr)
atexit.register(report)
sys.argv = ["npusim", "estimate", "gcn-cora", "--format", "json"]
runpy.run_module("npusim", run_name="__main__")
"""


@pytest.mark.laws
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no accounting of a process there")
@pytest.mark.parametrize("most_cpu_s", [float("inf"), pytest.param(1.5, marks=pytest.mark.calm)])
def test_an_estimate_in_a_fresh_process_takes_little_memory_and_time(most_cpu_s):
    # Few calls run as plain Python by default, and any of them may be the one from which on it is compiled.
    compiled = os.environ | {"NPUSIM_KERNELS": "compiled"}
    run = [sys.executable, "-c", SCRIPT]
    for _ in range(2):  # the first may have to compile
        done = subprocess.run(run, env=compiled, capture_output=True, text=True, timeout=900, check=True)
    assert json.loads(done.stdout)["schema"] == "npusim.estimate/1"
    cpu_s, megabytes = done.stderr.split()[-2:]
    assert float(cpu_s) < most_cpu_s
    assert float(megabytes) < 250
