"""A dataflow of one's own: the reduction on one axis and pixels on the other, on Gemmini's array."""

import tempfile
from pathlib import Path

from picture import Study, main

import npusim

LOOPS = "[[input_channels, kernel_height, kernel_width], [output_width, output_height]]"
OWN = f"{{unroll: {LOOPS}, stationary: any}}"
SHEET = f"""
schema: npusim.soc/1
extends: gemmini
name: mine
title: Gemmini with a dataflow of my own
devices: {{gemmini: {{dpu: {{dataflow: {OWN}}}}}}}
"""
SHIPPED = ("weight_stationary", "output_stationary", "kcp_ws", "nlr")
INT8 = ["workload.precision=int8"]


def study() -> Study:
    """Compare the array's busy time on MobileNetV2."""
    machines = {name: npusim.load_soc("gemmini", [f"gemmini.dpu.dataflow={name}"]) for name in SHIPPED}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mine.yaml")
        file.write_text(SHEET)
        machines["reduction x pixels (own)"] = npusim.load_soc(file)
    busy = {
        name: 1e3 * npusim.estimate("mobilenet-v2", soc, settings=INT8).units["gemmini.dpu"].busy_s
        for name, soc in machines.items()
    }
    own = busy.pop("reduction x pixels (own)")
    best = min(busy, key=lambda name: busy[name])
    sentence = (
        f"On MobileNetV2 the new dataflow keeps the array busy for {own:.2f} ms, {busy[best] / own:.2f} "
        f"times as fast as {best}, the best of the four shipped ones."
    )
    busy["reduction x pixels (own)"] = own
    return Study(sentence, "Busy time of a 16 x 16 array (ms)", busy, "reduction x pixels (own)")


if __name__ == "__main__":
    main(study, __file__)
