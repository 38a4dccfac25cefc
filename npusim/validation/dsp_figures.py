"""Kernels of one DSP: the cost model's times by operator, kernel source, shape and parameters."""

from __future__ import annotations

import numpy as np

from npusim.config.tables import Choice, Number, Text
from npusim.cost import DSP_KERNEL_DTYPE, fill_numbers
from npusim.validation.evidence import TablePredictor
from npusim.validation.figures import Figures, Floats
from npusim.validation.unit_models import Machine, dsp_seconds

SOURCES = ("fitted", "vpuem", "classic")
"""Kernel sources of the table; each is a generation of `configs/dsp/<npu>`."""

_ROWS_OF = {
    "gather": "h*c",
    "gptq": "h*c",
    "interpolatewh_1": "w*h",
    "mvn": "c",
    "mvn6": "c",
    "mvn6_fourax": "c",
    "mvn6_oneax": "h*c",
    "mvn6_onlyoneax": "h*c",
    "mvn6_threeax": "h*c",
    "mvn6_twoax": "c",
    "mvn_2ax": "c",
    "mvn_fused": "w*h",
    "normalizel2onlyc": "w*h",
    "softmax_x": "w*h",
}
"""What a row is to kernels that work along an axis, where the parameters do not tell (found by trying: the
table does not say)."""


def row_counts(figures: Figures) -> Floats:
    """Return the rows of each call of a kernel along an axis; 1 for the others."""
    w, h, c = figures["w"], figures["h"], figures["c"]
    counts = {"w*h": w * h, "h*c": h * c, "c": c, "": np.ones(len(figures))}
    rows = np.ones(len(figures))
    for i, (op, params) in enumerate(zip(figures["op"], figures["params"], strict=True)):
        meaning = _ROWS_OF.get(op, "")
        if "axis=W" in params:
            meaning = "h*c"
        elif "axis=C" in params:
            meaning = "w*h"
        rows[i] = counts[meaning][i]
    return rows


def _unmodelled(figures: Figures, machine: Machine) -> list[bool]:
    """Return which calls have no kernel of their own source."""
    calls = zip(figures["kernel_source"], figures["op"], strict=True)
    return [op not in machine.generation(source).kernels for source, op in calls]


def _predict(figures: Figures, machine: Machine) -> Floats:
    names = sorted(set(zip(figures["kernel_source"], figures["op"], strict=True)))
    number = {name: i for i, name in enumerate(names)}
    kernels = np.zeros(len(names), DSP_KERNEL_DTYPE)
    for (source, op), i in number.items():
        # As in an estimate: a kernel that neither the generation nor its fallbacks have is costed as unknown.
        found = machine.dsp_kernel(source, op) or machine.dsp_kernel(
            machine.soc.npu.dsp.kernel_generation, "unknown"
        )
        if found is not None:
            fill_numbers(kernels[i], found[1], found[2])
    which = np.array(
        [number[name] for name in zip(figures["kernel_source"], figures["op"], strict=True)], np.int64
    )
    lanes, clock_hz = float(machine.arch["dsp_lanes"][0]), float(machine.arch["vpu_clock_hz"][0])
    seconds: Floats = dsp_seconds(
        kernels, which, figures["out_elements"], row_counts(figures), lanes, clock_hz
    )
    return seconds


def _duplicate_keys(figures: Figures) -> list[str]:
    rows = row_counts(figures)
    return [
        f"{npu}/{source}/{op}/{elements:g}/{count:g}"
        for npu, source, op, elements, count in zip(
            figures["npu"],
            figures["kernel_source"],
            figures["op"],
            figures["out_elements"],
            rows,
            strict=True,
        )
    ]


KERNELS = TablePredictor(
    columns=(
        Text("op"),
        Choice("kernel_source", SOURCES),
        Text("params"),
        Number("w", whole=True),
        Number("h", whole=True),
        Number("c", whole=True),
        Number("inputs", whole=True),
        Number("out_elements", whole=True),
        Number("time_s"),
    ),
    measured=lambda figures: figures["time_s"],
    predict=_predict,
    unit="s",
    dimensions=("out_elements", "op", "kernel_source"),
    duplicates=_duplicate_keys,
    prepare=lambda figures: figures.with_columns(rows=row_counts(figures)),
    unmodelled=_unmodelled,
)
"""Bare kernel calls. An estimate may pad a call up to the next loop's threshold where that is faster."""
