"""Requests and updates at random times: how long answers take where one server does both, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from npusim.system.demands import Demand
from npusim.system.mix import DeviceSpec, Poisson, StreamSpec
from npusim.system.schedulers import SCHEDULERS
from npusim.system.simulation import Flow, Simulation, System
from npusim.system.statistics import figures, steady

_SERVER, _ANSWERS = "server", 20_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Mean rates of independent updates and requests, each at random times."""

    updates_per_s: float
    requests_per_s: float


def response_times(update_s: Sequence[float], inference_s: Sequence[float], rates: Rates) -> dict[str, float]:
    """Return mean and 99th percentile of the time to an answer, and the mean time to the end of an update.

    Parameters
    ----------
    update_s, inference_s : sequence of float
        Times of successive updates, and of inferences; repeated where they end. None is returned of them
        where they take more time than there is: the queue would grow without end.
    """
    load = rates.updates_per_s * float(np.mean(update_s)) + rates.requests_per_s * float(np.mean(inference_s))
    if load >= 1.0:
        return {}
    flows = []
    for name, rate, sizes in (
        ("updates", rates.updates_per_s, update_s),
        ("requests", rates.requests_per_s, inference_s),
    ):
        spec = StreamSpec(
            network=name, arrivals=Poisson.model_validate({"kind": "poisson", "rate": f"{rate!r} Hz"})
        )
        flows.append(Flow(spec, {_SERVER: Demand(1.0, 1.0)}, sizes))
    simulation = Simulation(System(flows, {_SERVER: (DeviceSpec(), 1)}, inf, SCHEDULERS["fifo"]))
    simulation.run(_ANSWERS / min(rates.updates_per_s, rates.requests_per_s))
    updates, requests = (figures(steady(np.array(each.response_s))) for each in simulation.answers)
    values = {
        "answer_s": requests["mean_s"],
        "answer_p99_s": requests["p99_s"],
        "in_force_s": updates["mean_s"],
    }
    return {name: value for name, (value, _) in values.items()}
