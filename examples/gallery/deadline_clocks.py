"""Clocks for a deadline: the operating point that keeps it with the least energy."""

from picture import Study, main

import npusim

DEADLINE_S = 4.5e-3
SOC = "core-ultra-series1"


def study() -> Study:
    """Run ResNet-50 at every operating point of the NPU."""
    points = npusim.load_soc(SOC).npu.operating_points
    estimates = {
        name: npusim.estimate("resnet-50", SOC, settings=[f"npu.operating_point={name}"]) for name in points
    }
    energy = {f"{name}, {1e3 * e.latency_s:.2f} ms": 1e3 * e.energy_j for name, e in estimates.items()}
    kept = {name: e for name, e in estimates.items() if e.latency_s <= DEADLINE_S}
    best = min(kept, key=lambda name: kept[name].energy_j)
    fastest = min(estimates, key=lambda name: estimates[name].latency_s)
    saved = 1.0 - estimates[best].energy_j / estimates[fastest].energy_j
    sentence = (
        f"{best} keeps {1e3 * DEADLINE_S:g} ms with {saved:.1%} less energy than {fastest}; "
        f"{len(kept)} of {len(points)} points do."
    )
    marked = f"{best}, {1e3 * estimates[best].latency_s:.2f} ms"
    return Study(sentence, "Energy of ResNet-50 (mJ)", energy, marked)


if __name__ == "__main__":
    main(study, __file__)
