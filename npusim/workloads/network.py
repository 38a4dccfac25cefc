"""Layers of convolutional networks and transformers as OpenVINO's conversion makes them.

Images are NCHW, batch normalisation is folded into weights and biases, and bias and activation are operators
of their own: the mapping decides what is fused into a convolution.
"""

from collections.abc import Sequence
from typing import Any

from npusim.graph import Editor, Graph, GraphMeta
from npusim.ops import DType, Operator, Role, Tensor

Size = int | tuple[int, int]
"""One number for height and width, or both."""

_IN_BYTES = frozenset({"", "Relu", "PRelu", "Clamp"})
"""Activations that the grid applies to its accumulators before they are rounded to 8 bits."""


class Network(Editor):
    """A network under construction, in floating point or quantised.

    A quantised network multiplies bytes. A result stays in bytes if the grid can apply its bias and
    activation to the accumulators; otherwise a FakeQuantize rounds it where a reader needs bytes.

    Parameters
    ----------
    precision : str
        fp16, bf16, fp32, or int8: products in 8 bits, the rest in fp16.
    same_upper : bool
        Pad as TensorFlow's "SAME" does, the odd row at the end; default: as PyTorch does, half the kernel on
        each side.
    """

    def __init__(self, name: str, model: str, precision: str, same_upper: bool = False) -> None:
        self.quantised = precision == "int8"
        self.dtype = DType.FP16 if self.quantised else DType(precision)
        self.same_upper = same_upper
        super().__init__(name, meta=GraphMeta(model=model, form="built", precision=DType(precision)))
        self._rounded: dict[str, str] = {}

    def shape(self, x: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.tensors[x].shape

    def finished(self, *outputs: str) -> Graph:
        """Return the graph with these outputs."""
        self.outputs = list(outputs)
        return self.finish()

    def image(self, batch: int, height: int, width: int) -> str:
        """Add the input [N, 3, H, W]; a quantised network reads it in bytes."""
        dtype = DType.INT8 if self.quantised else self.dtype
        return self.input("image", (batch, 3, height, width), dtype, role=Role.FEATURES)

    def constant(self, name: str, shape: Sequence[int], dtype: DType | None = None, **fields: Any) -> str:
        """Add a constant, by default in the network's floating-point format."""
        return super().constant(name, shape, dtype or self.dtype, **fields)

    def weight(self, name: str, shape: Sequence[int]) -> str:
        """Return the weight of a product, in bytes where the network is quantised; one of a name."""
        if name in self.tensors:
            return name
        dtype = DType.INT8 if self.quantised else self.dtype
        return self.constant(name, shape, dtype, role=Role.WEIGHT)

    def rounded(self, x: str) -> str:
        """Return a tensor as products read it: rounded to bytes, once, where the network is quantised."""
        if not self.quantised or self.tensors[x].dtype is DType.INT8:
            return x
        if x not in self._rounded:
            name = f"{x}/quantize"
            self._rounded[x] = self.add("FakeQuantize", (x,), name, DType.INT8, levels=256)
        return self._rounded[x]

    def _result(self, activation: str, to_float: bool) -> DType:
        return DType.INT8 if self.quantised and not to_float and activation in _IN_BYTES else self.dtype

    def convolution(
        self,
        x: str,
        width: int,
        name: str,
        kernel: Size = 1,
        stride: int = 1,
        activation: str = "",
        groups: int = 1,
        bias: bool = True,
        to_float: bool = False,
        shared: str = "",
        valid: bool = False,
    ) -> str:
        """Add a convolution with its bias and activation.

        Parameters
        ----------
        x : str
            Tensor [N, C, H, W].
        width : int
            Output channels.
        activation : str
            OpenVINO type of an activation; Clamp is ReLU6.
        groups : int
            Groups of channels; `C` for a depthwise convolution.
        bias : bool
            Whether a bias [1, width, 1, 1] follows.
        to_float : bool
            Whether a quantised network keeps the result in floating point.
        shared : str
            Region of another convolution whose weight this one uses.
        valid : bool
            Whether nothing is padded.

        Returns
        -------
        str
            Tensor [N, width, H', W'].
        """
        self.region, x = name, self.rounded(x)
        batch, channels, *size = self.shape(x)
        kernels = (kernel, kernel) if isinstance(kernel, int) else kernel
        pixels, passes = self._passes(size, kernels, stride, valid)
        type_, taps = "Convolution", [width, channels, *kernels]
        if groups > 1:
            type_, taps = "GroupConvolution", [groups, width // groups, channels // groups, *kernels]
        inputs = (x, self.weight(f"{shared or name}/weight", taps))
        result, shape = self._result(activation, to_float), (batch, width, *pixels)
        x = self.op(type_, inputs, shape, result, f"{name}/convolution", **passes)
        if bias:
            x = self._bias(x, name, (1, width, 1, 1))
        return self.activation(activation, x, name) if activation else x

    def upward_convolution(self, x: str, width: int, name: str) -> str:
        """Add a transposed convolution 2x2 with stride 2 and its bias: twice the height and width."""
        self.region, x = name, self.rounded(x)
        batch, channels, height, columns = self.shape(x)
        weight = self.weight(f"{name}/weight", (channels, width, 2, 2))
        shape = (batch, width, 2 * height, 2 * columns)
        type_, result = "ConvolutionBackpropData", self._result("", False)
        x = self.op(type_, (x, weight), shape, result, f"{name}/convolution", **window(2))
        return self._bias(x, name, (1, width, 1, 1))

    def linear(self, x: str, width: int, name: str, to_float: bool = False) -> str:
        """Add `x W^T + b` over the last axis, the weight [width, inputs]."""
        x = self.rounded(x)
        self.region = name
        weight = self.weight(f"{name}/weight", (width, self.shape(x)[-1]))
        x = self.product(x, weight, name, transpose_b=True, to_float=to_float)
        return self._bias(x, name, (*(1 for _ in self.shape(x)[1:]), width))

    def product(
        self,
        a: str,
        b: str,
        name: str,
        transpose_a: bool = False,
        transpose_b: bool = False,
        to_float: bool = False,
    ) -> str:
        """Add a matrix product of two tensors."""
        a, b = self.rounded(a), self.rounded(b)
        self.region = name
        result = self.matmul(a, b, f"{name}/matmul", transpose_a, transpose_b)
        self.change_tensor(result, dtype=self._result("", to_float))
        return result

    def _bias(self, x: str, name: str, shape: Sequence[int]) -> str:
        bias = self.constant(f"{name}/bias/value", shape, role=Role.BIAS)
        return self.eltwise("Add", x, bias, f"{name}/bias")

    def _passes(
        self, size: Sequence[int], kernels: Sequence[int], stride: int, valid: bool = False
    ) -> tuple[list[int], dict[str, Any]]:
        """Return how often a kernel fits along height and width, and its window's settings."""
        begin, end = [0, 0], [0, 0]
        if not valid:
            total = [2 * ((k - 1) // 2) for k in kernels]
            if self.same_upper:
                last = [(-(-length // stride) - 1) * stride for length in size]
                total = [max(a + k - length, 0) for a, k, length in zip(last, kernels, size, strict=True)]
            begin = [pad // 2 for pad in total]
            end = [pad - pad // 2 for pad in total]
        padded = [length + a + b for length, a, b in zip(size, begin, end, strict=True)]
        pixels = [(length - k) // stride + 1 for length, k in zip(padded, kernels, strict=True)]
        return pixels, window(stride, begin, end)

    def activation(self, type_: str, x: str, name: str) -> str:
        """Add an activation; a PRelu has one slope, a Clamp is ReLU6."""
        attrs: dict[str, Any] = {"min": 0.0, "max": 6.0} if type_ == "Clamp" else {}
        inputs = (x, self.constant(f"{name}/slope", (1,))) if type_ == "PRelu" else (x,)
        return self.add(type_, inputs, f"{name}/{type_.lower()}", **attrs)

    def plus(self, a: str, b: str, name: str) -> str:
        """Add the sum of two tensors, in bytes where one of them is."""
        return self._in_bytes("Add", a, b, name)

    def times(self, a: str, b: str, name: str) -> str:
        """Add the product of two tensors, element by element, in bytes where one of them is."""
        return self._in_bytes("Multiply", a, b, name)

    def _in_bytes(self, type_: str, a: str, b: str, name: str) -> str:
        if any(self.tensors[x].dtype is DType.INT8 for x in (a, b)):
            a, b = self.rounded(a), self.rounded(b)
        return self.eltwise(type_, a, b, name)

    def scaled(self, x: str, name: str, shape: Sequence[int] = (1,)) -> str:
        """Add the product with a constant."""
        return self.eltwise("Multiply", x, self.constant(f"{name}/factor", shape), name)

    def normalised(self, x: str, name: str) -> str:
        """Add a layer normalisation over the last axis: MVN, factor and offset."""
        self.region = name
        rank, width = len(self.shape(x)), self.shape(x)[-1]
        shape = (*(1 for _ in range(rank - 1)), width)
        x = self.unary("MVN", x, f"{name}/mvn", axes=(rank - 1,))
        x = self.scaled(x, f"{name}/multiply", shape)
        return self._bias(x, name, shape)

    def max_pool(self, x: str, name: str, kernel: int, stride: int) -> str:
        """Add the maximum over windows, padded as convolutions are."""
        batch, channels, *size = self.shape(x)
        pixels, passes = self._passes(size, (kernel, kernel), stride)
        dtype = self.tensors[x].dtype
        shape = (batch, channels, *pixels)
        return self.op("MaxPool", (x,), shape, dtype, name, kernel=(kernel, kernel), **passes)

    def mean_pool(self, x: str, name: str) -> str:
        """Add the mean over height and width, [N, C, 1, 1]."""
        return self.reduce("ReduceMean", x, (2, 3), name, keep_dims=True)

    def upsample(self, x: str, height: int, width: int, name: str) -> str:
        """Add an Interpolate to a height and width by the nearest pixel."""
        shape, dtype = (*self.shape(x)[:2], height, width), self.tensors[x].dtype
        return self.op("Interpolate", (x,), shape, dtype, name, mode="nearest")

    def joined(self, inputs: Sequence[str], name: str, axis: int = 1, to_float: bool = False) -> str:
        """Join tensors along an axis; a quantised network joins bytes unless `to_float`."""
        return self.concat(inputs if to_float else [self.rounded(x) for x in inputs], axis, name)

    def split(self, x: str, lengths: Sequence[int], name: str, axis: int = 1) -> list[str]:
        """Cut a tensor along an axis."""
        source = self.tensors[x]
        before, behind = source.shape[:axis], source.shape[axis + 1 :]
        parts = [
            Tensor(f"{name}:{i}" if i else name, (*before, length, *behind), source.dtype)
            for i, length in enumerate(lengths)
        ]
        names = tuple(part.name for part in parts)
        attrs = {"axes": (axis,), "lengths": tuple(lengths)}
        operator = Operator(name, "VariadicSplit", (x,), names, attrs, self.region)
        self.add_operator(operator, parts)
        return list(names)


def window(stride: int = 1, begin: Sequence[int] = (0, 0), end: Sequence[int] = (0, 0)) -> dict[str, Any]:
    """Return how a kernel passes over an image, as an operator's settings."""
    pads = {"pads_begin": tuple(begin), "pads_end": tuple(end)}
    return {"strides": (stride, stride), **pads, "dilations": (1, 1)}
