"""The DSPs of a tile and the kernels they run, by generation: how many cycles each operator takes.

Sources disagree about which kernels the compiler uses, so all generations are kept by name: the one in
use stands in the SoC's file, the others in `configs/dsp/<library>/<generation>.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from npusim.arch.device import is_operator
from npusim.config import Section, load_model
from npusim.config.reading import read_yaml
from npusim.errors import UnknownNameError, nearest
from npusim.locate import data_root, resource, resource_names
from npusim.units import (
    Cycles,
    CyclesPerElement,
    ElementsPerCycle,
    Fraction,
    Informative,
    PositiveCount,
    Quantity,
    Ratio,
    refuse,
)

GenerationName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""Name of a generation of DSP kernels."""

_NO_CYCLES = Quantity(0.0, "cycle", source="absent")
_NO_ELEMENT = Quantity(0.0, "cycle/element", source="absent")
_NOTHING = Quantity(0.0, "", source="absent")


class DspKernel(Section):
    """One kernel on one DSP, in cycles of the VPU clock: fixed + rows x per_row + elements x per_element.

    Further numbers describe kernels with more than one loop; a kernel that has no such loop leaves them out.
    """

    source: str = ""
    """Where the numbers of this kernel come from, and how well they fit."""
    fixed: Cycles = _NO_CYCLES
    """Call, arguments, set-up of the unrolled loop."""
    per_element: CyclesPerElement = _NO_ELEMENT
    """An element, with the lanes of the generation."""
    per_row: Cycles = _NO_CYCLES
    """A row, for kernels that work along an axis (Softmax, Gather, reductions)."""
    small_below: Ratio = _NOTHING
    """Elements below which a call takes the plain loop."""
    small_fixed: Cycles = _NO_CYCLES
    """Call of the plain loop."""
    small_per_element: CyclesPerElement = _NO_ELEMENT
    """An element in the plain loop."""
    small_counted: Ratio = _NOTHING
    """Elements of the plain loop that cost time, those of one vector; further ones are free. 0: all cost."""
    row_head_per_element: CyclesPerElement = _NO_ELEMENT
    """An element at the head of a row, worked through one by one."""
    row_head_elements: Ratio = _NOTHING
    """Most elements that a row's head holds."""
    stream_from_elements: Ratio = _NOTHING
    """Elements from which the streaming loop runs; 0: there is none."""
    stream_from_rows: Ratio = _NOTHING
    """Rows from which the streaming loop runs; 0: there is none."""
    stream_per_element: CyclesPerElement = _NO_ELEMENT
    """An element in the streaming loop."""
    stream_per_row: Cycles = _NO_CYCLES
    """A row in the streaming loop."""
    few_rows_below: Ratio = _NOTHING
    """Rows below which a kernel that puts a row in each lane has lanes to spare; 0: it does no such thing."""
    few_rows_fixed: Cycles = _NO_CYCLES
    """Call with lanes to spare."""
    few_rows_per_position: Cycles = _NO_CYCLES
    """A position along the rows with lanes to spare: all rows at once."""
    one_row_fixed: Cycles = _NO_CYCLES
    """Call with a single row, which is worked through along itself."""
    vector_share: Fraction | None = None
    """Share of the element cycles that more lanes shorten: 1 for a vector kernel, 0 for a scalar one; None:
    the generation's."""


class DspGeneration(Section):
    """A set of kernels that belong together."""

    title: str
    """What the set is and where it comes from."""
    reference_lanes: PositiveCount
    """fp16 lanes of the DSP that the numbers hold for."""
    call: Cycles = _NO_CYCLES
    """Cycles of a call of any kernel, on top of the kernel's own fixed ones."""
    vector_share: Fraction = _NOTHING
    """Vector share of the kernels that do not state theirs."""
    fallback: str | None = None
    """Generation that is asked for a kernel this one lacks; None: there is none."""
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
    """A generation in a file of its own."""

    schema_name: Literal["npusim.dsp-kernels/1"] = Field(alias="schema")
    """Version of this file format: npusim.dsp-kernels/1."""


@cache
def dsp_libraries() -> list[str]:
    """Return the names of the shipped libraries of DSP kernels, sorted."""
    return sorted(entry.name for entry in (data_root() / "configs" / "dsp").iterdir() if entry.is_dir())


@cache
def known_kernels() -> frozenset[str]:
    """Return the names of all DSP kernels that operators ask for or that a shipped library holds."""
    names = read_yaml(resource("configs", "dsp", "kernels.yaml")).data["kernels"]
    return frozenset(map(str, names))


def library_generations(library: str | None) -> list[str]:
    """Return the names of the generations of a shipped library, sorted."""
    return resource_names(f"configs/dsp/{library}", ".yaml") if library in dsp_libraries() else []


@cache
def library_generation(library: str | None, generation: str) -> DspGeneration:
    """Return a generation of a shipped library.

    Raises
    ------
    UnknownNameError
        Where the library has no such generation.
    """
    known = library_generations(library)
    if generation not in known:
        raise UnknownNameError(f"DSP kernel generation of {library}", generation, known)
    return load_model(resource("configs", "dsp", str(library), f"{generation}.yaml"), DspKernelFile)


_OTHER_LANES = "kernels state their cycles for fp16 lanes, whatever the format of their operands"


class DspLanes(Section):
    """Elements a vector instruction works on, by format."""

    fp16: ElementsPerCycle
    """Elements of 16 bits."""
    fp32: Annotated[ElementsPerCycle | None, Informative(_OTHER_LANES)] = None
    """Elements of 32 bits."""
    int8: Annotated[ElementsPerCycle | None, Informative(_OTHER_LANES)] = None
    """Elements of 8 bits."""


class Dsp(Section):
    """The vector processors (Intel: SHAVE) that run what the grid cannot."""

    per_tile: PositiveCount
    """DSPs in a tile."""
    lanes: DspLanes
    """Elements a vector instruction works on, by format."""
    kernel_generation: str
    """Which set of kernels the compiler uses: one of `kernels`, or of the library."""
    library: str | None = None
    """Folder of `configs/dsp` with further generations, such as npu4000; in a file also a YAML file beside it
    that holds one generation. None: there are no further ones."""
    kernels: dict[GenerationName, DspGeneration]
    """Generations by name, numbers and all."""

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
            self._refuse_circle(name, at)
        return self

    def _refuse_circle(self, name: str, at: str) -> None:
        """Refuse fallbacks that lead back to where they began; shipped generations hold none."""
        passed = [name]
        while (wanted := self.kernels[passed[-1]].fallback) in self.kernels:
            if wanted in passed:
                refuse(" -> ".join([*passed, str(wanted)]), "fallbacks that end", at=at)
            passed.append(str(wanted))

    def generation(self, name: str | None = None) -> DspGeneration:
        """Return a generation by name; None: the one in use.

        Raises
        ------
        UnknownNameError
            Where neither this file nor the library has it.
        """
        name = name if name is not None else self.kernel_generation
        return self.kernels[name] if name in self.kernels else library_generation(self.library, name)

    def kernel(self, name: str) -> tuple[str, DspGeneration, DspKernel] | None:
        """Return (generation, its data, kernel) for a kernel's name, fallbacks included; None if unknown."""
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
