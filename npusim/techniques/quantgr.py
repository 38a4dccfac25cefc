"""QuantGr: symmetric static int8 for weights, activations and masks of the MAC grid's operators."""

from enum import StrEnum

from npusim.graph import Graph
from npusim.graph.formats import float_products, in_int8
from npusim.ops import DType
from npusim.techniques.technique import Parameters, Stage, Technique


class InputConversion(StrEnum):
    """How inputs of quantised operators reach the NPU."""

    INT8 = "int8"  # the host stores them in 8 bits; the scales are static, so it writes integers at once
    CPU = "cpu"  # they are floating point, and the CPU converts them at each inference
    NPU = "npu"  # they are floating point, and the NPU converts them at each inference


class QuantgrParameters(Parameters):
    """Who rounds the inputs."""

    inputs: InputConversion = InputConversion.INT8
    """Format of features and run-time masks: `int8`, or floating point that the `cpu` or `npu` converts."""


def _rewrite(graph: Graph, parameters: QuantgrParameters) -> Graph:
    """Weights, activations and masks of products become 8-bit integers; operators of DSPs stay floating.

    In 8 bits the grid does twice the multiplications per cycle and reads half the bytes, which matters for
    products bound by memory. Scales are fixed beforehand and symmetric, so rounding happens where a result is
    stored. Operators of DSPs stay floating, with a Convert where their result enters a product.
    """
    host = None if parameters.inputs is InputConversion.NPU else "cpu"
    return in_int8(graph, parameters.inputs is InputConversion.INT8, host)


QUANTGR = Technique(
    name="quantgr",
    numerics=(
        "Rounding to 255 levels: about 0.1 points on Cora; a padded row with a self-loop would double "
        "norm's step."
    ),
    rewrite=_rewrite,
    stage=Stage.PRECISION,
    needs="a floating-point matrix product or convolution",
    finds=lambda graph, _: float_products(graph),
    parameters=QuantgrParameters,
    exact=False,
    precision=DType.INT8,
    source="GraNNite, section IV-C",
)
