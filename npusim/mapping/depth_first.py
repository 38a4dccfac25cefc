"""Depth-first fusion: which runs of layers on images are fused into segments.

A *run* is a chain of operators of the MAC grid on one image, each the only reader of the result before.
Operators of DSPs, DMA and hosts end it, and so do transposed convolutions, global poolings and groups of
channels. A result that two operators read (a residual) cuts: it waits in DRAM or as a whole in SRAM, and is
read from there at the sum. A run is cut into segments (`npusim.cost.lowering.bands`) of at most
`_MOST_LAYERS` operators. In a segment the bands, the line buffers and all weights take at most a limit of
SRAM, as if `_TILES` tiles divided the bands; bands are as high as the limit allows. Dynamic programming over
the run finds the cuts that move the fewest bytes over DRAM: exact for a limit. Limits fall by `_LIMIT_STEP`,
whatever the machine; the kernel compares the plans. So more SRAM allows more plans, and with fusion no
network is slower than without.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from npusim.arch import Soc
from npusim.cost import DpuOperation, Fusion, Group, Roots, Unit, band_bytes, execution_of
from npusim.graph import Graph
from npusim.mapping.fusion import Handover, handovers
from npusim.ops import Family, Storage, TensorKind

_MOST_LAYERS = 32
# Axes of an image [N, C, H, W].
_IMAGE = 4
# Rows of a band of the lowest image of a segment.
_BAND_ROWS = (64, 32, 16, 8, 4, 2, 1)
_TILES = 4.0
_LIMIT_STEP, _MOST_LIMITS = 2.0**0.5, 20
_WEIGHED = (DpuOperation.CONVOLUTION, DpuOperation.DEPTHWISE)
_IN_BANDS = (*_WEIGHED, DpuOperation.MAXPOOL, DpuOperation.AVGPOOL, DpuOperation.ELTWISE)


class Layer(NamedTuple):
    """An operator that can run in bands."""

    result: str
    result_bytes: float
    rows: int
    """Rows of its image."""
    weight_bytes: float


class Segment(NamedTuple):
    """Layers `first` to `last` of a run in so many bands."""

    first: int
    last: int
    bands: int
    needed_bytes: float
    """SRAM of a tile."""


class Run:
    """A chain of layers, each of which alone reads the result of the one before."""

    def __init__(self, graph: Graph, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self._graph = graph
        self._passed: dict[int, list[float]] = {}
        # Segments that end at each layer, by first layer and number of bands.
        self.segments = [list(self._ending_at(last)) for last in range(len(layers))]

    def _ending_at(self, last: int) -> Iterator[Segment]:
        rows, weight_bytes = self.layers[last].rows, self.layers[last].weight_bytes
        for first in range(last - 1, max(-1, last - _MOST_LAYERS), -1):
            rows = min(rows, self.layers[first].rows)
            weight_bytes += self.layers[first].weight_bytes
            for bands in dict.fromkeys(ceil(rows / high) for high in _BAND_ROWS if high < rows):
                passed = self._passed_bytes(bands)
                needed = weight_bytes + passed[last] - passed[first]
                yield Segment(first, last, bands, needed)

    def _passed_bytes(self, bands: int) -> list[float]:
        """Return the SRAM of a tile for the results before each layer in bands, from the run's start on."""
        if bands not in self._passed:
            total, totals = 0.0, [0.0]
            for layer in self.layers[:-1]:
                size = band_bytes(self._graph, layer.result, bands)
                total += size.copied + size.spread / _TILES
                totals.append(total)
            self._passed[bands] = totals
        return self._passed[bands]

    def cut(self, limit_bytes: float, whole: Collection[str]) -> list[tuple[str, int]]:
        """Return the results that pass in bands, with the number of bands.

        Among cuts within a limit of SRAM these move the fewest bytes over DRAM; then they have the fewest
        bands. Results that stay `whole` in SRAM cost nothing, and end a segment.
        """
        moved = [0.0 if layer.result in whole else layer.result_bytes for layer in self.layers]
        # Bytes, bands and segments up to each layer.
        best: list[tuple[float, int, list[Segment]]] = [(0.0, 0, [])]
        for last in range(len(self.layers)):
            single = Segment(last, last, 0, 0.0)
            options = []
            for segment in (single, *self.segments[last]):
                first = segment.first
                is_cut = any(self.layers[i].result in whole for i in range(first, last))
                if segment.needed_bytes <= limit_bytes and not is_cut:
                    before_bytes, bands, before = best[first]
                    cut_bytes = moved[first - 1] if first else 0.0
                    bands += segment.bands * (last - first + 1)
                    options.append((before_bytes + cut_bytes, bands, [*before, segment]))
            best.append(min(options, key=lambda option: option[:2]))
        return [
            (layer.result, segment.bands)
            for segment in best[-1][2]
            for layer in self.layers[segment.first : segment.last]
        ]


def runs(graph: Graph, groups: tuple[Group, ...], root: Roots, soc: Soc) -> list[Run]:
    """Return the runs of two or more layers on NPUs whose compiler fuses depth-first."""
    layers = {group.main: layer for group in groups if (layer := _layer(graph, group, soc)) is not None}
    reader_of: dict[str, str] = {}
    maker_of: dict[str, str] = {}
    for passed in handovers(graph, groups, root):
        maker, reader = passed.maker.main, passed.reader.main
        if maker in layers and reader in layers and _reads_in_bands(graph, passed):
            if reader in maker_of:  # of two images that are summed, the later one passes in bands
                del reader_of[maker_of[reader]]
            maker_of[reader], reader_of[maker] = maker, reader
    chains = []
    for name in layers:
        if name in reader_of and name not in maker_of:
            chain = [name]
            while chain[-1] in reader_of:
                chain.append(reader_of[chain[-1]])
            chains.append(Run(graph, [layers[member] for member in chain]))
    return chains


def _layer(graph: Graph, group: Group, soc: Soc) -> Layer | None:
    """Return a group as a layer; None where it cannot run in bands."""
    if group.unit is not Unit.DPU:
        return None
    npu = soc.array_devices[group.device]
    op, result = graph.operators[group.main], graph.tensors[graph.operators[group.members[-1]].outputs[0]]
    operation, work = execution_of(op.traits).dpu, graph.work(op)
    is_image = len(result.shape) == _IMAGE and result.shape[0] == 1 and result.storage is Storage.DENSE
    if not (npu.schedule.depth_first and npu.sram.holds_results and is_image and operation in _IN_BANDS):
        return None
    if op.repeats > 1 or work.batch != 1 or op.family is Family.CONVERT:
        return None
    rows, weight_bytes = result.shape[2], 0.0
    # Windows of a transposed convolution are those of an enlarged image.
    is_strided = work.out_h == rows and (work.out_h - 1) * work.stride_h < work.in_h
    if operation is not DpuOperation.ELTWISE and not is_strided:
        return None
    if operation in _WEIGHED:
        weights = graph.tensors[op.inputs[1]]
        weight_bytes = float(weights.bytes)
        if weights.kind is not TensorKind.CONSTANT:
            return None
    return Layer(result.name, float(result.bytes), rows, weight_bytes)


def _reads_in_bands(graph: Graph, passed: Handover) -> bool:
    """Return whether a layer reads an image, and no view of it, as the operand that passes in bands."""
    op, image = graph.operators[passed.reader.main], graph.tensors[passed.stored]
    if passed.seen_as != passed.stored or len(graph.readers(passed.stored)) > 1:
        return False
    if execution_of(op.traits).dpu is DpuOperation.ELTWISE:
        return passed.stored in op.inputs and graph.tensors[op.outputs[0]].shape == image.shape
    return op.inputs[0] == passed.stored and passed.stored not in op.inputs[1:]


def segmentations(
    graph: Graph,
    groups: tuple[Group, ...],
    root: Roots,
    soc: Soc,
    row_fused: frozenset[str],
    wholes: Sequence[frozenset[str]],
) -> list[tuple[Fusion, list[frozenset[str]]]]:
    """Return the fusions worth costing, each with the sets of whole tensors that it was cut for.

    Parameters
    ----------
    row_fused : frozenset of str
        Tensors that pass in blocks of rows; those next to a segment do not.
    wholes : sequence of frozenset of str
        Sets of tensors that may stay in SRAM as a whole.
    """
    chains = runs(graph, groups, root, soc)
    needs = [segment.needed_bytes for run in chains for ends in run.segments for segment in ends]
    limits = [max(needs, default=0.0) / _LIMIT_STEP**i for i in range(_MOST_LIMITS)]
    kept_by: dict[tuple[tuple[str, int], ...], list[frozenset[str]]] = {}
    for limit_bytes in (limit for limit in limits if limit >= min(needs, default=0.0)):
        for whole in wholes:
            bands = {name: count for run in chains for name, count in run.cut(limit_bytes, whole)}
            if bands:
                kept_by.setdefault(tuple(bands.items()), []).append(whole)
    fusions = []
    for pairs, kept in kept_by.items():
        bands, next_to = dict(pairs), set[str]()
        for group in groups if row_fused else ():
            ops = [graph.operators[name] for name in group.members]
            touched = {tensor for op in ops for tensor in (*op.inputs, *op.outputs)}
            next_to |= touched if not bands.keys().isdisjoint(touched) else set()
        rows = row_fused - next_to
        fusions.append(
            (Fusion(rows, bands), list(dict.fromkeys(whole.difference(bands, rows) for whole in kept)))
        )
    return fusions
