"""A mix of networks on many designs: combinations of settings, or one change at a time.

All designs see the same random numbers and the same simulated time, so that differences between them are
surer than each figure alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import numpy as np

from npusim.config import validate_data
from npusim.config.overrides import full_factorial, parse_override
from npusim.cost import thread_count
from npusim.errors import ConfigError, InfeasibleError, UnknownNameError
from npusim.explore.scoring_pool import processes
from npusim.studies.pareto import front
from npusim.system.answering import MORE, Simulated, balanced, dram_with_more, simulate, system_of
from npusim.system.demands import least_s
from npusim.system.document import DesignRow, MixStudy, StreamAnswer
from npusim.system.mix import Mix, machine_of
from npusim.system.schedulers import SCHEDULERS
from npusim.system.statistics import decides, paired_change

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
Job = tuple[Mix, str, Change]
"""A design, the stream that is judged, and how the design differs."""
_REQUESTS = 20_000
_BASE = "as it is"
_MOST_PLACEMENTS = 1_000
_MOST_REPLICATIONS, _MOST_AGAIN = 8, 64
"""Seeds of a comparison, and simulations with further seeds in a study; designs of the front go first."""
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
    notes: Sequence[str] = (),
) -> MixStudy:
    """Simulate a mix as it is and under changes; parameters and errors as for `npusim.mix`.

    A comparison that the interval of the difference does not decide has replications with further seeds, of
    the design and of the mix as it is, twice as many in each round.
    """
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
    seconds = {"requests": None, "duration": f"{base.simulated_s!r} s"}
    jobs = [
        (changed(design, seconds), stream, change)
        for design, change in zip([mix, *designs], [(_BASE, {}), *changes], strict=True)
    ]
    rows, pairs = [base], [[(times_s, times_s)]]
    with _in_processes(len(changes)) as simulated:
        for number, (row, own_s) in enumerate(simulated(jobs[1:])):
            rows.append(row)
            pairs.append([] if own_s is None else [(times_s, own_s)])
            if progress is not None:
                progress(number + 1, len(changes), row.name)
        fronts = _on_front(rows, stream, minimise)
        replications, left = 1, _MOST_AGAIN
        while True:
            changes_of_mean = [paired_change(pair) if pair else None for pair in pairs]
            open_rows = [n for n, pair in enumerate(pairs) if pair and not decides(changes_of_mean[n])]
            open_rows = sorted(open_rows, key=lambda n: not fronts[n])[: max(0, left // replications - 1)]
            if not open_rows or replications == _MOST_REPLICATIONS:
                break
            left -= replications * (1 + len(open_rows))
            numbers = [0, *open_rows]
            for replication in range(replications, 2 * replications):
                seed = {"seed": (mix.seed + replication) % 2**32}
                again = [(jobs[n][0].model_copy(update=seed), *jobs[n][1:]) for n in numbers]
                (_, before_s), *others = simulated(again)
                if before_s is None or np.array_equal(before_s, times_s):
                    break  # nothing is random: a replication says nothing new
                for n, (_, own_s) in zip(open_rows, others, strict=True):
                    if own_s is not None:
                        pairs[n].append((before_s, own_s))
            replications *= 2
    rows = [
        row.model_copy(
            update={"change": change if row.at else None, "replications": len(pair), "on_front": is_on}
        )
        for row, change, pair, is_on in zip(rows, changes_of_mean, pairs, fronts, strict=True)
    ]
    return MixStudy(
        title=mix.title,
        soc=base.soc,
        scheduler=mix.scheduler,
        seed=mix.seed,
        simulated_s=base.simulated_s,
        stream=stream,
        minimise=list(minimise),
        rows=rows,
        notes=[
            "all designs see the same arrivals and the same simulated time; area is that of the NPUs",
            *notes,
        ],
        conclusion=_conclusion(rows, stream),
    )


def combinations(over: Mapping[str, Sequence[str]]) -> list[Change]:
    """Return every combination of the values of some paths, each as `--set` takes it."""
    typed = {
        path: [parse_override(f"{path}={value}").value for value in values] for path, values in over.items()
    }
    short = {path: path.removeprefix("streams.").removesuffix(".device") for path in over}
    return [
        (", ".join(f"{short[path]} {value}" for path, value in point.items()), point)
        for point in full_factorial(typed)
    ]


def placements(mix: Mix) -> tuple[list[Change], list[str]]:
    """Return placements of the streams on the devices of the machine, and notes on them.

    All of them up to `_MOST_PLACEMENTS`; beyond, that which balances the load, and all that differ from it in
    a stream, with a bound.
    """
    soc = machine_of(mix)
    devices, titles = [*soc.array_devices, *soc.hosts], [stream.title for stream in mix.streams]
    paths, count = [f"streams.{title}.device" for title in titles], len(devices) ** len(titles)
    if count <= _MOST_PLACEMENTS:
        return combinations(dict.fromkeys(paths, devices)), []
    system = system_of(changed(mix, {"streams.*.device": ",".join(devices)}))[0]
    best, busiest, bound = balanced(system)
    places = [best]
    for i, flow in enumerate(system.flows):
        places += [[*best[:i], place, *best[i + 1 :]] for place in flow.demands if place != best[i]]
    idle_s = {flow.spec.title: least_s(flow.spec, flow.demands) for flow in system.flows}
    notes = [
        f"{len(places)} of {count:,} placements: one that balances loads, and all with a stream elsewhere",
        f"its busiest resource is {busiest:.1%} busy; none has less than {bound:.1%}",
        "no placement answers sooner than an idle SoC: "
        + ", ".join(f"{name} {seconds:.4g} s" for name, seconds in idle_s.items()),
    ]
    placed = [dict(zip(paths, ([place] for place in row), strict=True)) for row in places]
    return [change for point in placed for change in combinations(point)], notes


def usual_changes(mix: Mix) -> list[Change]:
    """Return the changes that apply to a mix, one at a time."""
    soc = machine_of(mix)
    main = soc.main_device
    changes: list[Change] = []
    if main in soc.array_devices:
        tiles = round(int(soc.array_devices[main].tiles) * MORE)
        changes.append((f"{tiles} tiles", {f"{main}.tiles": tiles}))
    more = dram_with_more(soc)
    changes.append((f"DRAM of {more['dram.bandwidth']}", more))
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


def _simulated(job: Job) -> tuple[DesignRow, Any]:
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


@contextmanager
def _in_processes(count: int) -> Iterator[Callable[[Sequence[Job]], Iterable[tuple[DesignRow, Any]]]]:
    """Give a function that simulates designs, on all cores where there are many, in their order."""
    cores = min(thread_count(), count)
    if cores < 2 or count <= _FEW:
        yield lambda jobs: map(_simulated, jobs)
        return
    with processes(cores, "use fewer cores (NUMBA_NUM_THREADS=1)") as pool:
        yield lambda jobs: pool.map(_simulated, jobs)


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
