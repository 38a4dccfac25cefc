WHAT = "pareto of 10^7 kept points"
WANTED = "5 s, 1 GB"
CASES = ("",)
TURNS = 1
BEFORE_S = {"": 60}
_AXES = {
    "npu.sram.per_tile": {"from": "384KiB", "to": "6MiB", "count": 5},
    "npu.dma.engines": {"values": [1, 2, 3, 4]},
    "npu.dpu.clock": {"from": "1GHz", "to": "2GHz", "count": 500},
    "dram.bandwidth": {"from": "30GB/s", "to": "270GB/s", "count": 1000},
}


def prepare(case):
    """Sweep in another process: its memory does not count."""
    import subprocess
    import sys

    space = {
        "schema": "npusim.space/1",
        "workload": "gcn-cora",
        "techniques": "stagr",
        "axes": _AXES,
        "keep": "all",
    }
    code = f"import npusim; npusim.sweep({space!r}, 'kept')"
    subprocess.run([sys.executable, "-c", code], check=True)


def work(case):
    from npusim.explore.fronts import pareto

    return pareto("kept").front
