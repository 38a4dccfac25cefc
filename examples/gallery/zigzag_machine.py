"""Import a ZigZag machine: a small array in ZigZag's format becomes a data sheet, with what it cannot say."""

import tempfile
from itertools import pairwise
from pathlib import Path

from picture import Study, main

import npusim

PORTS = "[{name: rw, type: read_write, bandwidth_min: 64, bandwidth_max: %d, allocation: []}]"
MACHINE = """
name: small_array
memories:
  registers: {size: 8, r_cost: 0.01, w_cost: 0.01, operands: [I2], ports: %s, served_dimensions: []}
  buffer:
    {size: 4e6, r_cost: 60, w_cost: 70, operands: &all [I1, I2, O], ports: %s, served_dimensions: [D1, D2]}
  dram:
    {size: 16000000000, r_cost: 700, w_cost: 700, operands: *all, ports: %s, served_dimensions: [D1, D2]}
operational_array: {unit_energy: 0.04, dimensions: [D1, D2], sizes: [%d, %d]}
"""
EDGES = (8, 16, 32, 64, 128)


def study() -> Study:
    """Import the machine with arrays of several sizes and run MobileNetV2 on each."""
    latency, unsaid = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = Path(folder, "theirs.yaml"), Path(folder, "ours.yaml")
        for edge in EDGES:
            theirs.write_text(MACHINE % (PORTS % 64, PORTS % 2048, PORTS % 128, edge, edge))
            text = npusim.soc([theirs])
            unsaid = text.count("\n#   ")
            ours.write_text(text)
            estimate = npusim.estimate("mobilenet-v2", ours, settings=["workload.precision=int8"])
            latency[f"{edge} x {edge}"] = 1e3 * estimate.latency_s
    names = list(latency)
    gains = {b: latency[a] / latency[b] for a, b in pairwise(names)}
    last = [name for name, gain in gains.items() if gain > 1.5][-1]
    sentence = (
        f"Four times the PEs pay up to {last} ({gains[last]:.2f} times as fast); {names[-1]} gives "
        f"{gains[names[-1]]:.2f} times. The imported file leaves {unsaid} things to estimates."
    )
    return Study(sentence, "Latency of MobileNetV2 by array (ms)", latency, last)


if __name__ == "__main__":
    main(study, __file__)
