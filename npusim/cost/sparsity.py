"""What zeros save on the MAC grid.

Each MAC unit holds a bitmap of the non-zero operands of its pixel and its output channel and skips what is
zero. But the units of a grid advance together: the next piece of input channels starts when the unit with the
most non-zeros is through. So the saving follows the *fullest* lane, not the mean; passing over empty steps
costs time too; and what the grid no longer computes it must still be fed (`npusim.cost.grid.area_cycles`).
That is why the speed-up saturates near 2.5 however empty the data are, and why few output channels (little
compute for each activation read) gain little.

Densities are shares of non-zero elements, 1 = dense. All functions are scalar equations.
"""

from __future__ import annotations

import numpy as np

from npusim.cost.architecture import ArchRecord
from npusim.cost.grid import DpuWorkload, SkippedShares
from npusim.cost.jit import compiled

DENSE, ACTIVATIONS, WEIGHTS, BOTH = 0, 1, 2, 3
"""Whose bitmaps the grid uses to skip zeros."""
SIDES = 4
"""Number of these choices."""

_FULLEST_OF_16 = 1.77
"""Expected maximum of 16 standard normal variables."""


@compiled
def independent_block_density(density: float, granule: float) -> float:
    """Share of granules that hold at least one non-zero when zeros fall independently.

    Returns
    -------
    float
        ``1 - (1 - density) ** granule``. For a real matrix count the granules instead: graphs are clustered,
        and the count lies well below this. Call it once when lowering, not in the hot loop (it needs a
        power).
    """
    return float(1.0 - (1.0 - density) ** granule)


@compiled
def lane_density(density: float, block_density: float, lanes: float, window: float) -> float:
    """Share of the dense steps that the fullest of several lanes keeps.

    A lane's window of ``window`` elements holds ``density * window`` non-zeros on average, with the spread of
    a binomial; the fullest of 16 lanes lies 1.77 spreads above, and ``sqrt(1 - 1/lanes)`` makes a single lane
    wait for nobody.

    Parameters
    ----------
    block_density : float
        Share of granules (all lanes x one window) that are not empty; 1 when unknown. Empty granules are
        skipped whole and the others are denser accordingly.
    window : float
        Elements of the reduction that a lane runs through before it waits (fitted).

    Returns
    -------
    float
        Between ``density`` and 1; 1 at density 1.
    """
    if density >= 1.0:
        return 1.0
    block = min(max(block_density, density, 1e-12), 1.0)
    inside = density / block
    variance = inside * (1.0 - inside) * (1.0 - 1.0 / lanes) / window
    return float(block * min(1.0, inside + _FULLEST_OF_16 * np.sqrt(variance)))


@compiled
def worth_trying(side: int, work: DpuWorkload) -> bool:
    """Whether a choice of bitmaps uses only operands that hold zeros."""
    uses_act = side in (ACTIVATIONS, BOTH)
    uses_weight = side in (WEIGHTS, BOTH)
    return (not uses_act or work.act_density < 1.0) and (not uses_weight or work.weight_density < 1.0)


@compiled
def skipped_shares(arch: ArchRecord, side: int, work: DpuWorkload) -> SkippedShares:
    """Return how zeros change a reduction.

    Parameters
    ----------
    side : int
        Bitmaps in use: ACTIVATIONS, WEIGHTS, BOTH, or DENSE for none. The compiler takes what pays.

    Notes
    -----
    One bitmap leads the skip: on silicon both sides sparse are barely faster than the better side
    (``silicon_sparsity.csv``, 16x16). Scanning the bitmap takes ``1 / dpu_sparse_skip_max`` of the dense time
    and each kept step restarts the pipeline for ``dpu_sparse_restart`` of a step. Weights lie compressed in
    SRAM (non-zeros plus one bit per element), so their feed shrinks (silicon, 8x16, both sides sparse);
    activations are read through a table of pointers at ``dpu_sparse_act_feed`` times the dense feed.
    """
    if side == DENSE:
        return SkippedShares(1.0, 1.0, 1.0, 0.0)
    lanes, window = arch.dpu_pixel_lanes_w * arch.dpu_pixel_lanes_h, arch.dpu_sparse_window_act
    act_lane = lane_density(work.act_density, work.act_block_density, lanes, window)
    lanes, window = arch.dpu_channel_lanes, arch.dpu_sparse_window_weight
    weight_lane = lane_density(work.weight_density, work.weight_block_density, lanes, window)
    lane = act_lane if side == ACTIVATIONS else weight_lane
    if side == BOTH:
        lane = min(act_lane, weight_lane)
    share = max(lane, 1.0 / arch.dpu_sparse_skip_max + arch.dpu_sparse_restart * lane)
    act_feed = 1.0 if side == WEIGHTS else arch.dpu_sparse_act_feed
    weight_feed = 1.0 if side == ACTIVATIONS else min(1.0, work.weight_density + 0.125 / work.weight_bytes)
    return SkippedShares(share, act_feed, weight_feed, arch.dpu_sparse_drain_exposed)
