"""Other values for the numbers of a data sheet, and a mapped network evaluated with them.

Intervals draw such machines at random; a calibration moves them until they agree with measurements. Decisions
(fusion, residency, placement) stay as they were mapped; the tiling is searched again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, get_args
from zlib import crc32

import numpy as np
from pydantic import BaseModel

from npusim import cost
from npusim.arch import Npu, Soc
from npusim.arch.device import SET_SOURCES
from npusim.arch.soc import Device
from npusim.config.overrides import children, field_key, kind_of
from npusim.cost import Unit
from npusim.mapping import Mapped
from npusim.units import Count, Kind, Quantity

_ENERGY = frozenset({"power", "energy_factors", "technology"})
"""Parts of a data sheet that say nothing about time but about energy and area."""
_VOLTAGES = frozenset({"voltage", "nominal_voltage", "rated_at"})
"""Energies hold at the voltages of the sheet: an error of a voltage is part of the energy's own."""

_LOW, _HIGH = 5.0, 95.0


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A number of the data sheet with an uncertainty."""

    path: tuple[str, ...]
    """Fields that lead to it from the SoC."""
    value: float
    sigma: float
    """Standard deviation of its logarithm."""
    upper: float
    """Most that its kind allows."""
    whole: bool

    @property
    def name(self) -> str:
        """The path as `--set` writes it."""
        return ".".join(self.path[1:] if self.path[0] == "devices" else self.path)

    def at(self, normal: float) -> float:
        """Return the value at a standard normal deviate."""
        drawn = min(self.value * float(np.exp(self.sigma * normal)), self.upper)
        return max(1.0, round(drawn)) if self.whole else drawn

    def values(self, normal: float) -> "Values":
        """Return the values by path at a standard normal deviate."""
        return {self.path: self.at(normal)}


Values = dict[tuple[str, ...], float]
"""Numbers of a SoC by path."""


@dataclass(frozen=True, slots=True)
class Governed(Uncertain):
    """The operating point of a device, which differs between machines and runs."""

    points: tuple[tuple[float, Values], ...] = ()
    """Cumulated share of each operating point, and its numbers by path; the rest keeps the sheet's."""

    def values(self, normal: float) -> Values:
        """Return the numbers of the point at a standard normal deviate."""
        rank = NormalDist().cdf(normal)
        return next((values for share, values in self.points if rank <= share), {})


def uncertain_energies(soc: Soc) -> list[Uncertain]:
    """Return the numbers of a SoC that affect energy, power or area alone and state an uncertainty."""
    return [
        number
        for number, stated in (*numbers_in(("technology",), soc.technology), *numbers_of(soc))
        if stated and number.value > 0.0 and _ENERGY & {*number.path} and not _VOLTAGES & {*number.path}
    ]


def uncertain_numbers(soc: Soc, kernels: frozenset[tuple[str, str, str]] = frozenset()) -> list[Uncertain]:
    """Return the numbers of a SoC that affect time and state an uncertainty.

    Parameters
    ----------
    kernels : frozenset of (device, generation, kernel)
        DSP kernels that are used; the others are left out.
    """
    numbers = []
    for number, stated in numbers_of(soc):
        if not stated or number.value <= 0.0 or (_ENERGY | _VOLTAGES).intersection(number.path):
            continue
        home, leaf = number.path[1], number.path[2:]
        if leaf[:2] == ("dsp", "kernels") and len(leaf) > 5 and (home, leaf[2], leaf[4]) not in kernels:
            continue
        numbers.append(number)
    return numbers


def governors(soc: Soc) -> list[Uncertain]:
    """Return the governors of devices that state one; none where a clock or an operating point was set."""
    numbers = list[Uncertain]()
    for name, device in soc.devices.items():
        clock = device.dpu.clock if isinstance(device, Npu) else device.clock
        if not device.governor or clock.source in SET_SOURCES or _point_was_set(device):
            continue
        points, total = list[tuple[float, Values]](), 0.0
        for point, share in sorted(device.governor.items()):
            total += share
            values = {("devices", name, *path): v for path, v in _values_at(device, point).items()}
            points.append((total, values))
        path = ("devices", name, "governor")
        numbers.append(Governed(path, 1.0, 0.0, float("inf"), False, tuple(points)))
    return numbers


def _point_was_set(device: Device) -> bool:
    if isinstance(device, Npu):
        return not device.voltage_follows_clock or device.vpu_clock.source in SET_SOURCES
    return device.sustained_clock_share is None


def _values_at(device: Device, point: str) -> Values:
    """Return what an operating point sets: both clocks of an NPU; clock and cores for latency of a host."""
    if isinstance(device, Npu):
        at = device.operating_points[point]
        return {("dpu", "clock"): float(at.dpu_clock), ("vpu_clock",): float(at.vpu_clock)}
    chosen = device.operating_points[point]
    values: Values = {("sustained_clock_share", "latency"): float(chosen.clock / device.clock)}
    if chosen.cores is not None and device.cores_for is not None:
        values["cores_for", "latency"] = int(chosen.cores)
    return values


def numbers_of(soc: Soc) -> Iterator[tuple[Uncertain, bool]]:
    """Yield every number of the DRAM and the devices, and whether it states an uncertainty."""
    yield from numbers_in(("dram",), soc.dram)
    for name, device in (soc.array_devices | soc.hosts).items():
        yield from numbers_in(("devices", name), device)


def numbers_in(path: tuple[str, ...], section: Any) -> Iterator[tuple[Uncertain, bool]]:
    """Yield every number of a section at a path, and whether it states an uncertainty."""
    for leaf, number, kind in _numbers(section):
        upper = kind.most if isinstance(kind, Kind) else float("inf")
        sigma = float(np.sqrt(np.log1p((number.uncertainty or 0.0) ** 2)))
        whole = isinstance(number, Count)
        yield Uncertain((*path, *leaf), float(number), sigma, upper, whole), bool(number.uncertainty)


def _numbers(
    value: Any, annotation: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Quantity | Count, Any]]:
    """Yield every quantity below a section with its path and kind."""
    if isinstance(value, BaseModel):
        behind = children(type(value))
        for name, info in type(value).model_fields.items():
            key = field_key(name, info)
            yield from _numbers(getattr(value, name), behind[key], (*path, name))
    elif isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _numbers(inside, annotation, (*path, str(key)))
    elif isinstance(value, Quantity | Count):
        of_mapping = get_args(annotation)[1:2]  # the values of a mapping
        yield path, value, next(filter(None, map(kind_of, (annotation, *of_mapping))), None)


def sampled(soc: Soc, numbers: Sequence[Uncertain], normals: Sequence[float]) -> Soc:
    """Return the SoC with its uncertain numbers at given standard normal deviates."""
    drawn = (number.values(z) for number, z in zip(numbers, normals, strict=True))
    return moved(soc, {path: value for values in drawn for path, value in values.items()})


def moved(soc: Soc, values: Mapping[tuple[str, ...], float]) -> Soc:
    """Return the SoC with new values at some paths of fields; nothing is validated again."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        branch = tree
        for step in path[:-1]:
            branch = branch.setdefault(step, {})
        branch[path[-1]] = value
    changed: Soc = _replaced(soc, tree)
    return changed


def number_at(soc: Soc, path: Sequence[str]) -> Any:
    """Return the value at a path of fields."""
    value: Any = soc
    for step in path:
        value = value[step] if isinstance(value, Mapping) else getattr(value, step)
    return value


class _Whole(dict[str, Any]):
    """A mapping that replaces the previous mapping as a whole."""


def _replaced(value: Any, tree: Any) -> Any:
    """Return a copy of a section with the values of a tree; nothing is validated again."""
    if isinstance(tree, _Whole) or not isinstance(tree, dict):
        return tree
    if isinstance(value, BaseModel):
        changes = {name: _replaced(getattr(value, name), sub) for name, sub in tree.items()}
        return value.model_copy(update=changes)
    return {**value, **{name: _replaced(value[name], sub) for name, sub in tree.items()}}


def with_library(soc: Soc, groups: Sequence[Mapped]) -> tuple[Soc, frozenset[tuple[str, str, str]]]:
    """Copy the DSP kernels in use from the library into the SoC, so that they can be varied too."""
    used: set[tuple[str, str, str]] = set()
    for mapped in groups:
        for group in mapped.decisions.groups:
            if group.unit is Unit.DSP:
                npu = soc.array_devices[group.device]
                hit = cost.kernel_of(npu, mapped.graph.operators[group.main])
                if hit is not None:
                    used.add((group.device, hit[1][0], hit[0]))
                elif (unknown := npu.dsp.kernel("unknown")) is not None:
                    used.add((group.device, unknown[0], "unknown"))
    changed: dict[str, Any] = {}
    for device in dict.fromkeys(sorted(name for name, _, _ in used)):
        dsp = soc.array_devices[device].dsp
        copy = dsp.kernel("broadcast")  # kernels that copy before they start do so at its rate
        if copy is not None:
            used.add((device, copy[0], "broadcast"))
        generations = {name for home, name, _ in used if home == device}
        kernels = {**dsp.kernels, **{name: dsp.generation(name) for name in generations}}
        changed[device] = {"dsp": {"kernels": _Whole(kernels)}}
    return _replaced(soc, {"devices": changed}) if changed else soc, frozenset(used)


def evaluated(mapped: Iterable[Mapped], machine: Soc) -> Iterator[Any]:
    """Yield the totals of mapped graphs on another machine, records of TOTAL_DTYPE.

    Parameters
    ----------
    machine : Soc
        The SoC that they were mapped for, with other numbers.
    """
    archs: dict[tuple[int, int, str], Any] = {}
    for graph in mapped:
        run = graph.run
        key = (run.tiles, run.requests, run.hint)
        arch = archs[key] if key in archs else archs.setdefault(key, run.row(machine))
        ops = lowered_on(graph, machine)
        yield cost.evaluate_plans(arch, cost.plan_table(ops[np.newaxis]), graph.nests).total


def lowered_on(mapped: Mapped, machine: Soc) -> Any:
    """Return the operator table of a mapped graph, with machine-dependent columns computed for `machine`."""
    groups = mapped.decisions.groups
    hosts = {group.device for group in groups if group.unit.is_host}
    if any(cost.host_facts(machine.hosts[name]) != cost.host_facts(mapped.soc.hosts[name]) for name in hosts):
        return cost.lower(mapped.graph, mapped.decisions, machine).ops
    ops = mapped.lowered.ops.copy()
    first_of: dict[tuple[str, str, bytes], int] = {}  # layers repeat: operators alike there are alike here
    for i, group in enumerate(groups):
        if group.unit in (Unit.DPU, Unit.DMA, Unit.DSP):
            ops[i]["dispatches"] = cost.dispatches(mapped.graph, group, machine.array_devices[group.device])
        if group.unit is Unit.DSP:
            op, npu = mapped.graph.operators[group.main], machine.array_devices[group.device]
            first = first_of.setdefault((group.device, op.type, ops[i]["dsp"].tobytes()), i)
            if first == i:
                cost.fill_dsp(ops[i]["dsp"], mapped.graph, op, npu, [])
            else:
                ops[i]["dsp"] = ops[first]["dsp"]
    return ops


def deviates(names: Sequence[str], samples: int, seed: int) -> Any:
    """Return a Latin hypercube of standard normal deviates, shape (samples, names).

    The deviates of a number depend on its name alone: networks that rest on other numbers share them.
    """
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / samples) for i in range(samples)])
    orders = [np.random.default_rng([seed, crc32(name.encode())]).permutation(samples) for name in names]
    return quantiles[np.stack(orders, axis=1)] if orders else np.empty((samples, 0))


def quantiles(values: Any) -> tuple[float, float]:
    """Return the ends of the 90 % interval of drawn values."""
    low, high = np.percentile(values, [_LOW, _HIGH])
    return float(low), float(high)
