"""Time of each operator from the device's profiler, in runs of their own.

Profiling slows a network down, so its runs do not count for the latency. A CPU's profiler shows the mean over
all runs since the start, the first and slow one included; an operator's time is found from two such means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from npusim.measure.document import Counter

_NOT_RUN = "NOT_RUN"
_BATCHES = 5
_TICK_S = 1e-6
"""Resolution of a counter (OpenVINO's ProfilingInfo is in whole microseconds, cut off)."""
_COARSE = 0.05
"""Share of an operator's time that the resolution may blur before the mean over all runs is taken instead of
the median over batches."""

Readings = Sequence[tuple[int, Mapping[str, float]]]
"""Of each reading: the runs so far, and what the profiler then showed of each operator (s)."""


def profile_operators(
    compiled: Any, feed: list[Any], runs: int, means: bool, stop: Callable[[], bool]
) -> tuple[Counter, ...]:
    """Run a network that was compiled with profiling and return each executed operator's time.

    Parameters
    ----------
    runs : int
        Least number of runs, after two that do not count.
    means : bool
        Whether the profiler shows the mean over all runs (CPU), or the last run.

    Returns
    -------
    tuple of Counter
        In the order of execution; what the device did not run is left out.
    """
    request = compiled.create_infer_request()
    for at, tensor in enumerate(feed):
        request.set_input_tensor(at, tensor)
    batch = -(-runs // _BATCHES) if means else 1
    readings: list[tuple[int, Mapping[str, float]]] = []
    done = 0
    for size in [2, *[batch] * (_BATCHES if means else runs)]:
        for _ in range(size):
            if stop():
                return ()
            request.infer(share_outputs=True)
        done += size
        infos = {info.node_name: info for info in request.profiling_info}
        readings.append((done, {name: info.real_time.total_seconds() for name, info in infos.items()}))
    times = times_from_means(readings) if means else times_from_last(readings)
    originals = _originals(compiled)
    return tuple(
        Counter(
            name=name,
            type=info.node_type,
            executed_as=info.exec_type,
            originals=originals.get(name, ()),
            latency_s=times[name],
        )
        for name, info in infos.items()
        if info.status.name != _NOT_RUN and name in times
    )


def times_from_last(readings: Readings) -> dict[str, float]:
    """Return each operator's median time (s) where the profiler shows the last run, without the first."""
    names = dict.fromkeys(name for _, shown in readings[1:] for name in shown)
    return {
        name: float(np.median([shown[name] for _, shown in readings[1:] if name in shown])) for name in names
    }


def times_from_means(readings: Readings) -> dict[str, float]:
    """Return each operator's time (s), where the profiler shows the mean over all runs so far.

    Examples
    --------
    One slow run, then batches of ten that take 100 us a run:

    >>> shown = [(1, {"a": 900e-6}), (11, {"a": 172e-6}), (21, {"a": 138e-6}), (31, {"a": 125e-6})]
    >>> round(times_from_means(shown)["a"] * 1e6)
    100
    """
    found = {}
    for name in readings[-1][1]:
        runs = np.array([run for run, shown in readings if name in shown], dtype=float)
        # Cut off to whole ticks: half a tick more is right on average.
        mean_s = np.array([shown[name] for _, shown in readings if name in shown]) + 0.5 * _TICK_S
        total_s = runs * mean_s
        overall_s = (total_s[-1] - total_s[0]) / (runs[-1] - runs[0])
        batches_s = np.diff(total_s) / np.diff(runs)
        blur_s = _TICK_S * float(np.max(runs[1:] / np.diff(runs)))
        robust = blur_s < _COARSE * overall_s
        found[name] = max(0.0, float(np.median(batches_s) if robust else overall_s))
    return found


def _originals(compiled: Any) -> dict[str, tuple[str, ...]]:
    """Return which operators of the model each executed node stands for, where the device tells."""
    found: dict[str, tuple[str, ...]] = {}
    with suppress(RuntimeError):  # not every device shows the graph that it runs
        for node in compiled.get_runtime_model().get_ordered_ops():
            told = node.get_rt_info()
            if "originalLayersNames" in told:
                names = told["originalLayersNames"].astype(str)
                found[node.get_friendly_name()] = tuple(name for name in names.split(",") if name)
    return found
