"""The DSPs of a tile and the cycles of their kernels, by generation.

Sources disagree about the kernels of the compiler, so generations have names: the SoC's file holds the one in
use, `configs/dsp/<library>/<generation>.yaml` the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from npusim import units
from npusim.arch.device import is_operator, refuse_circle
from npusim.config import Section, load_model
from npusim.config.reading import read_yaml
from npusim.errors import UnknownNameError, nearest
from npusim.locate import data_root, resource, resource_names
from npusim.units import refuse

GenerationName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]

_NO_CYCLES = units.Quantity(0.0, "cycle", source="absent")
_NO_ELEMENT = units.Quantity(0.0, "cycle/element", source="absent")
_NOTHING = units.Quantity(0.0, "", source="absent")


class DspKernel(Section):
    """One kernel on one DSP, in cycles of the VPU clock: fixed + rows x per_row + elements x per_element.

    Further numbers describe kernels with more than one loop; other kernels leave them out.
    """

    source: str = ""
    """Source of the numbers, and how well they fit."""
    fixed: units.Cycles = _NO_CYCLES
    """Call, arguments, set-up of the unrolled loop."""
    per_element: units.CyclesPerElement = _NO_ELEMENT
    """An element with the lanes of the generation."""
    per_row: units.Cycles = _NO_CYCLES
    """A row of a kernel along an axis (Softmax, Gather, reductions)."""
    small_below: units.Ratio = _NOTHING
    """Elements below which a call runs the plain loop."""
    small_fixed: units.Cycles = _NO_CYCLES
    """Call of the plain loop."""
    small_per_element: units.CyclesPerElement = _NO_ELEMENT
    """An element in the plain loop."""
    small_counted: units.Ratio = _NOTHING
    """Elements of the plain loop that take time (one vector); 0: all."""
    row_head_per_element: units.CyclesPerElement = _NO_ELEMENT
    """An element at the head of a row, processed one by one."""
    row_head_elements: units.Ratio = _NOTHING
    """Most elements of the head of a row."""
    stream_from_elements: units.Ratio = _NOTHING
    """Fewest elements of the streaming loop; 0: no such loop."""
    stream_from_rows: units.Ratio = _NOTHING
    """Fewest rows of the streaming loop; 0: no such loop."""
    stream_per_element: units.CyclesPerElement = _NO_ELEMENT
    """An element in the streaming loop."""
    stream_per_row: units.Cycles = _NO_CYCLES
    """A row in the streaming loop."""
    few_rows_below: units.Ratio = _NOTHING
    """Rows below which a kernel with a row per lane has idle lanes; 0: no such kernel."""
    few_rows_fixed: units.Cycles = _NO_CYCLES
    """Call with idle lanes."""
    few_rows_per_position: units.Cycles = _NO_CYCLES
    """A position along the rows with idle lanes: all rows at once."""
    one_row_fixed: units.Cycles = _NO_CYCLES
    """Call with a single row, which the lanes divide."""
    vector_share: units.Fraction | None = None
    """Share of the element cycles that scales with lanes, 0 (scalar) to 1. None: that of the generation."""


class DspGeneration(Section):
    """A set of kernels."""

    title: str
    """Name and source of the set."""
    reference_lanes: units.PositiveCount
    """fp16 lanes of the DSP of the numbers."""
    call: units.Cycles = _NO_CYCLES
    """Cycles of a call of any kernel in addition to its fixed ones."""
    vector_share: units.Fraction = _NOTHING
    """Vector share of kernels that do not state it."""
    fallback: str | None = None
    """Generation that supplies missing kernels. None: there is none."""
    kernels: dict[str, DspKernel] = Field(min_length=1)
    """Kernels by name, as operators ask for them; `configs/dsp/kernels.yaml` lists the names."""

    @model_validator(mode="after")
    def _kernels_are_known(self) -> DspGeneration:
        for name in self.kernels:
            if name not in known_kernels() and not is_operator(name):
                meant = nearest(name, known_kernels())
                at = f"kernels.{name}"
                refuse(f"the unknown kernel `{name}`", "a kernel that operators ask for", meant, at=at)
        return self


class DspKernelFile(DspGeneration):
    """A generation in a separate file."""

    schema_name: Literal["npusim.dsp-kernels/1"] = Field(alias="schema")
    """Version of this file format: npusim.dsp-kernels/1."""


@cache
def dsp_libraries() -> list[str]:
    """Return the names of the shipped libraries of DSP kernels, sorted."""
    return sorted(entry.name for entry in (data_root() / "configs" / "dsp").iterdir() if entry.is_dir())


@cache
def known_kernels() -> frozenset[str]:
    """Return the names of all kernels that operators use or that a shipped library holds."""
    names = read_yaml(resource("configs", "dsp", "kernels.yaml")).data["kernels"]
    return frozenset(map(str, names))


def library_generations(library: str | None) -> list[str]:
    """Return the names of the generations of a shipped library, sorted."""
    return resource_names(f"configs/dsp/{library}", ".yaml") if library in dsp_libraries() else []


@cache
def library_generation(library: str | None, generation: str) -> DspGeneration:
    """Return a generation of a shipped library; an `UnknownNameError` lists the names."""
    known = library_generations(library)
    if generation not in known:
        raise UnknownNameError(f"DSP kernel generation of {library}", generation, known)
    return load_model(resource("configs", "dsp", str(library), f"{generation}.yaml"), DspKernelFile)


_OTHER_LANES = "kernels state their cycles for fp16 lanes, whatever the format of their operands"


class DspLanes(Section):
    """Elements of a vector instruction, by format."""

    fp16: units.ElementsPerCycle
    """Elements of 16 bits."""
    fp32: Annotated[units.ElementsPerCycle | None, units.Informative(_OTHER_LANES)] = None
    """Elements of 32 bits."""
    int8: Annotated[units.ElementsPerCycle | None, units.Informative(_OTHER_LANES)] = None
    """Elements of 8 bits."""


class Dsp(Section):
    """The vector processors (Intel: SHAVE), which run what the grid cannot."""

    per_tile: units.PositiveCount
    """DSPs in a tile."""
    lanes: DspLanes
    """Elements of a vector instruction, by format."""
    kernel_generation: str
    """Set of kernels that the compiler uses: one of `kernels`, or of the library."""
    library: str | None = None
    """Folder of `configs/dsp` with further generations, or a YAML file beside the data sheet. None: none."""
    kernels: dict[GenerationName, DspGeneration]
    """Generations by name, with their numbers."""

    @model_validator(mode="after")
    def _names_exist(self) -> Dsp:
        if self.library is not None:
            _require_name(self.library, dsp_libraries(), "library")
        shipped = library_generations(self.library)
        _require_name(self.kernel_generation, sorted({*self.kernels, *shipped}), "kernel_generation")
        for name, generation in self.kernels.items():
            at = f"kernels.{name}.fallback"
            others = sorted({*self.kernels, *shipped} - {name})
            if generation.fallback is not None:
                _require_name(generation.fallback, others, at)
            # Shipped generations have no cycle.
            refuse_circle(name, {key: other.fallback for key, other in self.kernels.items()}, at)
        return self

    def generation(self, name: str | None = None) -> DspGeneration:
        """Return a generation of this file or of the library; None: the one in use."""
        name = name if name is not None else self.kernel_generation
        return self.kernels[name] if name in self.kernels else library_generation(self.library, name)

    def kernel(self, name: str) -> tuple[str, DspGeneration, DspKernel] | None:
        """Return (name, generation, kernel) of a kernel, also from fallbacks; None if unknown."""
        seen: list[str] = []
        wanted: str | None = self.kernel_generation
        while wanted is not None and wanted not in seen:
            seen.append(wanted)
            generation = self.generation(wanted)
            if name in generation.kernels:
                return wanted, generation, generation.kernels[name]
            wanted = generation.fallback
        return None


def _require_name(name: str, names: Iterable[str], key: str) -> None:
    known = list(names)
    if name not in known:
        refuse(f"`{name}`", f"one of {', '.join(known)}", nearest(name, known), at=key)
