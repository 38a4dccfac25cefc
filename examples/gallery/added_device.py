"""A device as a plug-in: an accelerator is added to a laptop's sheet as data, and the mapping uses it."""

import tempfile
from pathlib import Path

import yaml
from picture import Study, main

import npusim
from npusim.arch.loading import soc_file


def study() -> Study:
    """Put Gemmini beside the devices of Core Ultra Series 1 and place MobileNetV2."""
    sheet = {
        "schema": "npusim.soc/1",
        "extends": "core-ultra-series1",
        "name": "laptop-with-gemmini",
        "title": "A laptop with one accelerator more",
        "devices": {"gemmini": yaml.safe_load(soc_file("gemmini").read_text())["devices"]["gemmini"]},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mine.yaml")
        file.write_text(yaml.safe_dump(sheet))
        soc = npusim.load_soc(file)
    options = {"settings": ["workload.precision=int8"], "hint": "throughput"}
    rates = {
        name: npusim.estimate("mobilenet-v2", soc, device=name, **options).throughput_per_s
        for name in ("npu", "gemmini")
    }
    placed = npusim.map("mobilenet-v2", soc, devices="npu,gemmini", **options)
    rates["npu and gemmini"] = placed.throughput_per_s
    gain = rates["npu and gemmini"] / rates["npu"] - 1.0
    sentence = (
        f"An accelerator of {rates['gemmini']:.0f} inferences a second, added to the laptop's sheet as data, "
        f"takes the NPU from {rates['npu']:,.0f} to {rates['npu and gemmini']:,.0f}, {gain:.0%} more."
    )
    return Study(sentence, "Inferences of MobileNetV2 a second", rates, "npu and gemmini")


if __name__ == "__main__":
    main(study, __file__)
