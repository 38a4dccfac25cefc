"""Peers on the two products of GCN-Cora, each in an environment of its own: time of an estimate, and cycles.

`make bench ROWS=peers` runs it. Each package is installed into a temporary environment; what cannot be
installed is said on the page. Each tool is given what it ships for the machine that is nearest to an array of
32 x 32 multipliers, so cycles are those of its machine: only the time an estimate takes is compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, NamedTuple

PRODUCTS = {"A (X W), layer 1": (2708, 2708, 64), "X W, layer 1": (2708, 1433, 64)}
"""Rows, reduction and columns."""
_INSTALL_S, _RUN_S = 120, 90

_ZIGZAG = """
import json, pathlib, sys, time, logging
logging.disable(logging.CRITICAL)
import zigzag
from zigzag.api import get_hardware_performance_zigzag
inputs = pathlib.Path(zigzag.__file__).parent / "inputs"
found = {}
for name, (m, k, n) in json.loads(sys.argv[1]).items():
    layer = {"id": 0, "name": "product", "operator_type": "Gemm", "equation": "O[d][k]+=I[d][c]*W[c][k]",
             "dimension_relations": [], "loop_dims": ["D", "K", "C"], "loop_sizes": [m, n, k],
             "operand_precision": {"W": 8, "I": 8, "O": 16, "O_final": 8},
             "operand_source": {"I": 0, "W": 0}}
    began = time.perf_counter()
    energy, cycles, _ = get_hardware_performance_zigzag(
        [layer], str(inputs / "hardware/tpu_like.yaml"), str(inputs / "mapping/tpu_like.yaml"),
        opt="latency", dump_folder="out", pickle_filename="out/x.pickle", loma_show_progress_bar=False)
    found[name] = [time.perf_counter() - began, float(cycles)]
print(json.dumps(found))
"""
_SCALESIM = """
import json, os, sys, time, contextlib, io
from scalesim.scale_sim import scalesim
config = '''[general]
run_name = run
[architecture_presets]
ArrayHeight: 32
ArrayWidth: 32
IfmapSramSzkB: 1024
FilterSramSzkB: 512
OfmapSramSzkB: 512
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: os
Bandwidth: 10
MemoryBanks: 1
ReadRequestBuffer: 512
WriteRequestBuffer: 512
[layout]
IfmapCustomLayout: False
IfmapSRAMBankBandwidth: 10
IfmapSRAMBankNum: 10
IfmapSRAMBankPort: 2
FilterCustomLayout: False
FilterSRAMBankBandwidth: 10
FilterSRAMBankNum: 10
FilterSRAMBankPort: 2
[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40
[run_presets]
InterfaceBandwidth: CALC
UseRamulatorTrace: False
'''
open("run.cfg", "w").write(config)
found = {}
for name, (m, k, n) in json.loads(sys.argv[1]).items():
    open("gemm.csv", "w").write(f"Layer,M,N,K,\\nproduct,{m},{n},{k},\\n")
    open("layout.csv", "w").write("")
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        s = scalesim(save_disk_space=True, verbose=False, config="run.cfg", topology="gemm.csv",
                     layout="layout.csv", input_type_gemm=True)
        s.run_scale(top_path="logs")
    found[name] = [time.perf_counter() - began, float(s.get_total_cycles())]
print(json.dumps(found))
"""
_NPUSIM = """
import json, sys, time
import npusim
from npusim import DType, Editor
found = {}
for turn in range(2):  # the first one compiles
    for name, (m, k, n) in json.loads(sys.argv[1]).items():
        editor = Editor("product")
        a, b = editor.input("a", (m, k), DType.FP16), editor.constant("b", (k, n), DType.FP16)
        editor.outputs.append(editor.matmul(a, b, "product"))
        graph = editor.finish()
        began = time.perf_counter()
        estimate = npusim.estimate(graph, "core-ultra-series2", interval=False)
        clock = float(npusim.load_soc("core-ultra-series2").npu.dpu.clock)
        found[name] = [time.perf_counter() - began, estimate.latency_s * clock]
print(json.dumps(found))
"""


class Peer(NamedTuple):
    """A tool that estimates products."""

    name: str
    package: str
    """What pip installs; empty where there is no package."""
    code: str
    """What times it; empty where it could not be installed when this was written."""
    machine: str


PEERS = (
    Peer("npusim", "", _NPUSIM, "core-ultra-series2, its tiling searched"),
    Peer("ZigZag", "zigzag-dse==3.9.1 six", _ZIGZAG, "tpu_like as shipped, 32 x 32, its mapping searched"),
    Peer("SCALE-Sim", "scalesim==3.0.0", _SCALESIM, "32 x 32, outputs stationary, one mapping, every cycle"),
    Peer("AccelForge", "accelforge==1.0.467", "", ""),
    Peer("MAESTRO", "", "", ""),
)


def measure() -> dict[str, Any]:
    """Return, by peer, seconds and cycles of each product, or why there are none."""
    return {peer.name: _measured(peer) for peer in PEERS}


def _measured(peer: Peer) -> dict[str, Any]:
    if not peer.package and not peer.code:
        return {"missing": "a C++ program, in no package registry (`maestro` there is another program)"}
    with tempfile.TemporaryDirectory(prefix="npusim-peer-") as folder:
        python = sys.executable
        if peer.package:
            venv.create(Path(folder) / "env", with_pip=True)
            python = str(Path(folder) / "env" / "bin" / "python")
            try:
                _run([python, "-m", "pip", "install", "--quiet", *peer.package.split()], folder, _INSTALL_S)
            except subprocess.TimeoutExpired:
                return {"missing": f"not installed within {_INSTALL_S} s"}
            except subprocess.CalledProcessError as error:
                said = [line for line in error.stderr.splitlines() if line.startswith("ERROR:")][-1:]
                return {"missing": f"pip does not install {peer.package}: {' '.join(said)[7:200]}"}
        if not peer.code:
            return {"missing": "installs, but nothing is written here that runs it"}
        try:
            said = _run([python, "-c", peer.code, json.dumps(PRODUCTS)], folder, _RUN_S)
        except subprocess.TimeoutExpired:
            return {"missing": f"takes more than {_RUN_S} s"}
        except subprocess.CalledProcessError as error:
            return {"missing": f"fails: {str(error.stderr).strip().splitlines()[-1:]}"}
        return {"products": json.loads(said.splitlines()[-1])}


def _run(command: list[str], folder: str, limit_s: float) -> str:
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=limit_s,
        env={"PYTHONPATH": root} | _environment() if command[0] == sys.executable else None,
    )  # fmt: skip
    return done.stdout


def _environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def section(found: dict[str, Any]) -> str:
    """Return the section of docs/performance.md."""
    lines = [
        "## Peers",
        "",
        "The two products of GCN-Cora's first layer, wall time of an estimate when",
    ]
    lines += ["all is loaded, and cycles. Machines differ, so cycles are no comparison.", ""]
    lines += ["| tool | machine | " + " | ".join(f"{name}: s | cycles" for name in PRODUCTS) + " |"]
    lines += ["| --- | --- |" + " ---: | ---: |" * len(PRODUCTS)]
    for peer in PEERS:
        products = found.get(peer.name, {}).get("products")
        if products:
            cells = [f"{products[name][0]:.3g} | {products[name][1]:,.0f}" for name in PRODUCTS]
        else:
            cells = [found.get(peer.name, {}).get("missing", "not measured"), *[""] * (2 * len(PRODUCTS) - 1)]
        lines.append(f"| {peer.name} | {peer.machine} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])
