"""The NPU: tiles of a MAC grid, SRAM and DSPs, fed by DMA engines.

Like a row of identical kitchens (the tiles), each with a big stove (the DPU), two cooks for what the stove
cannot do (the DSPs) and a larder (the SRAM), and one pair of porters (the DMA engines) who carry everything
from the cellar.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import model_validator

from npusim.arch.device import DeviceName
from npusim.arch.dma_model import DmaModel
from npusim.arch.dpu import Dpu
from npusim.arch.dsp_model import DspGeneration, DspKernel, library_generation
from npusim.config import Section
from npusim.errors import nearest
from npusim.locate import resource_names
from npusim.units import (
    Bytes,
    BytesOrZero,
    BytesPerCycle,
    Duration,
    ElementsPerCycle,
    Frequency,
    PositiveCount,
    PositiveFraction,
    Power,
    Voltage,
    refuse,
)

__all__ = ["Dma", "Dsp", "Npu", "NpuPoint", "NpuPower", "PerHint", "Schedule", "Sparsity", "Sram", "Symg"]


class PerHint(Section):
    """A number by OpenVINO's performance hint."""

    latency: PositiveCount
    """With `--hint latency`."""
    throughput: PositiveCount
    """With `--hint throughput`."""


class NpuPoint(Section):
    """Clocks and voltage an NPU can run at."""

    dpu_clock: Frequency
    """Clock of the MAC grid."""
    vpu_clock: Frequency
    """Clock of DSPs, SRAM and DMA."""
    voltage: Voltage
    """Supply voltage."""


class Dsp(Section):
    """The vector processors (Intel: SHAVE) that run what the grid cannot."""

    per_tile: PositiveCount
    """DSPs in a tile."""
    lanes: dict[Literal["fp16", "fp32", "int8"], ElementsPerCycle]
    """Elements a vector instruction works on, by format."""
    kernel_generation: str
    """Which set of kernels the compiler uses: one of `kernels`, or of the library."""
    library: str
    """Folder of `configs/dsp` with further generations, such as npu4000."""
    kernels: dict[str, DspGeneration]
    """Generations by name, numbers and all."""

    @model_validator(mode="after")
    def _generation_exists(self) -> "Dsp":
        known = sorted({*self.kernels, *resource_names(f"configs/dsp/{self.library}", ".yaml")})
        _require_name(self.kernel_generation, known, "kernel_generation")
        return self

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
        """Return (generation, its data, kernel) for a kernel's name, through the chain of fallbacks; None
        where nobody has it.
        """
        seen: list[str] = []
        wanted: str | None = self.kernel_generation
        while wanted is not None and wanted not in seen:
            seen.append(wanted)
            generation = self.generation(wanted)
            if name in generation.kernels:
                return wanted, generation, generation.kernels[name]
            wanted = generation.fallback
        return None


class Sram(Section):
    """The SRAM (Intel: CMX) of one tile."""

    per_tile: Bytes
    """Bytes of a tile that tensors may use."""
    reserved: BytesOrZero
    """Bytes of a tile that firmware keeps; they count for area only."""
    word: Bytes
    """Bytes of one word: reads and writes are whole words."""
    read_ports: PositiveCount
    """Words the DPU can read in a cycle."""


class Dma(Section):
    """The engines that move data between DRAM and the SRAM of the tiles."""

    engines: PositiveCount
    """Engines that work at the same time and share the DRAM."""
    width: BytesPerCycle
    """Bytes an engine moves in a cycle of the VPU clock, at most."""
    model: DmaModel
    """Fitted parameters by direction."""


class Schedule(Section):
    """How the compiler cuts what no search decides."""

    stream_pieces: PositiveCount
    """Pieces that an operator without a reduction over channels is cut into, so that DMA and work overlap."""


class Sparsity(Section):
    """What the hardware can do with zeros (storage: a bitmap of one bit an element, and the non-zeros)."""

    decompress_weights: bool
    """Whether DMA and grid accept a compressed weight operand."""
    decompress_activations: bool
    """Whether DMA can bring in a compressed activation operand."""
    skip_weights: bool
    """Whether the grid skips zeros of the weight operand."""
    skip_activations: bool
    """Whether the grid skips zeros of the activation operand."""


class Symg(Section):
    """What the hardware would do with a matrix stored as a triangle."""

    transposed_read_rate: PositiveFraction
    """Rate at which a block is read transposed from SRAM, relative to reading it straight."""


class NpuPower(Section):
    """Power that does not depend on the work done; the work itself is priced by the technology."""

    idle: Power
    """Power drawn while the NPU is powered and has nothing to do, beyond leakage."""
    active: Power
    """Further power of fabric, controller and clock tree while an inference is in progress."""


class Npu(Section):
    """A neural processing unit of the DPU family."""

    kind: Literal["npu"]
    """Kind of device: npu."""
    title: str
    """Commercial name of the part."""
    architecture: str
    """Generation: npu3720, npu4000, or a name of one's own."""
    tiles: PositiveCount
    """Tiles on the chip."""
    tiles_for: PerHint
    """Tiles a network is compiled for, by performance hint; never more than `tiles`."""
    inflight_requests: PerHint
    """Inferences in flight, by performance hint."""
    launch_overhead: Duration
    """Fixed time of one inference: driver, command queue, interrupt. Hidden where several are in flight."""
    vpu_clock: Frequency
    """Clock of DSPs, SRAM and DMA engines."""
    voltage: Voltage
    """Supply voltage at these clocks; dynamic energy goes with its square."""
    operating_points: dict[DeviceName, NpuPoint]
    """Named clocks and voltages; `npu.operating_point=NAME` sets all three."""
    dpu: Dpu
    """The MAC grid of a tile."""
    dsp: Dsp
    """The DSPs of a tile."""
    sram: Sram
    """The SRAM of a tile."""
    dma: Dma
    """The DMA engines of the NPU."""
    schedule: Schedule
    """How the compiler cuts work."""
    sparsity: Sparsity
    """Which operands may be compressed, and whose zeros are skipped."""
    symg: Symg
    """Assumptions about SymG, which no hardware does yet."""
    power: NpuPower
    """Power beside that of the work."""

    def tiles_used(self, hint: Literal["latency", "throughput"]) -> int:
        """Return the tiles a network is compiled for: those of `tiles_for`, as far as the chip has them."""
        return min(int(getattr(self.tiles_for, hint)), int(self.tiles))

    def peak_macs_per_s(self, dtype: str, tiles: int | None = None) -> float:
        """Return the multiply-accumulates a second of the grid in a format, on all tiles or on some.

        Raises
        ------
        UnknownNameError
            Where the grid has no rate for the format.
        """
        return self.dpu.macs_per_cycle(dtype) * (self.tiles if tiles is None else tiles) * self.dpu.clock

    def sram_bytes(self, tiles: int | None = None) -> float:
        """Return the bytes of SRAM that tensors may use, on all tiles or on some."""
        return self.sram.per_tile * (self.tiles if tiles is None else tiles)

    def dma_peak_bytes_per_s(self) -> float:
        """Return the bytes a second all engines could move by width and clock alone."""
        return self.dma.engines * self.dma.width * self.vpu_clock


def _require_name(name: str, names: Iterable[str], key: str) -> None:
    known = list(names)
    if name not in known:
        refuse(f"`{name}`", f"one of {', '.join(known)}", nearest(name, known), at=key)
