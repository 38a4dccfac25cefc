"""How far to trust a figure: 90 % intervals of latency, by network."""

from picture import Study, main

import npusim

NETWORKS = ("gcn-cora", "mobilenet-v2", "resnet-50")


def study() -> Study:
    """Compare the width of the interval of three networks."""
    widths = {}
    for name in NETWORKS:
        techniques = "stagr" if name == "gcn-cora" else "none"
        estimate = npusim.estimate(name, techniques=techniques, interval=True)
        low, high = estimate.intervals["throughput_per_s"]
        widths[name] = high / low
    best, worst = min(widths, key=lambda name: widths[name]), max(widths, key=lambda name: widths[name])
    sentence = (
        f"The throughput of {best} is known within a factor of {widths[best]:.2f} from end to end of its "
        f"90 % interval, that of {worst} within {widths[worst]:.2f}."
    )
    return Study(sentence, "Upper over lower end of the interval of throughput", widths, worst)


if __name__ == "__main__":
    main(study, __file__)
