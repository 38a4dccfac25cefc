"""A mix of networks on many designs: combinations of settings, or one change at a time.

All designs see the same random numbers and the same simulated time, so that differences between them are
surer than each figure alone.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from math import inf
from multiprocessing import get_context
from typing import Any

import numpy as np

from npusim.config import validate_data
from npusim.config.overrides import parse_override
from npusim.cost import thread_count
from npusim.errors import ConfigError, InfeasibleError, UnknownNameError
from npusim.explore.pareto import front
from npusim.system.answering import Simulated, simulate
from npusim.system.document import DesignRow, MixStudy, StreamAnswer
from npusim.system.mix import Mix, machine_of
from npusim.system.schedulers import SCHEDULERS
from npusim.system.statistics import paired_change

OBJECTIVES: Mapping[str, Callable[[DesignRow, StreamAnswer], float]] = {
    "p99_s": lambda row, stream: stream.p99_s,
    "mean_s": lambda row, stream: stream.mean_s,
    "missed_share": lambda row, stream: max(each.missed_share or 0.0 for each in row.streams),
    "power_w": lambda row, stream: row.power_w or inf,
    "energy_j": lambda row, stream: row.energy_j or inf,
    "area_mm2": lambda row, stream: row.area_mm2 or inf,
}
"""What a study minimises, by name; times are those of the stream that is judged."""
Change = tuple[str, Mapping[str, Any]]
"""A name, and values by path: `soc`, `scheduler`, `devices.NAME.KEY`, `streams.NAME.KEY`, or of the SoC."""
_REQUESTS = 20_000
_MORE = 1.5
"""Factor of tiles and bandwidth in the changes that a study tries by itself."""
_BASE = "as it is"
_MOST_PLACEMENTS = 1_000
_TIE = 0.01
"""Relative difference of times that are named as equal."""
_FEW = 4
"""Designs that one process simulates sooner than several are started."""


def study_mix(
    mix: Mix,
    changes: Sequence[Change],
    minimise: Sequence[str],
    judged: str | None = None,
    progress: Callable[[float, int, str], None] | None = None,
) -> MixStudy:
    """Simulate a mix as it is and under changes; parameters and errors as for `npusim.mix`."""
    names = [stream.title for stream in mix.streams]
    deadlines = [stream.title for stream in mix.streams if stream.deadline is not None]
    stream = judged or (deadlines or names)[0]
    if stream not in names:
        raise UnknownNameError("stream", stream, names)
    wrong = next((name for name in minimise if name not in OBJECTIVES), None)
    if wrong is not None:
        raise UnknownNameError("objective of a mix", wrong, OBJECTIVES)
    for path, value in {(path, str(v)): (path, v) for _, at in changes for path, v in at.items()}.values():
        design = changed(mix, {path: value})
        machine_of(design)  # a wrong value is refused before any work
    designs = [changed(mix, values) for _, values in changes]
    longest = mix.requests or (None if mix.duration else _REQUESTS)
    base, times_s = _simulated((mix.model_copy(update={"requests": longest}), stream, (_BASE, {})))
    seconds = f"{base.simulated_s!r} s"
    jobs = [
        (changed(design, {"requests": None, "duration": seconds}), stream, change)
        for design, change in zip(designs, changes, strict=True)
    ]
    rows = [base]
    for number, (row, own_s) in enumerate(_in_processes(jobs)):
        difference = None if own_s is None or times_s is None else paired_change(times_s, own_s)
        rows.append(row.model_copy(update={"change": difference}))
        if progress is not None:
            progress(number + 1, len(jobs), row.name)
    fronts = _on_front(rows, stream, minimise)
    rows = [row.model_copy(update={"on_front": on}) for row, on in zip(rows, fronts, strict=True)]
    return MixStudy(
        title=mix.title,
        soc=base.soc,
        scheduler=mix.scheduler,
        seed=mix.seed,
        simulated_s=base.simulated_s,
        stream=stream,
        minimise=list(minimise),
        rows=rows,
        notes=["all designs see the same arrivals and the same simulated time; area is that of the NPUs"],
        conclusion=_conclusion(rows, stream),
    )


def combinations(over: Mapping[str, Sequence[str]]) -> list[Change]:
    """Return every combination of the values of some paths, each as `--set` takes it."""
    typed = [[parse_override(f"{path}={value}").value for value in values] for path, values in over.items()]
    points = [dict(zip(over, values, strict=True)) for values in product(*typed)]
    short = {path: path.removeprefix("streams.").removesuffix(".device") for path in over}
    return [(", ".join(f"{short[path]} {value}" for path, value in point.items()), point) for point in points]


def placements(mix: Mix) -> list[Change]:
    """Return every placement of the streams on the devices of the machine; at most `_MOST_PLACEMENTS`."""
    soc = machine_of(mix)
    devices, titles = [*soc.array_devices, *soc.hosts], [stream.title for stream in mix.streams]
    if len(devices) ** len(titles) > _MOST_PLACEMENTS:
        problem = f"{len(titles)} streams on {len(devices)} devices"
        raise ConfigError(problem, file="--placements", allowed=f"at most {_MOST_PLACEMENTS:,} placements")
    return combinations({f"streams.{title}.device": devices for title in titles})


def usual_changes(mix: Mix) -> list[Change]:
    """Return the changes that apply to a mix, one at a time."""
    soc = machine_of(mix)
    main = soc.main_device
    changes: list[Change] = []
    if main in soc.array_devices:
        tiles = round(int(soc.array_devices[main].tiles) * _MORE)
        changes.append((f"{tiles} tiles", {f"{main}.tiles": tiles}))
    bandwidth = f"{float(soc.dram.bandwidth) * _MORE / 1e9:.4g} GB/s"
    changes.append((f"DRAM of {bandwidth}", {"dram.bandwidth": bandwidth}))
    changes.append(("throughput hint", {"streams.*.hint": "throughput"}))
    if main not in mix.devices or mix.devices[main].preemption == "none":
        urgent = {} if SCHEDULERS.find(mix.scheduler).preempts else {"scheduler": "edf"}
        name = f"preemption at layers{' (edf)' if urgent else ''}"
        changes.append((name, {f"devices.{main}.preemption": "layer", **urgent}))
    changes += [(f"scheduler {name}", {"scheduler": name}) for name in SCHEDULERS if name != mix.scheduler]
    second = f"{main}2"
    served = {
        f"streams.{stream.title}.device": f"{main},{second}"
        for stream in mix.streams
        if stream.device in ("auto", main)
    }
    changes.append((f"a second {main}", {"copies": {**mix.copies, second: main}, **served}))
    return changes


def changed(mix: Mix, values: Mapping[str, Any]) -> Mix:
    """Return a mix with other values at some paths.

    Raises
    ------
    ConfigError
        Where a path or a value is not allowed.
    """
    data = mix.model_dump(mode="json", by_alias=True)
    for path, value in values.items():
        room, _, rest = path.partition(".")
        name, _, key = rest.rpartition(".")
        if room == "streams" and name:
            titles = [stream.title for stream in mix.streams]
            if name not in ("*", *titles):
                raise UnknownNameError("stream", name, titles)
            for title, stream in zip(titles, data["streams"], strict=True):
                if name in ("*", title):
                    _put(stream, key, value)
        elif room == "devices" and name:
            _put(data["devices"].setdefault(name, {}), key, value)
        elif not rest and room in Mix.model_fields:
            data[room] = value
        else:
            data["set"][path] = value
    return validate_data(data, Mix)


def _put(section: dict[str, Any], key: str, value: Any) -> None:
    """Set a key of a stream, of its arrivals where these have it, or of a device."""
    arrivals = section.get("arrivals", {})
    (arrivals if key in arrivals and key != "kind" else section)[key] = value


def _simulated(job: tuple[Mix, str, Change]) -> tuple[DesignRow, Any]:
    """Return the row of a design, and the times of the stream that is judged; None where it is refused."""
    mix, stream, (name, values) = job
    at = {path: str(value) for path, value in values.items()}
    try:
        run = simulate(mix)
    except (ConfigError, InfeasibleError) as error:
        if not values:
            raise
        return DesignRow(name=name, at=at, refused=str(error)), None
    number = [each.title for each in mix.streams].index(stream)
    return _row(run, name, at), np.array(run.simulation.answers[number].response_s)


def _row(run: Simulated, name: str, at: dict[str, str]) -> DesignRow:
    streams, seconds = run.streams(), run.simulation.now_s
    energy_j = run.package_j(streams)
    contended = max(run.resources(), key=lambda resource: resource.utilisation)
    return DesignRow(
        name=name,
        at=at,
        soc=run.demands.soc.name,
        simulated_s=seconds,
        streams=streams,
        contended=contended.name,
        utilisation=contended.utilisation,
        energy_j=energy_j / sum(each.answers for each in streams),
        power_w=energy_j / seconds,
        area_mm2=run.demands.area_mm2,
    )


def _in_processes(jobs: Sequence[tuple[Mix, str, Change]]) -> Iterator[tuple[DesignRow, Any]]:
    """Yield the designs in their order, simulated on all cores."""
    cores = min(thread_count(), len(jobs))
    if cores < 2 or len(jobs) <= _FEW:
        yield from map(_simulated, jobs)
        return
    ignore = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks, which ends these
    with ProcessPoolExecutor(cores, get_context("spawn"), signal.signal, ignore) as pool:
        yield from pool.map(_simulated, jobs)


def _on_front(rows: Sequence[DesignRow], stream: str, minimise: Sequence[str]) -> list[bool]:
    """Return which designs no other one dominates."""
    values = np.full((len(rows), len(minimise)), inf)
    for number, row in enumerate(rows):
        judged = next((each for each in row.streams if each.name == stream), None)
        if judged is not None:
            values[number] = [OBJECTIVES[name](row, judged) for name in minimise]
    on_front = set(front(values.T).tolist())
    return [number in on_front and bool(np.isfinite(row).all()) for number, row in enumerate(values)]


def _conclusion(rows: Sequence[DesignRow], stream: str) -> str:
    """Return which design helps the judged stream most, of equal ones that with the least power."""
    p99_s = {
        number: next(each.p99_s for each in row.streams if each.name == stream)
        for number, row in enumerate(rows)
        if row.streams
    }
    shortest_s = min(p99_s.values())
    near = [number for number, time_s in p99_s.items() if time_s <= shortest_s * (1.0 + _TIE)]
    best = min(near, key=lambda number: rows[number].power_w or inf)
    if best == 0:
        return f"no other design answers {stream} sooner at the 99th percentile"
    ratio = p99_s[0] / p99_s[best]
    return f"{rows[best].name}: the 99th percentile of {stream} is {ratio:.2f} times shorter"
