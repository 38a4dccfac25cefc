"""Fit of the DSP libraries to the cost model's table: loops of kernels and ties between kernels.

The equation of `npusim.cost.units.dsp` is linear in a kernel's numbers at given thresholds, so the fit is one
linear problem, polished on log error. Ties decide what the rows of a single kernel leave open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import Field

from npusim.arch import DspGeneration, DspKernel
from npusim.calibration.fits import Fitted, TrainingRows, UnitFit, cross_validate, load_plan
from npusim.calibration.least_squares import Floats
from npusim.config import Section
from npusim.locate import resource
from npusim.units import Quantity
from npusim.validation.figures import Figures
from npusim.validation.running import run_suite
from npusim.validation.unit_models import Machine

SOURCES = ("fitted", "vpuem", "classic")
"""Kernel sources of the table; each is a generation of `configs/dsp/NPU`."""
_SOFTNESS = 0.005  # log error above which a row counts less than its square: the roughness of the tables
_NONE = 1e-9


@dataclass(frozen=True)
class Calls:
    """Bare calls of one kernel: elements, rows and measured cycles of each; arrays of shape (calls,)."""

    elements: Floats
    rows: Floats
    cycles: Floats


class KernelLoops(Section):
    """A kernel's loops: the numbers to fit and the thresholds between loops, by field of `DspKernel`.

    A `step` replaces `fixed`: the main loop begins so many cycles above the end of the plain loop. A step is
    never negative, so that more elements never take less time, whatever a noisy row says.
    """

    numbers: tuple[str, ...]
    thresholds: dict[str, float] = Field(default_factory=dict)

    def fields(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return a kernel's numbers and thresholds by field of `DspKernel`."""
        fields = {**numbers, **self.thresholds}
        if "step" in fields:
            end = fields["small_fixed"] + fields["small_counted"] * fields["small_per_element"]
            begin = end + fields.pop("step") - fields["small_below"] * fields["per_element"]
            fields["fixed"] = max(0.0, begin)
        return fields


@dataclass(frozen=True)
class Tie:
    """A linear relation that decides what rows leave open: sum of factor x number = value (cycles).

    Its error is relative to `scale` (cycles). A row weighs 1; the default weight decides only what the rows
    leave open.
    """

    factors: Mapping[str, float]
    value: float
    scale: float
    weight: float = 0.01


class DspPlan(Section):
    """Loops by name (schema `npusim.dsp-fit/1`)."""

    schema_name: Literal["npusim.dsp-fit/1"] = Field(alias="schema")
    """Version of this file format."""
    loops: dict[str, KernelLoops]


LOOPS = load_plan("dsp", DspPlan).loops


def design(loops: KernelLoops, calls: Calls) -> Floats:
    """Return the design matrix, shape (calls, numbers): its product with the numbers is the cycles."""
    elements, rows, limits = calls.elements, calls.rows, loops.thresholds
    stream = np.zeros(len(elements), bool)
    if "stream_from_elements" in limits:
        stream |= elements >= limits["stream_from_elements"]
    if "stream_from_rows" in limits:
        stream |= rows >= limits["stream_from_rows"]
    few = ~stream & (rows < limits.get("few_rows_below", 0))
    one = few & (rows <= 1)
    small = ~stream & ~few & (elements < limits.get("small_below", 0))
    main = ~stream & ~few & ~small
    head = elements <= limits.get("row_head_elements", 0) * rows
    stepped = "step" in loops.numbers
    beyond = limits["small_below"] if stepped else 0.0
    counted = np.minimum(elements, limits.get("small_counted", np.inf))
    columns: dict[str, NDArray[Any]] = {
        "fixed": main | stream,
        "step": main,
        "per_element": ((main & ~head) | one) * (elements - beyond),
        "per_row": main * rows,
        "row_head_per_element": (main & head) * elements,
        "small_fixed": small | (main & stepped),
        "small_per_element": (small | (main & stepped)) * counted,
        "stream_per_element": stream * elements,
        "stream_per_row": stream * rows,
        "one_row_fixed": one,
        "few_rows_fixed": few & ~one,
        "few_rows_per_position": (few & ~one) * elements / rows,
    }
    return np.stack([columns[name].astype(float) for name in loops.numbers], axis=1)


def fit_numbers(loops: KernelLoops, calls: Calls, ties: Sequence[Tie]) -> dict[str, float]:
    """Return a kernel's numbers, by field of `DspKernel`, thresholds not included.

    The linear solution is polished by robust least squares on log error.
    """
    from scipy.optimize import least_squares, nnls  # slow to import

    matrix = design(loops, calls) / calls.cycles[:, None]
    factors = [[tie.factors.get(name, 0.0) for name in loops.numbers] for tie in ties]
    scales = np.array([tie.weight / tie.scale for tie in ties])
    tied = np.array(factors).reshape(len(ties), len(loops.numbers)) * scales[:, None]
    wanted = np.array([tie.value for tie in ties]) * scales
    target = np.concatenate([np.ones(len(matrix)), wanted])
    values = nnls(np.concatenate([matrix, tied]), target)[0]
    free = (values > _NONE) & (matrix.any(axis=0) | tied.any(axis=0))

    def with_free(logs: Floats) -> Floats:
        trial = np.where(free, 0.0, values)
        trial[free] = np.exp(logs)
        return trial

    def residual(logs: Floats) -> Floats:
        trial = with_free(logs)
        return np.concatenate([np.log(np.maximum(matrix @ trial, _NONE)), tied @ trial - wanted])

    if free.any():
        start = np.log(values[free])
        values = with_free(least_squares(residual, start, loss="soft_l1", f_scale=_SOFTNESS).x)
    return dict(zip(loops.numbers, values.tolist(), strict=True))


def cycles_of(loops: KernelLoops, numbers: Mapping[str, float], calls: Calls) -> Floats:
    """Return the cycles of bare calls under a kernel's numbers; shape (calls,)."""
    cycles: Floats = design(loops, calls) @ np.array([numbers[name] for name in loops.numbers])
    return cycles


# Difference below which two main loops run the same code, except for one instruction: Add and Multiply.
_SAME = 0.02
_DUPLICATE_WEIGHT = 0.1  # weight of a call of a kernel that runs the same code; a kernel's own call weighs 1
# Weight of the cycles of a single element, which vary by kernel more than by repeats of a call.
_SPREAD = 0.05


@dataclass(frozen=True)
class FittedKernel:
    """One kernel of a generation, fitted alone: loops (a key of `LOOPS`), input tensors, calls, numbers."""

    loops: str
    inputs: int
    calls: Calls
    numbers: Mapping[str, float]

    @property
    def main(self) -> float:
        """Cycles per element in its fastest loop."""
        return self.numbers.get("stream_per_element") or self.numbers.get("per_element", 0.0)

    def sizes_of_plain_loop(self) -> int:
        """Return the number of different sizes below the plain loop's threshold."""
        limits = LOOPS[self.loops].thresholds
        small = self.calls.elements[self.calls.elements < limits.get("small_below", 0)]
        return len(np.unique(np.minimum(small, limits.get("small_counted", np.inf))))


def ties_of(kernel: FittedKernel, others: Sequence[FittedKernel]) -> list[Tie]:
    """Return the ties of a kernel to the others of its generation."""
    if kernel.loops == "axis":
        # The streaming loop saves the set-up of a row; what it does with an element stays the same.
        scale = max(kernel.numbers["row_head_per_element"], 1.0)
        return [Tie({"stream_per_element": 1.0, "row_head_per_element": -1.0}, 0.0, scale)]
    if "small_fixed" not in kernel.numbers:
        return []
    alike = [other for other in others if other.loops == kernel.loops]
    peers = [other for other in alike if other.inputs == kernel.inputs]
    same = [peer for peer in peers if peer.main and abs(peer.main / max(kernel.main, 1e-12) - 1.0) < _SAME]
    pools = [same, peers, alike]
    ties: list[Tie] = []
    if kernel.loops == "vector":
        ties += [replace(tie, weight=_SPREAD) for tie in _tied_to([peers, alike], "small_per_element")]
        ties += _tied_to(pools, "step", "small_fixed", kernel) if not kernel.sizes_of_plain_loop() else []
    elif kernel.loops in ("flat", "flat1024"):
        # A call costs the same whatever it then computes, but more tensors take longer to set up.
        ties += _tied_to([same, peers], "small_fixed") or _tied_to([alike], "small_fixed", "fixed", kernel)
    else:
        for duplicate in same:
            matrix, cycles = design(LOOPS[duplicate.loops], duplicate.calls), duplicate.calls.cycles.tolist()
            factors = [dict(zip(LOOPS[duplicate.loops].numbers, row, strict=True)) for row in matrix.tolist()]
            ties += [Tie(f, c, c, _DUPLICATE_WEIGHT) for f, c in zip(factors, cycles, strict=True)]
        ties += _start_of_plain_loop([same, peers, alike])
        main = "stream_per_element" if kernel.loops == "stream" else "per_element"
        ties += _tied_to(pools, "small_per_element", main, kernel)
    if kernel.loops == "stream":
        ties += _tied_to(pools, "per_element", "stream_per_element", kernel)
    return ties


def _tied_to(
    pools: Sequence[Sequence[FittedKernel]], name: str, of: str = "", kernel: FittedKernel | None = None
) -> list[Tie]:
    """Tie a number to its median over the first pool that knows it, or to another by their median ratio."""
    least = 2 if name == "small_per_element" else 1
    for pool in pools:
        known = [
            peer.numbers[name] / (peer.numbers[of] if of else 1.0)
            for peer in pool
            if peer.numbers[name] > 0.0
            and (not of or peer.numbers[of] > 0.0)
            and peer.sizes_of_plain_loop() >= least
        ]
        if known:
            level = float(np.median(known))
            if kernel is None:
                return [Tie({name: 1.0}, level, level)]
            return [Tie({name: 1.0, of: -level}, 0.0, max(kernel.numbers[of], kernel.main, 1e-9))]
    return []


def _start_of_plain_loop(pools: Sequence[Sequence[FittedKernel]]) -> list[Tie]:
    """Tie the start of the plain loop to its cycles per element: a longer body fills a longer pipeline."""
    for pool in pools:
        known = [peer for peer in pool if peer.sizes_of_plain_loop() >= 2]
        if len(known) >= 3:
            slope, start = np.polyfit(
                [peer.numbers["small_per_element"] for peer in known],
                [peer.numbers["small_fixed"] for peer in known],
                1,
            )
            if slope >= 0.0 and start >= 0.0:
                factors = {"small_fixed": 1.0, "small_per_element": -float(slope)}
                return [Tie(factors, float(start), max(float(start), 1.0))]
        if known:
            level = float(np.median([peer.numbers["small_fixed"] for peer in known]))
            return [Tie({"small_fixed": 1.0}, level, max(level, 1.0))]
    return []


_SCALAR_CYCLES = 150.0  # cycles per vector of elements above which a kernel runs a plain scalar loop
_VECTOR_CYCLES = 1.0  # cycles per element below which a kernel must be a vector kernel
# Beginnings of the names of kernels whose cycles grow with the rows.
_ALONG_ROWS = ("mvn", "normalizel2", "interpolatewh_1", "gptq")
_UNSET = DspKernel()  # A kernel without numbers, which has their units
USABLE_ERROR = 0.25
"""Held-out error above which a kernel is left out; an estimate then uses the fallback's, with a note."""

_HEADER = """\
# DSP kernels of {npu}, generation {generation}. Cycles of the VPU clock on one DSP. Fitted by
# `python -m npusim.calibration dsp` to validate/figures/costmodel_dsp.csv
# (intel/npu-nn-cost-model@8a2ae92b); suite `dsp` gives the error. No measured row stands behind any.
# A kernel whose held-out rows are more than 25 % off is left out.
"""


def fit_dsp(machine: Machine, rows: TrainingRows) -> Fitted:
    """Fit the kernels of one machine's library; none of its numbers stands in the SoC's file."""
    figures = rows("dsp")
    generations = {}
    for source in SOURCES:
        shipped = machine.generation(source)
        kernels = fit_generation(machine, source, figures.where(figures["kernel_source"] == source))
        # A kernel without a training row stays as it was shipped.
        generations[source] = shipped.model_copy(update={"kernels": {**shipped.kernels, **kernels}})
    return Fitted(machine.with_generations(generations))


def fit_generation(machine: Machine, source: str, figures: Figures) -> dict[str, DspKernel]:
    """Fit all kernels of one source, by name, unusable ones included."""
    alone = {
        op: _alone(machine, source, op, figures.where(figures["op"] == op))
        for op in sorted(set(figures["op"]))
    }
    kernels = {}
    for op, kernel in alone.items():
        ties = ties_of(kernel, [other for name, other in alone.items() if name != op])
        numbers = fit_numbers(LOOPS[kernel.loops], kernel.calls, ties) if ties else kernel.numbers
        kernels[op] = kernel_of(kernel, numbers)
    return kernels


def _alone(machine: Machine, source: str, op: str, figures: Figures) -> FittedKernel:
    cycles = figures["time_s"] * float(machine.arch["vpu_clock_hz"][0])
    calls = Calls(figures["out_elements"], figures["rows"], cycles)
    loops = _loops_of(machine, source, op, figures, calls)
    return FittedKernel(loops, int(figures["inputs"].max()), calls, fit_numbers(LOOPS[loops], calls, []))


def _loops_of(machine: Machine, source: str, op: str, figures: Figures, calls: Calls) -> str:
    """Return the loops of a kernel, by its generation and kind."""
    lanes = float(machine.arch["dsp_lanes"][0])
    wide = lanes >= 32
    if source == "classic" or op == "default":
        return "line"
    if op == "softmax_x":
        return "axis"
    if op.startswith(_ALONG_ROWS):
        return "rows"
    if source == "vpuem":
        return "plain" if wide else "stream"
    largest = int(np.argmax(calls.elements))
    scalar = calls.cycles[largest] / calls.elements[largest] * lanes > _SCALAR_CYCLES
    if not wide:
        return "line" if scalar else "flat"
    if op in ("softmax", "gather"):
        return "lanes" if op == "softmax" else "rows"
    binary = figures["inputs"].max() > 1
    if scalar:
        return "flat1024" if binary or op.startswith("logical") else "line"
    # A vector kernel of two tensors has one loop for all sizes; of one tensor, a plain one for few elements.
    return "line" if binary else "vector"


def kernel_of(kernel: FittedKernel, numbers: Mapping[str, float]) -> DspKernel:
    """Return fitted numbers as a kernel of a data sheet."""
    loops = LOOPS[kernel.loops]
    main = numbers.get("stream_per_element") or numbers.get("per_element", 0.0)
    fields = {
        name: Quantity(float(f"{value:.6g}"), getattr(_UNSET, name).unit)
        for name, value in loops.fields(numbers).items()
        if value > 0.0
    }
    share = Quantity(1.0 if main < _VECTOR_CYCLES else 0.0)
    error = float(np.mean(np.abs(cycles_of(loops, numbers, kernel.calls) / kernel.calls.cycles - 1.0)))
    source = f"fitted to {len(kernel.calls.cycles)} rows, mean error {100 * error:.1f} %"
    return DspKernel.model_construct(None, **fields, vector_share=share, source=source)


def library_text(
    shipped: str, npu: str, name: str, generation: DspGeneration, held_out: Mapping[tuple[str, ...], float]
) -> str:
    """Return the text of a library file; `held_out` holds the error of each (NPU, generation, kernel)."""
    data = {key: value for key, value in yaml.safe_load(shipped).items() if key != "kernels"}
    errors = {kernel: held_out.get((npu, name, kernel), np.inf) for kernel in sorted(generation.kernels)}
    data["kernels"] = {
        kernel: _kernel_data(generation.kernels[kernel], error)
        for kernel, error in errors.items()
        if error <= USABLE_ERROR
    }
    text: str = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=np.inf)
    return _HEADER.format(npu=npu, generation=name) + text


def _kernel_data(kernel: DspKernel, held_out: float) -> dict[str, str]:
    numbers = ((name, getattr(kernel, name)) for name in DspKernel.model_fields)
    known = {name: value for name, value in numbers if isinstance(value, Quantity) and value > 0.0}
    entries = {name: f"{float(value):.6g} {value.unit}".strip() for name, value in known.items()}
    return entries | {"source": f"{kernel.source}, held out {100 * held_out:.1f} %"}


def _libraries(fitted: Mapping[str, Fitted]) -> dict[Path, str]:
    """Return the texts of the library files of fitted machines."""
    evidence, texts = cross_validate(run_suite("dsp")).evidence, {}
    columns = (evidence.columns[name] for name in ("npu", "kernel_source", "op"))
    errors: dict[tuple[str, ...], list[float]] = {}
    for *kernel, error in zip(*columns, evidence.errors, strict=True):
        errors.setdefault(tuple(kernel), []).append(float(error))
    held_out = {kernel: float(np.mean(own)) for kernel, own in errors.items()}
    for npu, result in fitted.items():
        for source in SOURCES:
            path = resource("configs", "dsp", npu, f"{source}.yaml")
            generation = result.machine.generation(source)
            texts[path] = library_text(path.read_text("utf-8"), npu, source, generation, held_out)
    return texts


DSP = UnitFit("dsp", fit_dsp, ("dsp",), _libraries)
