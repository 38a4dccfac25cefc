"""Fit of CPU and GPU to the published rates of whole networks.

`python -m npusim.calibrate.host_fit` prints the numbers and each row, `--write` writes them into the sheet.
Throughput and latency of whole networks determine few numbers of a device: those of `FREE`. Everything else
of the data sheet stays. Each network is also predicted by a fit to the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npusim.arch import Soc, load_soc
from npusim.calibrate.data_sheet import FittedNumber, as_written, with_numbers
from npusim.calibrate.least_squares import FreeNumber, Solution, solve
from npusim.cost import arch_row
from npusim.errors import NpusimError
from npusim.locate import resource
from npusim.mapping import Mapped
from npusim.scenario import Scenario
from npusim.studies.perturbation import evaluated, moved
from npusim.validation.network_figures import HOST_FIGURES, PublishedRow, published_rows, workload_of

Floats = NDArray[np.float64]

SOC = "core-ultra-7-165h"
"""The chip of the figures."""

_US = 1e-6
FREE = {
    "cpu": (
        (FreeNumber("cpu.sustained_clock_share.latency", 0.7, 0.1, 1.0), "", 1.0),
        (FreeNumber("cpu.sustained_clock_share.throughput", 0.6, 0.1, 1.0), "", 1.0),
        (FreeNumber("cpu.element_rate", 0.3, 0.02, 1.0), "", 1.0),
    ),
    "gpu": (
        (FreeNumber("gpu.dense_efficiency", 0.4, 0.05, 1.0), "", 1.0),
        (FreeNumber("gpu.dispatch_overhead", 10.0, 1.0, 100.0), "us", _US),
        (FreeNumber("gpu.launch_overhead", 200.0, 10.0, 2000.0), "us", _US),
    ),
}
"""What is fitted on each device: first guess and bounds in the unit of the data sheet, and that unit."""
_SOFTNESS = 1.0
"""Log error from which a row would count less: none of these rows is an outlier."""


@dataclass(frozen=True)
class HostFit:
    """A device's published rows, and the fit to them."""

    device: str
    rows: Sequence[PublishedRow]

    @cached_property
    def machine(self) -> Soc:
        """The data sheet that is fitted."""
        return load_soc(SOC)

    @cached_property
    def mapped(self) -> list[Mapped]:
        """Each row's network, mapped as its hint has it run."""
        return [
            Scenario(
                str(workload_of(row)[0]),
                self.machine,
                hint=row.quantity,
                device=row.device,
                settings=[f"workload.precision={row.precision}"],
            ).mapped
            for row in self.rows
        ]

    def predicted(self, numbers: Mapping[str, float], which: Sequence[int]) -> Floats:
        """Return the predictions of some rows, in what each counts, shape (rows,)."""
        units = {free.name: factor for free, _, factor in FREE[self.device]}
        values = {("devices", *name.split(".")): value * units[name] for name, value in numbers.items()}
        machine = moved(self.machine, values)
        found = np.empty(len(which))
        for place, i in enumerate(which):
            run, mapped = self.mapped[i].run, self.mapped[i]
            arch: Any = arch_row(machine, run.tiles, run.requests, run.hint)
            # No number that is fitted changes the operator table.
            total = evaluated(mapped, machine, arch, mapped.lowered.ops)
            quantity = "latency_s" if self.rows[i].quantity == "latency" else "throughput_per_s"
            found[place] = total[quantity]
        return found

    def solve(self, without: str | None = None) -> Solution:
        """Fit the device's numbers to all rows, or to those of all networks but one."""
        which = [i for i, row in enumerate(self.rows) if row.network != without]
        measured = np.array([self.rows[i].measured for i in which])
        return solve(
            [free for free, _, _ in FREE[self.device]],
            lambda numbers: np.log(self.predicted(numbers, which) / measured),
            _SOFTNESS,
        )

    def left_out(self) -> Floats:
        """Return each row as a fit without its network predicts it, shape (rows,)."""
        found = np.empty(len(self.rows))
        for network in dict.fromkeys(row.network for row in self.rows):
            which = [i for i, row in enumerate(self.rows) if row.network == network]
            found[which] = self.predicted(self.solve(network).values, which)
        return found


def shipped_fit(device: str) -> HostFit:
    """Return the fit of a device to the shipped figures."""
    file = resource("validate", "figures", HOST_FIGURES)
    rows = [row for row in published_rows(file) if row.device == device and workload_of(row)[0] is not None]
    return HostFit(device, rows)


def numbers_of(device: str, solution: Solution) -> list[FittedNumber]:
    """Return fitted numbers as the data sheet holds them."""
    return [
        FittedNumber(
            free.name,
            solution.values[free.name],
            unit,
            solution.relative_sigma[free.name],
            "[OVHOSTS] fitted, docs/hosts.md",
            True,
        )
        for free, unit, _ in FREE[device]
    ]


def report(fit: HostFit, solution: Solution) -> str:
    """Return the numbers, and each row measured, predicted and left out, as Markdown."""
    lines = [
        f"{number.path} {value} +-{sigma}"
        for number in numbers_of(fit.device, solution)
        for value, sigma in [as_written(number)]
    ]
    lines += ["", "| network | precision | what | measured | predicted | error | left out | error |"]
    lines += ["| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    predicted, left_out = fit.predicted(solution.values, range(len(fit.rows))), fit.left_out()
    errors = []
    for row, here, there in zip(fit.rows, predicted.tolist(), left_out.tolist(), strict=True):
        factor, unit = (1e3, "ms") if row.quantity == "latency" else (1.0, "/s")
        errors.append([here / row.measured - 1.0, there / row.measured - 1.0])
        cells = [row.network, row.precision, f"{row.quantity}, {unit}", f"{row.measured * factor:.4g}"]
        cells += [
            f"{here * factor:.4g}",
            f"{errors[-1][0]:+.0%}",
            f"{there * factor:.4g}",
            f"{errors[-1][1]:+.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    means = np.abs(errors).mean(axis=0)
    lines += [f"| mean | | | | | {means[0]:.1%} | | {means[1]:.1%} |"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fit from the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        "python -m npusim.calibrate.host_fit", description="Fit CPU and GPU to published networks."
    )
    parser.add_argument("--write", action="store_true", help=f"write the numbers into {SOC}")
    chosen = parser.parse_args(arguments)
    path = resource("configs", "socs", f"{SOC}.yaml")
    try:
        for device in FREE:
            fit = shipped_fit(device)
            solution = fit.solve()
            print(f"{report(fit, solution)}\n")
            if chosen.write:
                text = with_numbers(path.read_text(encoding="utf-8"), numbers_of(device, solution))
                path.write_text(text, encoding="utf-8")
    except NpusimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
