"""Runs the fits of the units: ``python -m npusim.calibrate.units dma|dsp|dpu [--soc S] [--write]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from npusim.calibrate.cross import cross_validate
from npusim.calibrate.data_sheet import as_written, with_numbers
from npusim.calibrate.dsp_fit import held_out_errors, library_text
from npusim.calibrate.unit_fit import FITS, Fitted, fit_named, shipped_rows
from npusim.errors import NpusimError, UnknownNameError
from npusim.locate import resource
from npusim.validation.dsp_figures import SOURCES
from npusim.validation.running import machines_of, run_suite
from npusim.validation.suite import load_suite
from npusim.validation.unit_models import Machine

_SUITES_OF = {"dma": ("silicon-dma",), "dpu": ("silicon-dpu", "costmodel-eltwise-pool"), "dsp": ("dsp",)}
"""Suites whose machines a fit is run for."""


def fit_units(unit: str, soc: str | None = None) -> dict[str, Fitted]:
    """Fit one unit of each machine that the figures know.

    Returns
    -------
    dict of str to Fitted
        By machine, such as npu4000.

    Raises
    ------
    UnknownNameError
        Where there is no such fit, or no figures of that SoC.
    """
    fit = fit_named(unit)
    machines: dict[str, Machine] = {}
    for suite in _SUITES_OF[unit]:
        machines = machines_of(load_suite(suite)) | machines
    names = [machine.soc.name for machine in machines.values()]
    if soc is not None and soc not in names:
        raise UnknownNameError("SoC with figures", soc, names)
    return {
        name: fit(machine, shipped_rows(name))
        for name, machine in machines.items()
        if soc in (None, machine.soc.name)
    }


def report(unit: str, name: str, fitted: Fitted) -> str:
    """Return what a fit found, as text: each number with its error bar, and what is unmeasured."""
    lines = [f"{unit} of {name} ({fitted.machine.soc.name})"]
    for number in fitted.numbers:
        value, sigma = as_written(number)
        mark = "undetermined" if number.path in fitted.undetermined else ""
        spread = f"+-{sigma}" if sigma else ""
        lines.append(f"  {number.path:46} {value:>16} {spread:>10}  {number.source:32} {mark}".rstrip())
    unmeasured = [number.path for number in fitted.numbers if not number.on_silicon]
    if unmeasured:
        lines.append(f"  on no measured row: {', '.join(unmeasured)}")
    for generation, data in fitted.machine.generations.items():
        lines.append(f"  {generation}: {len(data.kernels)} kernels, on no measured row")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a fit from the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        "python -m npusim.calibrate.units", description="Fit the units' numbers."
    )
    parser.add_argument("unit", choices=sorted(FITS), help="which unit")
    parser.add_argument("--soc", metavar="NAME", help="only this SoC; default: every SoC with figures")
    parser.add_argument("--write", action="store_true", help="write the numbers into configs/")
    chosen = parser.parse_args(arguments)
    try:
        found = fit_units(chosen.unit, chosen.soc)
        for name, fitted in found.items():
            print(report(chosen.unit, name, fitted))
        if chosen.write:
            for path in _write(chosen.unit, found):
                print(f"wrote {path}")
    except NpusimError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def _write(unit: str, found: dict[str, Fitted]) -> list[Path]:
    """Write fitted numbers into the shipped files; return those that changed."""
    texts: dict[Path, str] = {}
    for fitted in found.values():
        path = resource("configs", "socs", f"{fitted.machine.soc.name}.yaml")
        texts[path] = with_numbers(path.read_text(encoding="utf-8"), fitted.numbers)
    if unit == "dsp":
        held_out = cross_validate(run_suite("dsp"))
        for name, fitted in found.items():
            errors = held_out_errors(held_out, name)
            texts |= _libraries(name, fitted.machine, errors)
    changed = [path for path, text in texts.items() if text != path.read_text(encoding="utf-8")]
    for path in changed:
        path.write_text(texts[path], encoding="utf-8")
    return changed


def _libraries(name: str, machine: Machine, held_out: dict[tuple[str, str], float]) -> dict[Path, str]:
    texts = {}
    for source in SOURCES:
        path = resource("configs", "dsp", name, f"{source}.yaml")
        shipped = path.read_text(encoding="utf-8")
        texts[path] = library_text(shipped, name, source, machine.generation(source), held_out)
    return texts


if __name__ == "__main__":
    sys.exit(main())
