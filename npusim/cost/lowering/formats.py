"""Formats and regular sparsity of operands of a MAC grid: computed format, rate, energy."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from npusim.arch import Dpu, Npu, Soc
from npusim.arch.dpu import SparseOperand, Widening
from npusim.cost.machine.architecture import MAC_FORMATS
from npusim.cost.machine.design_point import computed_in
from npusim.ops import Storage, Tensor
from npusim.ops.formats import FORMATS
from npusim.ops.sparsity import kept_share


class GridFormat(NamedTuple):
    """The format that a grid multiplies two operands in."""

    name: str
    """Format of the sheet that it computes in."""
    item_bytes: float
    """Width of an operand at the multipliers, one of those that the grid is built for (`MAC_FORMATS`)."""
    rate: float
    """Multiply-accumulates per cycle, relative to the sheet's of that width."""
    energy: float
    """Energy of a multiply-accumulate, relative to the sheet's of that width."""
    joules: float
    """Energy of a multiply-accumulate of that width (J); 0 where the sheet has none."""


def grid_format(operands: tuple[Tensor, ...], npu: Npu, soc: Soc) -> GridFormat:
    """Return the format of a product: the wider of those that its operands are computed in."""
    rates = npu.dpu.macs_per_mpe
    names = [computed_in(tensor.dtype, rates) for tensor in operands]
    name = max(names, key=lambda each: FORMATS[each].bits)
    joules = soc.technology.mac_energy if soc.technology is not None else {}
    if name in MAC_FORMATS:
        return GridFormat(name, FORMATS[name].bits / 8, 1.0, 1.0, joules.get(name, 0.0))
    widths = sorted((form for form in rates if form in MAC_FORMATS), key=lambda each: FORMATS[each].bits)
    base = next((form for form in widths if FORMATS[form].bits >= FORMATS[name].bits), widths[-1])
    base_j = joules.get(base, 0.0)
    energy = joules[name] / base_j if base_j else 1.0
    return GridFormat(name, FORMATS[base].bits / 8, float(rates[name]) / float(rates[base]), energy, base_j)


def is_plain(tensor: Tensor, computed: GridFormat, npu: Npu) -> bool:
    """Return whether the grid reads an operand as it is stored, not widened before."""
    form = FORMATS[tensor.dtype]
    widens = form.block > 1 or (form.computed_in and FORMATS[form.computed_in[0]].bits > form.bits)
    is_computed_so = computed.name == computed_in(tensor.dtype, npu.dpu.macs_per_mpe)
    return is_computed_so and computed.name in MAC_FORMATS and not widens


def widening(tensor: Tensor, computed: GridFormat, npu: Npu) -> Widening | None:
    """Return the cost of widening an operand; None where it is multiplied as stored, or none is said."""
    return None if tensor.dtype == computed.name else npu.dpu.widening.get(tensor.dtype)


def widening_j(uses: Sequence[Widening | None], channels: float, pixels: float, dpu: Dpu) -> float:
    """Return the energy (J) of widening activations and weights, per multiply-accumulate.

    A register tile reads (and widens) an activation once for all of its channels, a weight once for all of
    its pixels; register tiles are those of the first mode.
    """
    mode = next(iter(dpu.modes.values()))
    tile_channels = mode.groups_c * dpu.channel_lanes
    tile_pixels = mode.groups_w * mode.groups_h * int(dpu.grid.vpe) ** 2
    total_j = 0.0
    for use, size, tile_size in zip(uses, (channels, pixels), (tile_channels, tile_pixels), strict=True):
        total_j += 0.0 if use is None else float(use.energy) * math.ceil(size / tile_size) / size
    return total_j


def sparse_operand(tensor: Tensor, is_weight: bool, npu: Npu) -> SparseOperand | None:
    """Return what the grid does with the pattern of an operand; None where it has no use for it."""
    role = "weights" if is_weight else "inputs"
    if not tensor.pattern or tensor.storage is not Storage.ZVC:
        return None
    fitting = (each for each in npu.dpu.sparsity if (each.operand, each.structure) == (role, tensor.pattern))
    return next(fitting, None)


def cycles_and_energy_ratios(
    tensor: Tensor, is_weight: bool, npu: Npu, reduction: float
) -> tuple[float, float]:
    """Return the cycles and energy of a product over those of dense operands, by zeros of one operand.

    Gating saves the energy of its zeros alone. Skipping saves cycles too, but only what the pattern lets all
    lanes skip: the grid goes on when the lane with the most non-zeros is done.

    Parameters
    ----------
    reduction : float
        Multiply-accumulates of an element of the result.
    """
    use = sparse_operand(tensor, is_weight, npu)
    if use is None:
        return 1.0, 1.0
    if use.action == "gating":
        return 1.0, tensor.density
    # Each output channel has weights of its own, each pixel of a group of vpe x vpe inputs of its own.
    lockstep_lanes = npu.dpu.channel_lanes if is_weight else int(npu.dpu.grid.vpe) ** 2
    return kept_share(tensor.pattern, tensor.density, reduction, lockstep_lanes), tensor.density
