"""SymG on other machines: what half a symmetric norm saves where the array, and not DRAM, sets the pace."""

from picture import Study, main

import npusim

MACHINES = ("core-ultra-series1", "core-ultra-series2", "core-ultra-series3")
FLOWS = ("weight_stationary", "kcp_ws")


def study() -> Study:
    """Compare the speed-up of SymG on three NPUs and two other dataflows of one."""
    cases = {soc: (soc, ()) for soc in MACHINES}
    cases |= {f"series2, {flow}": ("core-ultra-series2", (f"npu.dpu.dataflow={flow}",)) for flow in FLOWS}
    gains = {}
    for name, (soc, settings) in cases.items():
        plain, half = (
            npusim.estimate("gcn-cora", soc, techniques=stack, settings=settings).latency_s
            for stack in ("stagr", "stagr+symg")
        )
        gains[name] = plain / half
    best, worst = max(gains, key=lambda name: gains[name]), min(gains, key=lambda name: gains[name])
    sentence = (
        f"SymG makes GCN on Cora {gains[best]:.2f} times as fast on {best}, and {gains[worst]:.2f} times on "
        f"{worst}."
    )
    return Study(sentence, "Speed-up by SymG", gains, best)


if __name__ == "__main__":
    main(study, __file__)
