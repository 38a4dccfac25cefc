"""The axes of a design space: their values, and the columns of the architecture table they set.

A *machine axis* changes columns of the architecture table alone; a point costs no more than writing its
numbers into the row. Any other axis (technique stacks, the network,
kernels of the DSP, switches of the sparsity logic) makes another operator table, and is a *lowering axis*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from npusim.arch import Npu, Soc, load_soc, with_overrides
from npusim.config import SET_BY_STUDY, Override, valid_paths
from npusim.cost import ArchRow, arch_row
from npusim.errors import ConfigError, NpusimError
from npusim.explore.spaces import MOST_VALUES, AxisSpec, RunSpec, Scalar, Space
from npusim.mapping import Run, is_read_by_lowering
from npusim.scenario import name_of, resolve_run
from npusim.techniques import parse
from npusim.units import Count, Quantity, format_quantity

_READERS: dict[str, Callable[[str], object]] = {"techniques": parse, "soc": load_soc}
"""Raise where a value of an axis of names names nothing, before anything is evaluated."""
_MOST_MACHINES = 4096
"""Values of a range that changes more than one number: each is a whole machine."""
_TRIED = 16
"""Values of an axis that show whether it has a cost."""
_NETWORK_ROOTS = ("workload", "techniques", "soc")


@dataclass(frozen=True)
class Axis:
    """One axis of a design space."""

    path: str
    """Path as `--set` names it, or `techniques`, `workload`, `soc`."""
    texts: tuple[Any, ...]
    """Each value as `--set` takes it; of a continuous axis its two ends."""
    numbers: Any = None
    """Each value in SI units, float64 array; None where the values are names."""
    is_whole: bool = False
    """Whether the values are whole numbers."""
    unit: str = ""
    """SI unit of the numbers."""
    is_continuous: bool = False
    """Whether a sampled design draws from all of the range between the ends."""
    is_log: bool = False
    """Whether it draws evenly in ratio instead of distance."""
    columns: tuple[int, ...] = ()
    """Columns of the architecture table (places among a point's numbers) that the axis sets; none: a lowering
    axis."""
    is_searched: bool = False
    """Whether the tiling search reads a column that the axis sets."""
    is_sram: bool = False
    """Whether it sets the size of SRAM and nothing else, so that its values share one search."""
    is_rated: bool = False
    """Whether rates of operators depend on it, except rates of DSPs (`npusim.cost.ArchRow.rated`)."""
    column_values: Any = field(default=None, compare=False)
    """What it sets them to, float64 array of shape (values, columns)."""

    @property
    def size(self) -> int:
        """Number of values; 0 for a continuous axis."""
        return 0 if self.is_continuous else len(self.texts)

    @property
    def is_lowered(self) -> bool:
        """Whether each value needs its own operator table."""
        return not self.columns

    def values_at(self, coordinates: Any) -> Any:
        """Return the values behind coordinates: SI numbers, or texts where the values are names.

        Parameters
        ----------
        coordinates : array of float
            Positions in the list of values; of a continuous axis the SI values themselves.
        """
        if self.is_continuous:
            return np.asarray(coordinates, float)
        index = np.asarray(coordinates, int)
        if self.numbers is None:
            return np.asarray([name_of(text) for text in self.texts], object)[index]
        return self.numbers[index]

    def text_at(self, coordinate: float) -> Any:
        """Return one value as `--set` takes it."""
        if not self.is_continuous:
            return self.texts[int(coordinate)]
        return int(coordinate) if self.is_whole else format_quantity(float(coordinate), self.unit)


def is_of_network(path: str) -> bool:
    """Return whether a path leads into the network or its rewriting, not into the machine."""
    return path.split(".")[0] in _NETWORK_ROOTS


def machine_row(soc: Soc, run: RunSpec) -> ArchRow:
    """Return a machine as a design point, under the run settings of the space."""
    definite = run_on(soc, run)
    tiles = {name: _tiles(npu, run) for name, npu in soc.array_devices.items()}
    return arch_row(soc, tiles, definite.requests, definite.hint)


def _tiles(npu: Npu, run: RunSpec) -> float:
    """Return the tiles of an NPU that an inference uses; infinite for all tiles."""
    if run.tiles is not None:
        return float("inf") if run.tiles == "all" else run.tiles
    wanted = float(getattr(npu.tiles_for, run.hint))
    return float("inf") if wanted >= npu.tiles else wanted


def run_on(soc: Soc, run: RunSpec) -> Run:
    """Return the run settings of the space for one machine, with at most that machine's tiles."""
    tiles = run.tiles
    if isinstance(tiles, int):
        if not soc.array_devices:
            raise ConfigError(f"{tiles}", key="run.tiles", allowed=f"none: {soc.name} has no NPU")
        tiles = min(tiles, *(int(npu.tiles) for npu in soc.array_devices.values()))
    return resolve_run(soc, run.hint, run.requests, tiles, run.device, run.swap_operands)


def resolve_axes(space: Space, soc: Soc) -> list[Axis]:
    """Return the axes of a space in the order in which points are numbered.

    Lowering axes come first, then machine axes that the tiling search reads (SRAM last), then the others.
    Axes of one kind keep the order of the file. The last axis varies fastest, so points that share a search
    have consecutive numbers.

    Raises
    ------
    ConfigError
        For a path or a value that the machine does not know.
    """
    axes = [_resolve(path, spec, soc, space.run) for path, spec in space.axes.items()]
    _refuse_shared_columns(axes)
    if space.design.method == "full":
        for axis in axes:
            if axis.is_continuous:
                raise _wrong(axis.path, "a range without `step` or `count`", "that in a sampled design only")
    return sorted(axes, key=lambda axis: (not axis.is_lowered, not axis.is_searched, axis.is_sram))


def _resolve(path: str, spec: AxisSpec, soc: Soc, run: RunSpec) -> Axis:
    if is_of_network(path):
        return _of_network(path, spec)
    if spec.values is not None:
        _refuse_many(path, len(spec.values), _MOST_MACHINES)
        socs = [_set(soc, path, value) for value in spec.values]
        settings = [valid_paths(own).get(path) for own in socs]
        numbers = None
        if all(isinstance(setting, Quantity | Count) for setting in settings):
            numbers = np.array([float(setting) for setting in settings if setting is not None])
        unit = getattr(settings[0], "unit", "")
        axis = Axis(path, tuple(spec.values), numbers, isinstance(settings[0], Count), unit)
        return _with_columns(axis, soc, socs, run)
    kind = valid_paths(_set(soc, path, spec.start)).get(path)
    if not isinstance(kind, Quantity | Count):
        raise _wrong(path, "a range", "a range for numbers only; here `values: [...]`")
    return _range(path, spec, soc, kind, run)


def _of_network(path: str, spec: AxisSpec) -> Axis:
    """Return an axis of the network: names, or whole numbers of a workload setting."""
    if spec.values is not None:
        values = spec.values
        names = [name_of(value) for value in values if not isinstance(value, Scalar)]
        if names and path != "workload":
            raise _wrong(path, f"the networks {', '.join(names)}", "networks on the axis `workload`")
        for value in values if path in _READERS else ():
            _READERS[path](str(value))
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        return Axis(path, tuple(values), np.array(values, float) if whole else None, whole)
    ends = (spec.start, spec.stop, 1 if spec.step is None else spec.step)
    if spec.count is not None or not all(isinstance(end, int) for end in ends):
        raise _wrong(path, "this range", "`values: [...]`, or whole numbers with `from`, `to` and `step`")
    numbers = _steps(path, spec, *map(float, ends))  # type: ignore[arg-type]  # checked above
    return Axis(path, tuple(int(number) for number in numbers), numbers, True)


def _range(path: str, spec: AxisSpec, soc: Soc, kind: Quantity | Count, run: RunSpec) -> Axis:
    ends = [_set(soc, path, value) for value in (spec.start, spec.stop)]
    low, high = (_number(end, path) for end in ends)
    if spec.scale == "log" and low <= 0.0:
        raise _wrong(path, f"a logarithmic range from {spec.start}", "`from` above zero")
    is_drawn, is_whole = spec.step is None and spec.count is None, isinstance(kind, Count)
    unit = getattr(kind, "unit", "")
    texts: tuple[Any, ...] = (spec.start, spec.stop)
    step = 0.0 if spec.step is None else _number(_set(soc, path, spec.step), path)
    numbers = _steps(path, spec, low, high, step)
    if not is_drawn:
        numbers = np.unique(np.round(numbers)) if is_whole else numbers
        texts = tuple(int(n) if is_whole else format_quantity(float(n), unit) for n in numbers)
        ends = [_set(soc, path, text) for text in (texts[0], texts[-1])]  # a step may not meet `to`
    axis = Axis(path, texts, numbers, is_whole, unit, is_drawn, spec.scale == "log")
    ends_alone = _with_columns(
        replace(axis, texts=(texts[0], texts[-1]), numbers=numbers[[0, -1]]), soc, ends, run
    )
    if is_drawn:
        return ends_alone
    if len(ends_alone.columns) == 1 and np.array_equal(ends_alone.column_values[:, 0], ends_alone.numbers):
        # The column is the number itself, so what lies between valid ends need not be set one by one.
        return replace(ends_alone, texts=texts, numbers=numbers, column_values=numbers[:, np.newaxis])
    _refuse_many(path, len(texts), _MOST_MACHINES)
    return _with_columns(axis, soc, [_set(soc, path, text) for text in texts], run)


def _steps(path: str, spec: AxisSpec, low: float, high: float, step: float) -> Any:
    """Return the numbers of a range: its ends, a count, or steps up to the end where a step meets it."""
    if not low < high:
        raise _wrong(path, f"a range from {spec.start} to {spec.stop}", "`to` above `from`")
    if spec.count is not None:
        spaced = np.geomspace if spec.scale == "log" else np.linspace
        return spaced(low, high, spec.count)
    if spec.step is not None and step <= 0.0:
        raise _wrong(path, f"a step of {spec.step}", "a step above zero")
    if not step:
        return np.array([low, high])
    steps = (high - low) / step * (1 + 1e-12)
    _refuse_many(path, steps)
    return low + step * np.arange(int(steps) + 1)


def _refuse_many(path: str, values: float, most: int = MOST_VALUES) -> None:
    if values > most:
        raise _wrong(path, f"{values:.3g} values", f"at most {most:,}: larger steps")


def _number(soc: Soc, path: str) -> float:
    """Return the number at a path of a machine, in SI units."""
    return float(valid_paths(soc)[path])


def study_override(path: str, value: Any, prefix: str = "") -> Override:
    """Return one axis value as an override; an error names the path after `prefix`."""
    return Override(tuple(path.split(".")), value, f"{prefix}{path}: {value}", source=SET_BY_STUDY)


def _set(soc: Soc, path: str, value: Any) -> Soc:
    """Return the machine with one axis value set; an error names the axis."""
    return with_overrides(soc, [study_override(path, value, "axes.")])


def _with_columns(axis: Axis, soc: Soc, socs: list[Soc], run: RunSpec) -> Axis:
    """Return an axis with the architecture columns that it sets, and their value at each position."""
    base = machine_row(soc, run)
    rows = np.array([machine_row(machine, run).numbers for machine in socs])
    changed = [c for c in base.primitives if np.any(rows[:, c] != base.numbers[c])]
    if is_read_by_lowering(axis.path):
        changed = []  # it makes another operator table, and the whole machine is set with it
    if axis.is_continuous and (len(changed) != 1 or not np.array_equal(rows[:, changed[0]], axis.numbers)):
        allowed = "`values`, `step` or `count`: it changes more than one number"
        raise _wrong(axis.path, "a range to draw from", allowed)
    return replace(
        axis,
        columns=tuple(changed),
        is_searched=not base.searched.isdisjoint(changed),
        is_sram=bool(changed) and base.sram.issuperset(changed),
        is_rated=not base.rated.isdisjoint(changed),
        column_values=rows[:, changed],
    )


def axes_without_cost(axes: Sequence[Axis], soc: Soc, run: RunSpec) -> list[str]:
    """Return the machine axes whose values have the same area, power and energies of work."""
    free = []
    for axis in axes:
        if not is_of_network(axis.path):
            tried = axis.texts[:: max(1, len(axis.texts) // _TRIED)]
            if len({_costs(machine_row(_set(soc, axis.path, text), run)) for text in tried}) == 1:
                free.append(axis.path)
    return free


def _costs(row: ArchRow) -> tuple[float, ...]:
    """Return area, powers and energies of work of a machine."""
    numbers = [row.shared[name] for name in ("area_mm2", "idle_w", "dram_j_per_byte")]
    per_array = ("static_w", "mac_j", "sram_j_per_byte", "dsp_j_per_lane_op", "read_j", "write_j")
    numbers += [row[device][name] for device in row.arrays for name in per_array]
    numbers += [row[device][name] for device in row.hosts for name in ("working_w", "saved_w")]
    return tuple(float(number) for column in numbers for number in np.ravel(column))


def _refuse_shared_columns(axes: list[Axis]) -> None:
    """Raise a ConfigError where two axes set the same column of the architecture table."""
    owner: dict[int, Axis] = {}
    for axis in axes:
        for column in axis.columns:
            other = owner.setdefault(column, axis)
            if other is not axis:
                raise _wrong(axis.path, f"it beside `{other.path}`", "one of them: both set the same number")


def _wrong(path: str, problem: str, allowed: str) -> NpusimError:
    return ConfigError(problem, key=f"axes.{path}", allowed=allowed)
