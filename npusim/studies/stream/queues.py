"""Requests and updates at random times: how long answers take where one server does both, in order."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from npusim.system.demands import Demand
from npusim.system.mix import DeviceSpec, StreamSpec
from npusim.system.schedulers import SCHEDULERS
from npusim.system.simulation import Flow, Simulation, System
from npusim.system.statistics import figures, steady

_SERVER, _ANSWERS, _MOST = "server", 20_000, 50_000


Rates = tuple[float, float]
"""Mean rates of independent updates and requests, each at random times, in 1/s."""


def response_times(update_s: Sequence[float], inference_s: Sequence[float], rates: Rates) -> dict[str, float]:
    """Return mean and 99th percentile of the time to an answer, and the mean time to the end of an update.

    Parameters
    ----------
    update_s, inference_s : sequence of float
        Times of successive updates, and of inferences; repeated where they end. None is returned of them
        where they take more time than there is: the queue would grow without end.
    """
    sizes = (update_s, inference_s)
    if sum(rate * float(np.mean(times_s)) for rate, times_s in zip(rates, sizes, strict=True)) >= 1.0:
        return {}
    flows = []
    for name, rate, times_s in zip(("updates", "requests"), rates, sizes, strict=True):
        arrivals = {"kind": "poisson", "rate": f"{rate!r} Hz"}
        spec = StreamSpec.model_validate({"network": name, "arrivals": arrivals})
        flows.append(Flow(spec, {_SERVER: Demand(1.0, 1.0)}, times_s))
    simulation = Simulation(System(flows, {_SERVER: (DeviceSpec(), 1)}, inf, SCHEDULERS["fifo"]))
    simulation.run(min(_ANSWERS / min(rates), _MOST / sum(rates)))
    updates, requests = (figures(steady(np.array(each.response_s))) for each in simulation.answers)
    values = {
        "answer_s": requests["mean_s"],
        "answer_p99_s": requests["p99_s"],
        "in_force_s": updates["mean_s"],
    }
    return {name: value for name, (value, _) in values.items()}
