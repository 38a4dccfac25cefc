"""A power cap: which throughput a package keeps when it may draw less."""

from picture import Study, main

import npusim

LIMITS = (2.5, 3.0, 4.0, 5.0, 6.0, 28.0)


def study() -> Study:
    """Throttle ResNet-50 to several limits of package power."""
    rates = {}
    for limit in LIMITS:
        settings = [f"package.power_limit={limit}W", "package.throttle=true"]
        rates[f"{limit:g} W"] = npusim.estimate(
            "resnet-50", "core-ultra-series1", hint="throughput", settings=settings
        ).throughput_per_s
    free = rates["28 W"]
    least = next(name for name, rate in rates.items() if rate >= 0.99 * free)
    lowest = next(iter(rates))
    sentence = (
        f"ResNet-50 runs at full pace ({free:.0f} a second) from {least} on; at {lowest} "
        f"{rates[lowest] / free:.0%} of it is left."
    )
    return Study(sentence, "Inferences a second by package power limit", rates, least)


if __name__ == "__main__":
    main(study, __file__)
