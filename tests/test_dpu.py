"""The MAC grid's equations: laws that hold whatever the numbers, their slow twin, and measured silicon."""

from types import SimpleNamespace
from typing import Any

import naive_dpu
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naive_dpu import DENSE
from naive_records import record

from npusim.arch import load_soc
from npusim.cost.machine.design_point import arch_row
from npusim.cost.units.grid import (
    DpuWorkload,
    conv_cycles,
    depthwise_cycles,
    eltwise_cycles,
    lane_density,
    matmul_cycles,
    matmul_mode_cycles,
    maxpool_cycles,
    mode_shape,
)

SOCS = {"npu3720": "core-ultra-series1", "npu4000": "core-ultra-series2"}
MACHINES = {npu: arch_row(load_soc(soc), 1, 1, "latency")["npu"] for npu, soc in SOCS.items()}
ROUNDING = 1e-9

npus = st.sampled_from(sorted(MACHINES))
modes = st.integers(0, 2)
items = st.sampled_from([1.0, 2.0])
write_tiles = st.sampled_from([1.0, 4.0])
densities = st.one_of(st.just(1.0), st.just(0.0), st.floats(0, 1))


def sizes(most: int) -> st.SearchStrategy[float]:
    """Whole sizes, those around the grid's steps more often."""
    steps = [n for n in (1, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1024) if n <= most]
    return st.one_of(st.sampled_from(steps), st.integers(1, most)).map(float)


zeros = st.tuples(densities, densities, densities, densities)
products = st.tuples(sizes(3000), sizes(3000), sizes(3000))
images = st.tuples(sizes(150), sizes(150), sizes(600))
kernels = st.tuples(sizes(7), sizes(7))
pads = st.tuples(st.integers(0, 3).map(float), st.integers(0, 3).map(float))


def but(arch: Any, **changes: float) -> Any:
    """The same machine with some columns multiplied."""
    other = arch.copy()
    for name, factor in changes.items():
        other[name] *= factor
    return other


def product_work(mkn: Any, item_bytes: Any, tiles: float, zeros: Any) -> DpuWorkload:
    m, k, n = mkn
    return DpuWorkload(
        m, 1.0, n, k, 1.0, 1.0, 1.0, 0.0, 0.0, *item_bytes, tiles, zeros[0], zeros[1], zeros[2], zeros[3]
    )


def channelwise_work(
    image: Any, kernel: Any, stride: float, pads: Any, item: float, tiles: float
) -> DpuWorkload:
    return DpuWorkload(*image, 1.0, *kernel, stride, *pads, item, 1.0, 1.0, tiles)


def product(arch: Any, mkn: tuple[float, ...], item: float, tiles: float = 1.0, zeros: Any = DENSE) -> float:
    return matmul_cycles(arch, product_work(mkn, (item, item, item), tiles, zeros))


@st.composite
def odd_machines(draw: st.DrawFn) -> Any:
    """A shipped machine, or one with lanes, modes and parameters that no data sheet has."""
    arch = MACHINES[draw(npus)].copy()
    odd = {
        "dpu_pixel_lanes_w": [2.0, 5.0],
        "dpu_pixel_lanes_h": [2.0, 3.0],
        "dpu_channel_lanes": [1.0, 25.0],
        "dpu_mac_bytes_per_cycle": [4.0, 32.0],
        "dpu_sram_word_bytes": [1.0, 64.0],
        "dpu_mode_w": [[3.0, 1.0, 5.0]],
        "dpu_mode_h": [[1.0, 2.0, 5.0]],
        "dpu_mode_c": [[1.0, 7.0, 3.0]],
        "dpu_slot_walk_cycles": [0.0, 3.0],
        "dpu_drain_bytes_per_port_cycle": [0.5],
        "dpu_row_reuse_channels": [0.0, 40.0],
        "dpu_row_reuse_kernel_w": [0.0, 5.0],
        "dpu_stride_conflict": [0.5],
        "dpu_padding_saving": [0.0, 1.0],
    }
    for name in draw(st.lists(st.sampled_from(sorted(odd)), max_size=4, unique=True)):
        arch[name] = draw(st.sampled_from(odd[name]))
    return arch


Rest = SimpleNamespace  # kernel, pads, item, mode, tiles: what else makes a convolution
rests = st.builds(Rest, kernel=kernels, pads=pads, item=items, mode=modes, tiles=write_tiles)


def convolution(arch: Any, image: Any, in_c: float, rest: Any, zeros: Any = DENSE) -> float:
    items = (rest.item, rest.item, rest.item)
    work = DpuWorkload(*image, in_c, *rest.kernel, 1.0, *rest.pads, *items, rest.tiles, *zeros)
    return conv_cycles(arch, work, rest.mode)


BETTER = (
    {"dpu_mac_bytes_per_cycle": 2.0},
    {"dpu_read_ports": 2.0},
    {"dpu_write_ports": 2.0},
    {"dpu_act_bytes_per_port_cycle": 1.3},
    {"dpu_weight_bytes_per_port_cycle": 1.3},
    {"dpu_drain_bytes_per_port_cycle": 1.3},
)
"""Changes that give the grid more of something."""


def test_one_port_feeds_the_weights_of_a_window_beyond_the_limit() -> None:
    """By hand: VGG's 7 x 7 x 512 on one pixel streams its weights; 3 x 3 x 512 does through all ports."""
    arch = MACHINES["npu3720"]
    port = float(arch["dpu_weight_bytes_per_port_cycle"])
    for kernel, in_c, ports in ((7.0, 512.0, 1.0), (3.0, 512.0, 8.0), (1.0, 32768.0, 8.0)):
        rest = Rest(kernel=(kernel, kernel), pads=(0.0, 0.0), item=2.0, mode=2, tiles=1.0)
        cycles = convolution(arch, (1.0, 1.0, 256.0), in_c, rest)
        weights = kernel * kernel * in_c * 256.0 * 2.0
        assert cycles == pytest.approx(weights / (port * ports), rel=0.15)


class TestGrowingWork:
    @given(npus, products, items, write_tiles, zeros)
    def test_a_product_that_grows_by_whole_grid_steps_is_never_faster(self, npu, mkn, item, tiles, zeros):
        arch = MACHINES[npu]
        before = product(arch, mkn, item, tiles, zeros)
        for step in ((16.0, 0.0, 0.0), (0.0, 8.0, 0.0), (0.0, 0.0, 16.0)):
            larger = tuple(a + b for a, b in zip(mkn, step, strict=True))
            assert product(arch, larger, item, tiles, zeros) >= before * (1 - ROUNDING), step

    @given(npus, images, sizes(600), rests, zeros)
    def test_a_convolution_that_grows_by_whole_grid_steps_is_never_faster(
        self, npu, image, in_c, rest, zeros
    ):
        arch = MACHINES[npu]
        before = convolution(arch, image, in_c, rest, zeros)
        for step in ((4.0, 0.0, 0.0, 0.0), (0.0, 4.0, 0.0, 0.0), (0.0, 0.0, 16.0, 0.0), (0.0, 0.0, 0.0, 8.0)):
            larger = [a + b for a, b in zip((*image, in_c), step, strict=True)]
            after = convolution(arch, larger[:3], larger[3], rest, zeros)
            assert after >= before * (1 - ROUNDING), step

    @given(npus, images, kernels, sizes(2), pads, items, write_tiles, modes)
    def test_channelwise_work_that_grows_is_never_faster(
        self, npu, image, kernel, stride, pads, item, tiles, mode
    ):
        arch = MACHINES[npu]
        pads = tuple(min(pad, kernel[1] - 1) for pad in pads)
        works = (
            lambda work: depthwise_cycles(arch, work),
            lambda work: maxpool_cycles(arch, work, mode),
            lambda work: eltwise_cycles(arch, work),
        )
        for cycles in works:
            before = cycles(channelwise_work(image, kernel, stride, pads, item, tiles)) * (1 - ROUNDING)
            for step in ((4.0, 0.0, 0.0), (0.0, 4.0, 0.0), (0.0, 0.0, 16.0)):
                larger = [a + b for a, b in zip(image, step, strict=True)]
                assert cycles(channelwise_work(larger, kernel, stride, pads, item, tiles)) >= before

    @given(npus, products, items, zeros)
    def test_writing_to_more_tiles_is_never_faster(self, npu, mkn, item, zeros):
        one, four = (product(MACHINES[npu], mkn, item, tiles, zeros) for tiles in (1.0, 4.0))
        assert four >= one * (1 - ROUNDING)


class TestBetterMachines:
    @pytest.mark.parametrize("change", BETTER, ids=lambda change: next(iter(change)))
    @given(npu=npus, mkn=products, item=items, tiles=write_tiles, zeros=zeros)
    def test_a_product_is_never_slower(self, change, npu, mkn, item, tiles, zeros):
        arch = MACHINES[npu]
        before = product(arch, mkn, item, tiles, zeros)
        assert product(but(arch, **change), mkn, item, tiles, zeros) <= before * (1 + ROUNDING)

    @pytest.mark.parametrize("change", BETTER, ids=lambda change: next(iter(change)))
    @given(npu=npus, image=images, in_c=sizes(600), rest=rests, zeros=zeros)
    def test_a_convolution_is_never_slower(self, change, npu, image, in_c, rest, zeros):
        arch = MACHINES[npu]
        before = convolution(arch, image, in_c, rest, zeros)
        assert convolution(but(arch, **change), image, in_c, rest, zeros) <= before * (1 + ROUNDING)

    @given(npus, images, kernels, items, write_tiles, modes)
    def test_channelwise_work_is_never_slower_with_more_ports(self, npu, image, kernel, item, tiles, mode):
        arch = MACHINES[npu]
        ported = but(arch, dpu_read_ports=2.0)
        work = channelwise_work(image, kernel, 1.0, (0.0, 0.0), item, tiles)
        works = (
            lambda arch: depthwise_cycles(arch, work),
            lambda arch: maxpool_cycles(arch, work, mode),
            lambda arch: eltwise_cycles(arch, work),
        )
        for cycles in works:
            assert cycles(ported) <= cycles(arch) * (1 + ROUNDING)


class TestZeros:
    @given(npus, products, items, write_tiles, zeros)
    def test_they_never_slow_a_product_down(self, npu, mkn, item, tiles, zeros):
        arch = MACHINES[npu]
        assert product(arch, mkn, item, tiles, zeros) <= product(arch, mkn, item, tiles) * (1 + ROUNDING)

    @given(npus, images, sizes(600), rests, zeros)
    def test_they_never_slow_a_convolution_down(self, npu, image, in_c, rest, zeros):
        arch = MACHINES[npu]
        dense = convolution(arch, image, in_c, rest)
        assert convolution(arch, image, in_c, rest, zeros) <= dense * (1 + ROUNDING)

    @given(npus, products, items, zeros, st.integers(0, 3), st.floats(0, 1))
    def test_more_of_them_are_never_slower(self, npu, mkn, item, zeros, which, share):
        arch = MACHINES[npu]
        emptier = tuple(share * z if i == which else z for i, z in enumerate(zeros))
        before = product(arch, mkn, item, 1.0, zeros)
        assert product(arch, mkn, item, 1.0, emptier) <= before * (1 + ROUNDING)

    @given(npus, products, items, densities, densities)
    def test_density_one_is_dense_whatever_the_granules_say(self, npu, mkn, item, act, weight):
        arch = MACHINES[npu]
        assert product(arch, mkn, item, 1.0, (1.0, 1.0, act, weight)) == product(arch, mkn, item)

    @given(densities, densities, st.integers(1, 64), st.floats(1, 5000))
    def test_the_fullest_lane_keeps_at_least_the_mean(self, density, granules, lanes, window):
        kept = lane_density(density, granules, float(lanes), window)
        assert density * (1 - ROUNDING) <= kept <= 1.0

    def test_a_single_lane_waits_for_nobody(self):
        assert lane_density(0.3, 1.0, 1.0, 32.0) == pytest.approx(0.3)

    @pytest.mark.parametrize(
        "zeros", [(1e-4, 1.0, 1.0, 1.0), (1.0, 1e-4, 1.0, 1.0)], ids=["activations", "weights"]
    )
    def test_the_speed_up_saturates_however_empty_the_data_are(self, zeros):
        for npu, arch in MACHINES.items():
            dense, empty = (product(arch, (4096.0, 4096.0, 4096.0), 1.0, 1.0, z) for z in (DENSE, zeros))
            assert 1.5 < dense / empty < 3.2, npu


class TestTwin:
    @given(
        odd_machines(),
        st.tuples(sizes(1200), sizes(600), sizes(600)),
        items,
        items,
        items,
        modes,
        write_tiles,
        zeros,
    )
    @example(MACHINES["npu4000"], (1.0, 1.0, 1.0), 1.0, 1.0, 1.0, 0, 1.0, (0.0, 0.0, 0.0, 0.0))
    def test_products_agree(self, arch, mkn, a, b, c, mode, tiles, zeros):
        slow = naive_dpu.matmul_mode_cycles(record(arch), *mkn, (a, b, c), mode, tiles, zeros)
        fast = matmul_mode_cycles(arch, product_work(mkn, (a, b, c), tiles, zeros), mode)
        assert fast == pytest.approx(slow, rel=1e-9)

    @given(odd_machines(), st.tuples(sizes(100), sizes(100), sizes(300)), sizes(300), rests, zeros)
    def test_convolutions_agree(self, arch, image, in_c, rest, zeros):
        shapes = (rest.kernel, rest.pads, (rest.item,) * 3, rest.mode, rest.tiles)
        slow = naive_dpu.conv_cycles(record(arch), *image, in_c, *shapes, zeros)
        assert convolution(arch, image, in_c, rest, zeros) == pytest.approx(slow, rel=1e-9)

    @given(odd_machines(), st.tuples(sizes(65), sizes(65), sizes(300)), rests, st.sampled_from([1.0, 2.0]))
    def test_channelwise_work_agrees(self, arch, image, rest, stride):
        slow = record(arch)
        work = channelwise_work(image, rest.kernel, stride, rest.pads, rest.item, rest.tiles)
        depthwise = depthwise_cycles(arch, work)
        twin = naive_dpu.depthwise_cycles(slow, *image, rest.kernel, stride, rest.pads, rest.item, rest.tiles)
        assert depthwise == pytest.approx(twin, rel=1e-9)
        pool = maxpool_cycles(arch, work, rest.mode)
        twin = naive_dpu.maxpool_cycles(slow, *image, rest.kernel, rest.item, rest.mode, rest.tiles)
        assert pool == pytest.approx(twin, rel=1e-9)
        sums = eltwise_cycles(arch, work)
        assert sums == pytest.approx(naive_dpu.eltwise_cycles(slow, *image, rest.item, rest.tiles), rel=1e-9)

    @given(npus, products, items, write_tiles, zeros)
    def test_the_best_mode_is_the_least_of_all(self, npu, mkn, item, tiles, zeros):
        arch = MACHINES[npu]
        work = product_work(mkn, (item, item, item), tiles, zeros)
        each = [matmul_mode_cycles(arch, work, mode) for mode in range(3)]
        assert product(arch, mkn, item, tiles, zeros) == min(each)


class TestSilicon:
    """Measured cycles, a few of every kind; the suites of `validate/` have them all."""

    @pytest.mark.parametrize(
        ("npu", "image", "in_c", "kernel", "mode", "measured"),
        [
            (
                "npu3720",
                (28.0, 3.0, 96.0),
                96.0,
                3.0,
                1,
                4794,
            ),  # the same register tiles, fewer pixel slots to walk
            ("npu3720", (28.0, 3.0, 96.0), 96.0, 3.0, 0, 5835),
            ("npu4000", (28.0, 7.0, 64.0), 256.0, 1.0, 0, 2052),
            ("npu4000", (28.0, 7.0, 64.0), 256.0, 1.0, 1, 2044),
            ("npu4000", (28.0, 7.0, 64.0), 256.0, 1.0, 2, 1995),
            ("npu4000", (56.0, 5.0, 64.0), 64.0, 3.0, 0, 7319),  # a lone last row beside padding
            ("npu4000", (7.0, 2.0, 64.0), 160.0, 3.0, 2, 1583),
        ],
    )
    def test_convolutions(self, npu, image, in_c, kernel, mode, measured):
        top = (kernel - 1.0) / 2.0
        rest = Rest(kernel=(kernel, kernel), pads=(top, 0.0), item=1.0, mode=mode, tiles=1.0)
        assert convolution(MACHINES[npu], image, in_c, rest) == pytest.approx(measured, rel=0.05)

    @pytest.mark.parametrize(
        ("act", "weight", "measured"),
        [(1.0, 1.0, 18738), (0.4, 1.0, 8540), (1.0, 0.599338, 14153), (0.4, 0.599338, 8200)],
    )
    def test_sparse_convolutions_of_npu3720(self, act, weight, measured):
        rest = Rest(kernel=(3.0, 3.0), pads=(0.0, 1.0), item=1.0, mode=0, tiles=1.0)
        cycles = convolution(MACHINES["npu3720"], (14.0, 14.0, 64.0), 256.0, rest, (act, weight, 1.0, 1.0))
        assert cycles == pytest.approx(measured, rel=0.06)

    @pytest.mark.parametrize(
        ("npu", "kernel", "measured"),
        [
            ("npu3720", 3.0, 6044),
            ("npu3720", 7.0, 30375),
            ("npu3720", 11.0, 72390),
            ("npu4000", 3.0, 4335),
            ("npu4000", 5.0, 12106),
            ("npu4000", 9.0, 38530),
        ],
    )
    def test_depthwise_convolutions(self, npu, kernel, measured):
        pad_top = (kernel - 1.0) / 2.0
        work = channelwise_work((56.0, 14.0, 64.0), (kernel, kernel), 1.0, (pad_top, 0.0), 1.0, 1.0)
        cycles = depthwise_cycles(MACHINES[npu], work)
        assert cycles == pytest.approx(measured, rel=0.05)

    @pytest.mark.parametrize(("mode", "measured"), [(0, 4508), (1, 6313), (2, 6421)])
    def test_max_pooling_of_npu4000(self, mode, measured):
        cycles = maxpool_cycles(
            MACHINES["npu4000"],
            channelwise_work((56.0, 14.0, 64.0), (3.0, 3.0), 1.0, (0.0, 0.0), 1.0, 1.0),
            mode,
        )
        assert cycles == pytest.approx(measured, rel=0.05)

    def test_an_elementwise_sum_of_npu4000(self):
        cycles = eltwise_cycles(MACHINES["npu4000"], DpuWorkload(250.0, 7.0, 64.0))
        assert cycles == pytest.approx(2655, rel=0.05)


@pytest.mark.parametrize("npu", sorted(MACHINES))
class TestDegenerateSizes:
    def test_one_of_everything_costs_little_more_than_start_up(self, npu):
        arch = MACHINES[npu]
        start = arch["dpu_startup_cycles"]
        rest = Rest(kernel=(1.0, 1.0), pads=(0.0, 0.0), item=1.0, mode=0, tiles=1.0)
        for cycles in (product(arch, (1.0, 1.0, 1.0), 1.0), convolution(arch, (1.0, 1.0, 1.0), 1.0, rest)):
            assert start < cycles < start + 100
        assert start < eltwise_cycles(arch, DpuWorkload(1.0, 1.0, 1.0)) < start + 5

    def test_a_product_one_pixel_wide_costs_several_times_a_folded_one(self, npu):
        arch = MACHINES[npu]
        rest = Rest(kernel=(1.0, 1.0), pads=(0.0, 0.0), item=1.0, mode=0, tiles=1.0)
        folded = product(arch, (4096.0, 1024.0, 64.0), 1.0)
        assert 3.5 < convolution(arch, (1.0, 4096.0, 64.0), 1024.0, rest) / folded < 4.5

    def test_a_huge_product_reaches_the_peak(self, npu):
        ideal = 4096.0**3 / 2048
        assert product(MACHINES[npu], (4096.0, 4096.0, 4096.0), 1.0) == pytest.approx(ideal, rel=0.05)

    def test_modes_come_from_the_data_sheet(self, npu):
        shapes = [mode_shape(MACHINES[npu], mode) for mode in range(3)]
        assert shapes == [(4, 4, 4), (4, 2, 8), (2, 2, 16)]
        assert {np.prod(shape) for shape in shapes} == {64}
