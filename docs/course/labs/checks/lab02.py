"""Check of lab 2: sizes of a convolution as a product, and channels of a first layer."""

from collections.abc import Iterator

from pydantic import PositiveInt

from npusim.course.machine import convolution, estimate


def _time_per_mac(channels: int) -> float:
    cost = estimate(convolution(224, channels, 32, kernel=3, stride=2)).operators[0]
    return cost.latency_s / cost.macs


def check_sizes(
    m: PositiveInt, k: PositiveInt, n: PositiveInt, copied_bytes: float
) -> Iterator[tuple[bool, str, str]]:
    layer = estimate(convolution(56, 64, 128, kernel=3, stride=2))
    outputs, weights = layer.memory.outputs_bytes, layer.memory.constants_bytes
    hint = "a row per output pixel and a column per output channel"
    if m == 56 * 56:
        hint = "stride 2 skips every second pixel in both directions"
    yield m * n == outputs, f"M N = {m * n:,} outputs, as the layer has", hint
    hint = "K counts the numbers of one sum, over the kernel and all input channels; N counts output channels"
    yield k * n == weights, f"K N = {k * n:,} weights, as the layer has", hint
    yield m * k * n == layer.macs, f"M K N = {m * k * n:,} MACs, as the layer has", "M and N are interchanged"
    hint = "the left matrix has M rows of K numbers, a byte each (int8)"
    if copied_bytes == layer.memory.inputs_bytes:
        hint = "that is the image; im2col repeats a pixel for each kernel position that reads it"
    yield copied_bytes == m * k, f"the copied matrix has {copied_bytes:,.0f} B", hint


def check_channels(least_channels: PositiveInt) -> Iterator[tuple[bool, str, str]]:
    third = _time_per_mac(3) / 3
    share = _time_per_mac(least_channels) / third / 3
    hint = "more channels: each byte of the result then serves more MACs"
    yield share <= 1 / 3, f"{least_channels} channels take {share:.3f} of the time per MAC", hint
    fewer = least_channels > 1 and _time_per_mac(least_channels - 1) <= third
    yield not fewer, f"{least_channels} channels are the least", "one channel less does it too; try fewer"
