"""A Vision GNN over GPU and DLA: the front of latency and energy that MaGNAS searches."""

from picture import Study, main

import npusim


def study() -> Study:
    """Place ViG-S on Jetson AGX Xavier and read the ends of the front."""
    front = npusim.map("vig-s", "jetson-agx-xavier", devices="gpu,dla", minimise="latency,energy")
    points = sorted(front.points, key=lambda point: point.latency_s)
    fast, frugal = points[0], points[-1]
    step = max(1, len(points) // 6)
    shown = {f"{1e3 * one.latency_s:.1f} ms": 1e3 * one.energy_j for one in [*points[:-1:step], frugal]}
    sentence = (
        f"{len(points)} placements of ViG-S are on the front: {1 - frugal.energy_j / fast.energy_j:.0%} less "
        f"energy costs {frugal.latency_s / fast.latency_s - 1:.0%} more latency."
    )
    return Study(sentence, "Energy (mJ) of placements by latency", shown, f"{1e3 * frugal.latency_s:.1f} ms")


if __name__ == "__main__":
    main(study, __file__)
