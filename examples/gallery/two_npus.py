"""A second NPU: does one network gain throughput from two?"""

from picture import Study, main

import npusim


def study() -> Study:
    """Place MobileNetV2 on one NPU, and over two with requests in flight."""
    rates = {"npu alone": npusim.estimate("mobilenet-v2", "two-npus", hint="throughput").throughput_per_s}
    rates["vision alone"] = npusim.estimate(
        "mobilenet-v2", "two-npus", device="vision", hint="throughput"
    ).throughput_per_s
    placed = npusim.map("mobilenet-v2", "two-npus", devices="npu,vision", hint="throughput")
    rates["both, placed"] = placed.throughput_per_s
    best = max(rates["npu alone"], rates["vision alone"])
    sentence = (
        f"Placed over both NPUs MobileNetV2 reaches {rates['both, placed']:,.0f} inferences a second, "
        f"{rates['both, placed'] / best:.2f} times the better NPU alone."
    )
    return Study(sentence, "Inferences a second", rates, "both, placed")


if __name__ == "__main__":
    main(study, __file__)
