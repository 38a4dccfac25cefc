"""Decoding of a language model: tokens a second follow DRAM's bandwidth and the bits of the weights."""

from picture import Study, main

import npusim

BANDWIDTHS = (40, 80, 120)
FORMATS = ("fp16", "int8", "int4")


def study() -> Study:
    """Vary bandwidth and weights of Llama 3.2 1B."""
    rates = {}
    for weights in FORMATS:
        for bandwidth in BANDWIDTHS:
            settings = [f"dram.bandwidth={bandwidth}GB/s", f"workload.weights={weights}"]
            estimate = npusim.estimate("llama3.2-1b", settings=settings)
            rates[f"{weights}, {bandwidth} GB/s"] = 1.0 / estimate.latency_s
    double, narrow = (rates[name] / rates["fp16, 40 GB/s"] for name in ("fp16, 80 GB/s", "int4, 40 GB/s"))
    sentence = (
        f"Twice the bandwidth gives Llama 3.2 1B {double:.2f} times the tokens a second, weights of 4 bits "
        f"in place of 16 give {narrow:.2f} times."
    )
    return Study(sentence, "Tokens a second", rates, "int4, 40 GB/s")


if __name__ == "__main__":
    main(study, __file__)
