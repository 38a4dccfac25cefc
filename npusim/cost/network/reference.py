"""The laws of cost in plain Python: needs of each resource, reduced to seconds and joules.

The compiled kernels state the same laws over tables of design points. `tests/test_reference.py` compares
both, so a change here makes that test fail. Needs and unit costs are by the names of
`npusim.cost.units.resources.RESOURCES`.

    reduction of an operator    needs x seconds per unit -> time of each server -> the law of overlap
    reduction of a network      one operator after the other, a row-wise fusion as one
    energy                      needs x joules per unit, static power while devices work, idle power always
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from npusim.cost.units.resources import LEVELS, RESOURCES


class UnitCosts(NamedTuple):
    """What a unit of each resource takes on an array device, and its waits."""

    seconds: Mapping[str, float]
    """Seconds per unit; of a byte that a memory level supplies, those of the level."""
    joules: Mapping[str, float]
    """Joules per unit, besides those of the bytes that a unit moves in SRAM and DRAM."""
    sram_j_per_byte: float
    dram_j_per_byte: float
    static_w: float
    """Power beyond idle power while it works."""
    read_wait_s: float
    """Wait for the first byte from DRAM."""
    write_wait_s: float
    page_walk_s: float
    buffer_bytes: float
    """Copied bytes that the buffers of the DMA engines take at `quick_copy_s` each."""
    quick_copy_s: float
    stream_pieces: float
    """Blocks of rows in which the operators of a row-wise fusion hand on a tensor."""


class Needs(NamedTuple):
    """What one run of an operator needs under its mapping."""

    amounts: Mapping[str, float]
    """Units of each resource."""
    dsp_s: float
    """Time of the DSPs, by their kernel."""
    first_bytes: float
    """The first piece in, before any work."""
    known_bytes: float
    """Part of it that exists before the inference."""
    last_bytes: float
    """The last piece out, after all work."""
    refills: float
    """How often the streamed operand fills its free SRAM."""
    page_walks: float
    restarts: float
    """Blocks of a single-buffered operand after the first."""
    first_wait_s: float
    """Wait for the first byte of all operands, and for the write of the result."""
    calls_s: float
    """Calls of the NPU's management processor."""
    repeats: float = 1.0


class Times(NamedTuple):
    """Seconds of an operator, or sums over a row-wise fusion."""

    grid_s: float
    dsp_s: float
    dma_s: float
    exposed_s: float
    """First piece in and last piece out, which overlap with no work."""
    refill_wait_s: float
    pauses_s: float

    @property
    def overlapped_s(self) -> float:
        """The law of overlap.

        Work waits for the first piece, and the last result is written after it. The DMA engines carry all
        pieces. Two buffers share the free SRAM: each is in use while its piece is awaited, fetched and
        processed.
        """
        work_s = max(self.grid_s, self.dsp_s)
        return max(work_s + self.exposed_s, self.dma_s, (work_s + self.dma_s) / 2.0 + self.refill_wait_s)


def transfer_s(amounts: Mapping[str, float], costs: UnitCosts) -> float:
    """Return the time of all transfers of an operator (s).

    A byte passes through the memory that supplies it and through each memory level inside that one. All of
    them transfer at the same time, so the busiest counts. Copies and gaps between rows come in addition.
    """
    seconds, read, written = costs.seconds, amounts["read_bytes"], amounts["written_bytes"]
    busiest_s = read * seconds["read_bytes"] + written * seconds["written_bytes"]
    for level in reversed(range(LEVELS)):
        own_read, own_written = amounts[f"level{level}_read_bytes"], amounts[f"level{level}_written_bytes"]
        read, written = read + own_read, written + own_written
        if own_read + own_written > 0.0:
            level_s = read * seconds[f"level{level}_read_bytes"]
            busiest_s = max(busiest_s, level_s + written * seconds[f"level{level}_written_bytes"])
    quick = min(amounts["copied_bytes"], costs.buffer_bytes)
    copies_s = quick * costs.quick_copy_s + (amounts["copied_bytes"] - quick) * seconds["copied_bytes"]
    return busiest_s + copies_s + amounts["read_gaps"] * seconds["read_gaps"]


def times_of(needs: Needs, costs: UnitCosts, is_fused: bool = False) -> Times:
    """Return the times of one run of an operator; weights of a fused one come in while others work."""
    seconds = costs.seconds
    first_bytes = needs.first_bytes - (needs.known_bytes if is_fused else 0.0)
    restart_s = costs.read_wait_s + costs.write_wait_s
    return Times(
        grid_s=needs.amounts["grid_cycles"] * seconds["grid_cycles"],
        dsp_s=needs.dsp_s,
        dma_s=transfer_s(needs.amounts, costs),
        exposed_s=first_bytes * seconds["read_bytes"] + needs.last_bytes * seconds["written_bytes"],
        refill_wait_s=needs.refills * costs.read_wait_s,
        pauses_s=needs.page_walks * costs.page_walk_s + needs.restarts * restart_s,
    )


def operator_s(needs: Needs, costs: UnitCosts) -> float:
    """Return the latency of an operator that works alone, over all its runs (s)."""
    times = times_of(needs, costs)
    return needs.repeats * (times.overlapped_s + times.pauses_s + needs.first_wait_s + needs.calls_s)


def fusion_s(fused: Sequence[Needs], costs: UnitCosts) -> float:
    """Return the latency of operators that hand on blocks of rows (s): they work at the same time.

    Filling the pipeline takes longer: the first block of rows passes through all operators in turn.
    """
    each = [[each.repeats * time_s for time_s in times_of(each, costs, is_fused=True)] for each in fused]
    together = Times(*(sum(column) for column in zip(*each, strict=True)))
    apart_s = sum(needs.repeats * times_of(needs, costs).overlapped_s for needs in fused)
    filling_s = (apart_s - together.overlapped_s) / costs.stream_pieces
    waits_s = sum(needs.repeats * (needs.first_wait_s + needs.calls_s) for needs in fused)
    return together.overlapped_s + filling_s + together.pauses_s + waits_s


def operator_j(needs: Needs, costs: UnitCosts) -> float:
    """Return the dynamic energy of an operator over all its runs (J)."""
    joules = 0.0
    for resource in RESOURCES:
        moved_in_sram = resource.sram_reads + resource.sram_writes
        unit_j = costs.joules.get(resource.name, 0.0)
        unit_j += moved_in_sram * costs.sram_j_per_byte + resource.dram * costs.dram_j_per_byte
        joules += needs.amounts.get(resource.name, 0.0) * unit_j
    return needs.repeats * joules


def network(
    steps: Sequence[Sequence[Needs]], costs: UnitCosts, launches_s: float, idle_w: float
) -> tuple[float, float]:
    """Return latency (s) and energy (J) of a network on one array device, one inference after the other.

    A step is an operator, or several that are fused row by row.
    """
    work_s = sum(operator_s(step[0], costs) if len(step) == 1 else fusion_s(step, costs) for step in steps)
    latency_s = work_s + launches_s
    dynamic_j = sum(operator_j(needs, costs) for step in steps for needs in step)
    return latency_s, dynamic_j + costs.static_w * work_s + idle_w * latency_s
