"""The machine a row of figures was measured on, as the cost model's equations see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npusim.arch import DspGeneration, DspKernel, Soc, load_soc
from npusim.cost.architecture import arch_row
from npusim.validation.suite import MachineAt

__all__ = ["Machine", "machine_at"]


@dataclass(frozen=True)
class Machine:
    """A SoC at the clocks of the measurement.

    Attributes
    ----------
    name : str
        As the figures call it, such as npu4000.
    soc : Soc
        Its data sheet.
    arch : array of ARCH_DTYPE, shape (1,)
        Its row of the architecture table, one tile.
    generations : mapping of str to DspGeneration
        DSP kernels that stand in for the shipped ones, by generation.
    """

    name: str
    soc: Soc
    arch: Any
    generations: Mapping[str, DspGeneration]

    def with_numbers(self, numbers: Mapping[str, float]) -> Machine:
        """Return the machine with other numbers in columns of its row, such as ``dma_start_cycles``."""
        arch = self.arch.copy()
        for name, value in numbers.items():
            arch[name] = value
        return replace(self, arch=arch)

    def with_generations(self, generations: Mapping[str, DspGeneration]) -> Machine:
        """Return the machine with other DSP kernels."""
        return replace(self, generations={**self.generations, **generations})

    def generation(self, name: str) -> DspGeneration:
        """Return a generation of DSP kernels; `UnknownNameError` where there is none of that name."""
        return self.generations[name] if name in self.generations else self.soc.npu.dsp.generation(name)

    def dsp_kernel(self, generation: str, name: str) -> tuple[str, DspGeneration, DspKernel] | None:
        """Return (generation, its data, kernel) through the chain of fallbacks; None where nobody has it."""
        seen: list[str] = []
        wanted: str | None = generation
        while wanted is not None and wanted not in seen:
            seen.append(wanted)
            found = self.generation(wanted)
            if name in found.kernels:
                return wanted, found, found.kernels[name]
            wanted = found.fallback
        return None


def machine_at(name: str, place: MachineAt) -> Machine:
    """Return the machine of a suite, at its operating point and otherwise as shipped."""
    soc = load_soc(place.soc, {"npu.operating_point": place.operating_point})
    return Machine(name, soc, np.array(arch_row(soc, tiles=1, requests=1)), {})
