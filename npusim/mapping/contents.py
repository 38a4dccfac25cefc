"""What lies in the NPU's SRAM operator by operator: tensors that stay, and each operator's own tiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npusim.cost import Decisions, Liveness, Residency
from npusim.mapping.mapped import Mapped

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class SramContents:
    """Bytes in the SRAM of all tiles that an inference uses, while each operator of the NPU runs."""

    operators: tuple[str, ...]
    """Operators of the NPU in the order of execution."""
    tensors: dict[str, Any]
    """Bytes of the largest tensors that stay in SRAM: float64 arrays, shape (operators,)."""
    others: Any
    """Bytes of all other tensors that stay, of row blocks and of weights that wait for the next rows."""
    working: Any
    """Bytes of the operator's own tiles, both buffers."""
    capacity_bytes: float
    """SRAM of the tiles in use."""


def sram_contents(mapped: Mapped) -> SramContents:
    """Return what lies in SRAM while each operator of the NPU runs; the largest sum is the SRAM peak."""
    ops, arch = mapped.lowered.ops, mapped.npu
    on_npu = [i for i, g in enumerate(mapped.decisions.groups) if g.unit.is_array]
    tiles = float(arch["tiles"])
    live = (ops["live_spread_bytes"] + tiles * ops["live_copied_bytes"])[on_npu]
    peak = mapped.results["sram_peak_bytes"][on_npu]
    held = {name: bytes_at for name, bytes_at in _held(mapped, on_npu, tiles).items() if bytes_at.any()}
    largest = sorted(held, key=lambda name: -float(held[name].max()))[:_MOST_NAMED]
    named = {name: held[name] for name in held if name in largest}
    return SramContents(
        tuple(mapped.decisions.groups[i].main for i in on_npu),
        named,
        np.maximum(0.0, live - sum(named.values())),
        np.maximum(0.0, peak - live),
        tiles * float(arch["sram_tile_bytes"]),
    )


def _held(mapped: Mapped, on_npu: list[int], tiles: float) -> dict[str, Any]:
    """Return the bytes of each tensor that stays, by asking what is live with it alone."""
    residency = mapped.decisions.residency

    def live(kept: Residency) -> Any:
        alone = Liveness(mapped.graph, Decisions(mapped.decisions.groups, kept), mapped.soc)
        spread, copied = np.array([alone.bytes_at(i) for i in on_npu]).T.reshape(2, -1)
        return spread + tiles * copied

    row_fused = residency.row_fused
    without = live(Residency(row_fused=row_fused))
    sizes = {name: mapped.graph.tensors[name].bytes for name in (*residency.whole, *residency.cached)}
    largest = sorted(sizes, key=lambda name: (-sizes[name], name))[: 3 * _MOST_NAMED]
    alone = {
        name: Residency(frozenset({name}), row_fused=row_fused)
        if name in residency.whole
        else Residency(cached={name: residency.cached[name]}, row_fused=row_fused)
        for name in largest
    }
    return {name: np.maximum(0.0, live(kept) - without) for name, kept in alone.items()}
