"""One network over several devices of a kind: by requests, rows, channels or layers.

By requests each device runs whole inferences. By rows or channels every device has its share of each operator
(`npusim.system.split`): what all of them do at once takes as long as the busiest, or as DRAM needs for
the bytes of all. By layers one device follows the other, as `npusim map` places them for several in flight.
"""

from __future__ import annotations

from npusim.arch import Soc
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Divided, Estimate, SplitWay
from npusim.engines.event.machine import transfer_rates
from npusim.errors import ConfigError
from npusim.scenario import Scenario
from npusim.studies.placement import place
from npusim.system.split import shares

_MOST_DEVICES = 16
_FIGURES = ("latency_s", "throughput_per_s", "energy_j", "dram_bytes")


def on_equal_devices(soc: Soc, count: int) -> tuple[Soc, list[str]]:
    """Return a machine with so many devices equal to its main one, and their names.

    Devices that it lacks are added.

    Raises
    ------
    ConfigError
        For an impossible number of devices, or a machine without an NPU or accelerator.
    """
    main = soc.main_device
    if not 2 <= count <= _MOST_DEVICES:
        raise ConfigError(f"{count} devices", file="--split", allowed=f"from 2 to {_MOST_DEVICES}")
    if main not in soc.array_devices:
        raise ConfigError(f"`{main}`", file="--split", allowed="a machine whose main device is no host")
    equal = [name for name, device in soc.array_devices.items() if device == soc.devices[main]][:count]
    added = {f"{main}{number}": main for number in range(len(equal) + 1, count + 1)}
    return soc.with_copies(added), [*equal, *added]


def divided(scenario: Scenario, count: int) -> Divided:
    """Return what a network costs on several devices equal to the main one, by each way to divide it.

    Parameters
    ----------
    scenario : Scenario
        With one request the way of least latency is chosen, with several the one of most throughput.

    Raises
    ------
    ConfigError
        As for `on_equal_devices`, and for a scenario on a chosen device.

    Examples
    --------
    >>> [way.name for way in divided(Scenario("gcn-cora", techniques="stagr"), 2).ways]
    ['one device', 'requests', 'rows', 'channels', 'layers']
    """
    if scenario.device != "auto":
        raise ConfigError(f"--device {scenario.device}", file="--split", allowed="--device auto")
    soc, names = on_equal_devices(scenario.machine, count)
    run = scenario.run
    here = scenario.on(soc)
    alone = mapped_estimate(here.mapped)
    rate = transfer_rates(here.mapped.arch).dram_bytes_per_s
    together = here.with_(requests=max(run.requests, count))
    each = mapped_estimate(here.with_(requests=-(-together.run.requests // count)).mapped)
    whole_per_s = min(count * each.throughput_per_s, rate / each.dram_bytes)
    ways = [
        _way("one device", alone, alone.latency_s, alone.throughput_per_s, 1),
        _way("requests", each, alone.latency_s, whole_per_s, 1),
    ]
    for share in shares(here, count):
        result, sharding = share.estimate, share.sharding
        bound_per_s = min(result.throughput_per_s, rate / (count * result.dram_bytes))
        per_s = 1.0 / share.latency_s if run.requests == 1 else bound_per_s
        way = _way(sharding.way, result, share.latency_s, per_s, count)
        exchanged = {"exchanged_bytes": count * sharding.exchanged_bytes, "exchanges": sharding.exchanges}
        ways.append(way.model_copy(update=exchanged))
    layers = place(together, devices=names)
    figures = {name: getattr(layers, name) for name in _FIGURES}
    figures |= {"exchanged_bytes": layers.transfer_bytes, "exchanges": layers.switches}
    ways.append(SplitWay(name="layers", **figures))
    by_cost = (lambda way: way.latency_s) if run.requests == 1 else (lambda way: -way.throughput_per_s)
    return Divided(
        devices=names, requests=together.run.requests, ways=ways, chosen=min(ways, key=by_cost).name
    )


def _way(name: str, share: Estimate, latency_s: float, throughput_per_s: float, count: int) -> SplitWay:
    """Return a way in which each of some devices does a share; the idle package counts once."""
    idle_w = share.energy.idle_j * share.throughput_per_s
    return SplitWay(
        name=name,
        latency_s=latency_s,
        throughput_per_s=throughput_per_s,
        energy_j=count * (share.energy_j - share.energy.idle_j) + idle_w / throughput_per_s,
        dram_bytes=count * share.dram_bytes,
    )
