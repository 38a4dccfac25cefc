"""Pruned channels: what a GNN gains from fewer hidden channels, and where the grid stops gaining."""

from itertools import pairwise

from picture import Study, main

import npusim

WIDTHS = (256, 128, 64, 32, 16, 8, 4)


def study() -> Study:
    """Vary the hidden channels of GraphSAGE on Cora, without the launch."""
    latency = {
        f"{width} channels": 1e6
        * npusim.estimate(
            "sage-mean-cora",
            techniques="stagr",
            settings=[f"workload.hidden={width}", "npu.launch_overhead=0ms"],
        ).latency_s
        for width in WIDTHS
    }
    names = list(latency)
    ends = next(b for a, b in pairwise(names) if latency[b] > 0.97 * latency[a])
    gain = latency[names[0]] / latency["16 channels"]
    sentence = (
        f"From 256 to 16 channels GraphSAGE gets {gain:.2f} times as fast; "
        f"from {ends} on halving them gains less than 3 %."
    )
    return Study(sentence, "Latency without launch (us)", latency, ends)


if __name__ == "__main__":
    main(study, __file__)
