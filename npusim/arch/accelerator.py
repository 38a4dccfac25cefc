"""Accelerators: array devices by first principles, where an NPU has fitted numbers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from npusim.arch.array import ArrayShape
from npusim.arch.device import DeviceName, FusedOpName, OpName, PerHint
from npusim.arch.dpu import Dpu, DpuMode, DpuModel, EnergyFactors, Grid
from npusim.arch.dsp import Dsp
from npusim.arch.npu import Dma, DmaModel, Npu, NpuPoint, Sparsity, Symg
from npusim.units import Count, TileCount, refuse

_ON_ARRAY = ("matmul", "convolution", "groupconvolution", "convolutionbackpropdata")


def _absent(value: Any) -> dict[str, Any]:
    """Return a number of a data sheet that leaves it out: what an array without fitted parts has."""
    return {"value": value, "source": "absent"}


def _all(value: Any, *names: str) -> dict[str, Any]:
    return dict.fromkeys(names, _absent(value))


_ONE_MODE = DpuMode.model_validate(_all(1, "groups_w", "groups_h", "groups_c"))


class ArrayUnit(Dpu):
    """A MAC array with its dataflow; no part of it is fitted."""

    array: ArrayShape
    """Axes of PEs, how operands reach them, and the memories between them and SRAM. `macs_per_mpe` are the
    multiply-accumulates of a PE."""
    grid: Grid = Grid.model_validate(_all(4, "vpe", "mpe") | _all("4 B", "accumulator"))
    """Groups that work is dealt out in where it is shared or fused by rows; bytes of a partial sum."""
    modes: dict[str, DpuMode] = Field(default_factory=lambda: {"array": _ONE_MODE})
    """An array has no stencils."""
    eltwise_ops: list[OpName] = Field(default_factory=list)
    """Elementwise operators that it runs by itself: none."""
    fused_ops: list[FusedOpName] = Field(default_factory=list)
    """What is applied to an output on its way to SRAM for nothing."""
    energy_factors: EnergyFactors = EnergyFactors.model_validate(_all(1.0, *EnergyFactors.model_fields))
    """Energy of a multiply-accumulate of depthwise work, relative to a convolution's."""
    model: DpuModel | None = None  # type: ignore[assignment]  # an NPU has one
    """None: nothing is fitted."""

    @model_validator(mode="after")
    def _nothing_of_the_grid(self) -> ArrayUnit:
        if self.dataflow == "grid":
            refuse("`grid`", "a dataflow of configs/dataflows.yaml, or one in place", at="dataflow")
        if self.model is not None:
            refuse("fitted parameters", "nothing: they are of an NPU's grid", at="model")
        if self.eltwise_ops:
            refuse(", ".join(self.eltwise_ops), "nothing: vector units run them", at="eltwise_ops")
        return self


class PlainDma(Dma):
    """Engines that move data at their width, as far as DRAM lets them."""

    model: DmaModel = DmaModel.model_validate(
        _all(1.0, "ddr2cmx_share", "cmx2ddr_share", "cmx2cmx_share")
        | _all("0 s", "dram_read_latency_s", "dram_write_latency_s", "page_walk_s")
        | _all("0 cycle", "start_cycles")
        | _all("0 cycle", "ddr2cmx_row_cycles", "cmx2ddr_row_cycles", "cmx2cmx_row_cycles")
        | _all("1e12 B", "page_bytes")
        | _all("0 B", "copy_buffer_bytes")
    )
    """Parameters by direction. Absent: no latency, no gaps, the full width."""


_NO_KERNELS = {"title": "no vector units", "reference_lanes": _absent(1), "kernels": {"unknown": {}}}
_NO_VECTOR_UNITS = {
    "per_tile": _absent(1),
    "lanes": {"fp16": _absent("1 element/cycle")},
    "kernel_generation": "none",
    "kernels": {"none": _NO_KERNELS},
}


class Accelerator(Npu):
    """A fixed-function accelerator: MAC array, SRAM, engines to DRAM, vector units if it has any."""

    kind: Literal["accelerator"]  # type: ignore[assignment]  # a kind of its own
    """Kind of device: accelerator."""
    architecture: str = "accelerator"
    """Generation, where there are several."""
    tiles: TileCount = Count(1, source="absent")
    """Arrays with SRAM of their own."""
    inflight_requests: PerHint = PerHint.model_validate(_all(1, "latency", "throughput"))
    """Inferences in flight, by performance hint."""
    operating_points: dict[DeviceName, NpuPoint] = Field(default_factory=dict)
    """Named clocks and voltages."""
    ops: list[OpName] | None = Field(default=None, min_length=1)
    """Operator types it runs. None: all, which takes vector units."""
    dpu: ArrayUnit
    """The MAC array."""
    dsp: Dsp = Dsp.model_validate(_NO_VECTOR_UNITS)
    """Vector units for what the array cannot do. Absent: there are none."""
    dma: PlainDma
    """Engines between DRAM and SRAM."""
    sparsity: Sparsity = Sparsity.model_validate(dict.fromkeys(Sparsity.model_fields, False))
    """Which operands may be compressed, and whose zeros are skipped: none."""
    symg: Symg = Symg.model_validate(_all(1.0, "transposed_read_rate"))
    """Assumptions about SymG."""

    @model_validator(mode="before")
    @classmethod
    def _tiles_are_there(cls, data: Any) -> Any:
        return data if not isinstance(data, dict) or "tiles" in data else data | {"tiles": _absent(1)}

    @property
    def has_vector_units(self) -> bool:
        """Whether it has units for what the array cannot do."""
        return self.dsp.kernel_generation != "none"

    @model_validator(mode="after")
    def _somebody_runs_the_rest(self) -> Accelerator:
        own = {*_ON_ARRAY, *self.dpu.fused_ops}
        if self.has_vector_units:
            return self
        if self.ops is None:
            refuse("nothing", f"the operator types it runs, some of {', '.join(sorted(own))}", at="ops")
        for name in self.ops:
            if name not in own:
                allowed = f"what the array runs or fuses ({', '.join(sorted(own))}), or vector units (`dsp`)"
                refuse(f"`{name}`, which needs vector units", allowed, at="ops")
        return self
