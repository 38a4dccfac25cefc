"""Check of lab 9: area, frames per second and energy of a design, and that it is minimal."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

import npusim

Tiles = Annotated[int, Field(ge=1, le=64)]
Sram = Annotated[float, Field(ge=0.1, le=64)]
Clock = Annotated[float, Field(ge=0.1, le=2.6)]
LEAST_FRAMES = 60.0


def _cost(tiles: int, sram_mb: float, clock_ghz: float) -> npusim.Estimate:
    settings = {
        "dram.bandwidth": "4GB/s",
        "npu.tiles": tiles,
        "npu.sram.per_tile": f"{sram_mb:g} MB",
        "npu.dpu.clock": f"{clock_ghz:g}GHz",
    }
    return npusim.estimate("yolov8n", settings=settings, interval=False)


def _limits(cost: npusim.Estimate, most_mm2: float, most_mj: float) -> Iterator[tuple[bool, str, str]]:
    area, frames, energy = cost.area_mm2 or 0.0, 1 / cost.latency_s, 1e3 * cost.energy_j
    yield area < most_mm2, f"{area:.2f} mm2 are less than {most_mm2:g}", "fewer tiles, or less SRAM"
    hint = "more SRAM keeps results from DRAM"
    if cost.dram.refetched_bytes + cost.dram.spilled_bytes < 0.2 * cost.dram_bytes:
        hint = "a faster clock, or more tiles: hardly any byte is left to save"
    yield frames >= LEAST_FRAMES, f"{frames:.1f} frames per second, at least 60", hint
    hint = "a byte from DRAM costs far more than a MAC: is something spilled? Is the clock needed?"
    yield energy <= most_mj, f"{energy:.1f} mJ a frame, at most {most_mj:g}", hint


def check_design(tiles: Tiles, sram_mb: Sram, clock_ghz: Clock) -> Iterator[tuple[bool, str, str]]:
    yield from _limits(_cost(tiles, sram_mb, clock_ghz), 10, 10)


def check_small(
    small_tiles: Tiles, small_sram_mb: Sram, small_clock_ghz: Clock
) -> Iterator[tuple[bool, str, str]]:
    yield from _limits(_cost(small_tiles, small_sram_mb, small_clock_ghz), 5, 25)
    neighbours = {
        "one tile less": (small_tiles - 1, small_sram_mb),
        "0.25 MB less": (small_tiles, small_sram_mb - 0.25),
    }
    for name, (tiles, sram_mb) in neighbours.items():
        is_design = tiles >= 1 and sram_mb >= 0.1
        fits = is_design and all(
            holds for holds, _, _ in _limits(_cost(tiles, sram_mb, small_clock_ghz), 5, 25)
        )
        yield not fits, f"with {name} it misses a limit", f"{name} meets all limits, too: take it"
