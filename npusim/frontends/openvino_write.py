"""OpenVINO models of operator graphs: written to be measured, saved, run, with example values.

Values of weights are made up: the time of a network hardly depends on them. An export keeps a network's own
numbers instead (`npusim.frontends.splicing`). Floating-point values are neither tiny (a CPU computes denormal
numbers slowly) nor large. The share of zeros follows from the tensor's density. Indices are in range and
spread evenly.

Eight-bit numbers are signed and symmetric: 256 levels between -1 and 1.
"""

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from npusim.errors import FileError
from npusim.files import refuse_unwritable
from npusim.frontends.openvino_ir import input_name, openvino
from npusim.frontends.openvino_nodes import (
    ELEMENT_TYPES,
    EXACT,
    TIMING,
    Call,
    UnwritableError,
    write_node,
)
from npusim.graph import Graph
from npusim.ops import Annotation, DType, Family, Operator, Role, Tensor, TensorKind

_MASKED_OUT = -1e4  # minus infinity of an additive mask: 0 x inf would be NaN, fp16 ends at 65504
_SLOPE = 0.2  # of GAT's leaky ReLU (Velickovic et al. 2018, section 2.1)
_EXPONENT = -0.5  # power that makes a norm of degrees (Kipf and Welling 2017, equation 2)
_NEIGHBOURS = (Role.NORM, Role.MASK, Role.ADJACENCY)
_INTEGERS = {DType.INT64: np.int64, DType.INT32: np.int32, DType.INT16: np.int16, DType.UINT8: np.uint8}


def example_value(graph: Graph, name: str, seed: int = 0) -> npt.NDArray[Any]:
    """Return values for an input or constant of a graph, such as its readers allow.

    They are of the tensor's shape: float32 for floating-point formats and int8 (between -1 and 1, to be
    rounded to 8 bits), integers of the tensor's width, or booleans. Each tensor has a random stream of its
    own.

    Examples
    --------
    >>> from npusim.workloads import load_workload
    >>> graph = load_workload("gcn-cora")
    >>> int(example_value(graph, "edge_index").max())
    2707
    """
    tensor = graph.tensors[name]
    random = np.random.default_rng([seed, crc32(name.encode())])
    if tensor.fill is not None:
        return np.full(tensor.shape, tensor.fill, dtype=np.float32)
    if tensor.dtype is DType.BOOL:
        return _filled(tensor, random, np.ones(_nonzeros(tensor), dtype=bool))
    if tensor.dtype in _INTEGERS:
        return _indices(graph, tensor, random).astype(_INTEGERS[tensor.dtype])
    level = None if tensor.dtype is DType.INT8 else _level(graph, name)
    count = _nonzeros(tensor)
    if level is not None:
        return _filled(tensor, random, np.full(count, level, dtype=np.float32))
    numbers = (random.random(count, dtype=np.float32) * 0.5 + 0.5) * np.float32(_scale(tensor))
    if tensor.role in (Role.WEIGHT, Role.BIAS):
        numbers[random.random(count, dtype=np.float32) < 0.5] *= -1
    return _filled(tensor, random, numbers)


def meant_value(graph: Graph, name: str) -> npt.NDArray[Any] | None:
    """Return the value that a constant has by its meaning, such as a mask's -1e4; None where it has none."""
    tensor = graph.tensors[name]
    level = tensor.fill if tensor.fill is not None else _level(graph, name) if tensor.density else 0.0
    if level is None or 0.0 < tensor.density < 1.0:
        return None
    return np.full(tensor.shape, level, dtype=np.float32)


def _nonzeros(tensor: Tensor) -> int:
    return round(tensor.density * tensor.elements)


def _filled(tensor: Tensor, random: np.random.Generator, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Spread non-zeros over the tensor; in a symmetric matrix in pairs, the diagonal first."""
    size, count = tensor.elements, len(numbers)
    if count == size:
        return numbers.reshape(tensor.shape)
    values = np.zeros(size, dtype=numbers.dtype)
    if tensor.symmetric and len(tensor.shape) == 2 and count < size / 2:
        rows = tensor.shape[0]
        loops = min(rows, count)
        values[np.arange(loops) * (rows + 1)] = numbers[:loops]
        pairs = (count - loops) // 2
        row, column = _below_the_diagonal(random, rows, pairs)
        values[row * rows + column] = values[column * rows + row] = numbers[loops : loops + pairs]
    elif tensor.role in _NEIGHBOURS and len(tensor.shape) == 2 and count >= tensor.shape[0]:
        values[_each_row_once(random, tensor.shape, count)] = numbers
    elif count:
        values[random.choice(size, count, replace=False, shuffle=False)] = numbers
    return values.reshape(tensor.shape)


def _each_row_once(random: np.random.Generator, shape: tuple[int, ...], count: int) -> Any:
    """Return positions of non-zeros, at least one in each row: a mean over no neighbour would be 0 / 0."""
    rows, columns = shape
    first = random.integers(0, columns, rows)
    more = random.choice(rows * (columns - 1), count - rows, replace=False, shuffle=False)
    row, column = np.divmod(more, max(1, columns - 1))
    column = column + (column >= first[row])
    return np.concatenate([np.arange(rows) * columns + first, row * columns + column])


def _below_the_diagonal(random: np.random.Generator, rows: int, pairs: int) -> tuple[Any, Any]:
    """Return rows and columns of distinct positions below the diagonal."""
    place = random.choice(rows * (rows - 1) // 2, pairs, replace=False, shuffle=False)
    row = ((1 + np.sqrt(8.0 * place + 1)) / 2).astype(np.int64)  # place = row (row - 1) / 2 + column
    return row, place - row * (row - 1) // 2


def _scale(tensor: Tensor) -> float:
    """Return a scale of the values that keeps results near 1 for sums of any length."""
    if tensor.dtype is DType.INT8 or not tensor.shape:
        return 1.0
    if tensor.role is Role.WEIGHT:
        return 1.0 / math.sqrt(max(tensor.shape))
    if tensor.role is Role.NORM:
        return 1.0 / max(1.0, tensor.density * tensor.shape[-1])
    return 1.0


def _level(graph: Graph, name: str) -> float | None:
    """Return the value that all non-zeros of a tensor have by its role; None if they differ."""
    tensor = graph.tensors[name]
    for op in graph.readers(name):
        port = op.inputs.index(name)
        if op.type == "Broadcast":
            return _level(graph, op.outputs[0])
        if op.family is Family.SELECT and port > 0:
            return _MASKED_OUT
        if op.family is Family.SCATTER and port == 2:
            return 1.0
        if port == 1 and op.type in ("Power", "PRelu"):
            return _EXPONENT if op.type == "Power" else _SLOPE
        makes_mask = graph.tensors[op.outputs[0]].role is Role.MASK and tensor.elements == 1
        if op.type == "Add" and (tensor.role is Role.MASK or makes_mask):
            return _MASKED_OUT
        if op.type == "Multiply" and makes_mask:
            return -_MASKED_OUT
    return 1.0 if tensor.role in (Role.MASK, Role.ADJACENCY) else None


def _indices(graph: Graph, tensor: Tensor, random: np.random.Generator) -> npt.NDArray[Any]:
    limit = max(1, _limit(graph, tensor.name))
    shape = tensor.shape
    if tensor.elements == 1:
        return np.full(shape, _single(graph, tensor, limit))
    if any(op.type == "Concat" for op in graph.readers(tensor.name)) and tensor.role is not Role.EDGES:
        return np.broadcast_to(np.arange(shape[-1]) % limit, shape)  # self-loops: each node once
    for op in graph.readers(tensor.name):
        if op.type == "ScatterElementsUpdate" and op.inputs[1] == tensor.name:  # whole rows, as messages do
            axis = op.attrs["axes"][0]
            alone = tuple(d if i == axis else 1 for i, d in enumerate(shape))
            return np.broadcast_to(random.integers(0, limit, alone), shape)
    if shape[-1] >= limit:  # each index appears equally often, so that each node has an edge
        return random.permuted(np.broadcast_to(np.arange(shape[-1]) % limit, shape), axis=-1)
    return random.integers(0, limit, shape)


def _single(graph: Graph, tensor: Tensor, limit: int) -> int:
    """Return the value of a single index: a row that is picked, or the length of a row of cells."""
    if any(op.type == "Multiply" for op in graph.readers(tensor.name)):
        return limit
    return limit - 1 if tensor.density > 0 else 0


def _limit(graph: Graph, name: str) -> int:
    """Return the exclusive upper bound of a tensor's integers; 1 if no reader sets one."""
    limits = [limit for op in graph.readers(name) if (limit := _limit_by(graph, op, name)) is not None]
    tensor = graph.tensors[name]
    if tensor.role is Role.EDGES and graph.structure is not None and graph.structure.nodes:
        limits.append(graph.structure.nodes)
    return min(limits, default=1)


def _limit_by(graph: Graph, op: Operator, name: str) -> int | None:
    port, axis = op.inputs.index(name), int((*op.attrs.get("axes", ()), 0)[0])
    if port == 1 and (op.family is Family.GATHER or op.type == "ScatterElementsUpdate"):
        return graph.tensors[op.inputs[0]].shape[axis]
    if port == 1 and op.type == "ScatterNDUpdate":
        depth = graph.tensors[name].shape[-1]
        return min(graph.tensors[op.inputs[0]].shape[:depth])
    if op.family in (Family.GATHER, Family.VIEW, Family.MOVE, Family.CONVERT):
        return _limit(graph, op.outputs[0])
    if op.type in ("Multiply", "Add") and not graph.tensors[name].dtype.is_float:
        # Cells of a square matrix, numbered row by row: row x width + column.
        cells = _limit(graph, op.outputs[0])
        writer = graph.writer(name)
        return cells if writer is not None and writer.type == "Multiply" else math.isqrt(cells)
    return None


_AS_IT_STANDS = {
    "INFERENCE_PRECISION_HINT": "f32",  # the plug-in would take bf16 where the processor has it
    "INFERENCE_NUM_THREADS": 1,
    # The plug-in would move the rounding to where its own integer kernels like it: SAGE-max's behind the
    # -1e4 of its mask, which costs 3 % of the answers.
    "LP_TRANSFORMS_MODE": False,
}


def run_model(model: Any, inputs: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return the results of a model on the CPU device, for a value of each input by name.

    Everything is computed in fp32, with the roundings where the model has them.
    """
    return results_of(openvino().Core().compile_model(model, "CPU", _AS_IT_STANDS), inputs)


def results_of(compiled: Any, inputs: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Return the results of a compiled model, for a value of each input by name."""
    operands = [
        np.ascontiguousarray(
            next(inputs[name] for name in (input_name(port), *port.get_names()) if name in inputs),
            dtype=port.get_element_type().to_dtype(),
        )
        for port in compiled.inputs
    ]
    results = compiled(operands)
    return [np.array(results[port]) for port in compiled.outputs]


def refuse_target(file: Path) -> None:
    """Refuse a file that no model can be saved to, before the work for it begins.

    Raises
    ------
    FileError
        Where its name does not end in .xml, or it cannot be written.
    """
    if file.suffix != ".xml":
        raise FileError(str(file), "does not end in .xml", "name the file model.xml or the like")
    refuse_unwritable(file)


def run_saved(
    model: Any, inputs: Sequence[Mapping[str, npt.NDArray[Any]]], *, half: bool = True
) -> tuple[str, list[list[npt.NDArray[Any]]], list[list[npt.NDArray[Any]]]]:
    """Save a model (see `save_model`), and run the file on each of some inputs on OpenVINO's CPU device.

    Returns
    -------
    tuple
        The format that the device computes in by default, the results of each input under default settings,
        and those in fp32.
    """
    with tempfile.TemporaryDirectory(prefix="npusim-") as folder:
        file = Path(folder) / "model.xml"
        save_model(model, file, half=half)
        core = openvino().Core()
        format_ = core.get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
        by_default, in_fp32 = (
            [results_of(compiled, each) for each in inputs]
            for compiled in (
                core.compile_model(file, "CPU", settings)
                for settings in ({}, {"INFERENCE_PRECISION_HINT": "f32"})
            )
        )
        return format_, by_default, in_fp32


def save_model(model: Any, file: Path, *, half: bool) -> None:
    """Save a model as `.xml` and `.bin`, whole or not at all, with weights in fp16 if `half`.

    A `FileError` says why it cannot be written, for example because the disk is full.
    """
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.stem}-") as folder:
            fresh = Path(folder) / file.name
            openvino().save_model(model, fresh, compress_to_fp16=half)
            os.replace(fresh.with_suffix(".bin"), file.with_suffix(".bin"))
            os.replace(fresh, file)
    except (OSError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise FileError(str(file), f"cannot be written ({reason})", "give it another place") from None


_LEVELS = 256
_LARGEST = 127
_ROUNDS = ("Convert", "FakeQuantize")  # operators that round where their result is 8-bit
_PRODUCTS = (Family.MATMUL, Family.CONVOLUTION, Family.DEPTHWISE)
_SAME_VALUES = (Family.GATHER, Family.VIEW, Family.MOVE)  # rounded where their operand is


class UnmeasurableError(UnwritableError):
    """A graph with a technique that only a compiler can apply, and no model file can hold."""


def model_of_graph(
    graph: Graph, seed: int = 0, values: Callable[[str], npt.NDArray[Any]] | None = None
) -> Any:
    """Return a graph as an `openvino.Model` with one operation per operator, under the operator's name.

    Tensors of int8 are bytes where the host or the file holds them, and FakeQuantize where the network
    rounds.

    Parameters
    ----------
    seed : int, optional
        Seed of made-up values.
    values : callable, optional
        Returns the value of a constant by its name; None: they are made up.

    Raises
    ------
    UnmeasurableError
        When a technique of the graph is one that only a compiler can apply.
    UnwritableError
        When an operator or format has no writer.
    FileError
        When openvino is not installed.
    """
    for op in graph:
        if op.repeats > 1:
            problem = f"operator {op.name!r} runs {op.repeats} times; loops cannot be written"
            raise UnwritableError(f"{graph.name}: {problem}")
    refuse_annotations(graph)
    return _Writing(graph, values or partial(example_value, graph, seed=seed)).model()


def refuse_annotations(graph: Graph, before: Graph | None = None) -> None:
    """Refuse a graph with a technique that no model file can hold, but for requests of the graph before."""
    known = {} if before is None else {t.name: set(t.annotations) for t in before.tensors.values()}
    annotations = {
        annotation
        for tensor in graph.tensors.values()
        for annotation in set(tensor.annotations) - known.get(tensor.name, set())
    }
    if annotations:  # a device would run the graph without it, and the time would count for the whole stack
        what = " or ".join(annotation for annotation in Annotation if annotation in annotations)
        raise UnmeasurableError(
            f"{graph.name} with {graph.techniques} cannot be run on a real device: no model file can ask for "
            f"{what}; measure the stack without it"
        )


class _Writing:
    """The state of one writing: which tensor became which output."""

    def __init__(self, graph: Graph, values: Callable[[str], npt.NDArray[Any]]) -> None:
        self.graph, self.values = graph, values
        self.openvino: Any = openvino()
        self.ops: Any = self.openvino.opset15
        self.outputs: dict[str, Any] = {}
        floats = [t.dtype for t in graph.tensors.values() if t.dtype.is_float]
        self.carrier = ELEMENT_TYPES[floats[0]] if floats else "f32"
        """Format in which 8-bit numbers are written until a device rounds them."""

    def model(self) -> Any:
        """Write everything."""
        parameters = []
        for tensor in self.graph.tensors.values():
            if tensor.kind is TensorKind.INPUT:
                parameters.append(self._parameter(tensor))
            elif tensor.kind is TensorKind.CONSTANT:
                self.outputs[tensor.name] = self._constant(tensor)
        for op in self.graph:
            self._operator(op)
        results, written = [], [self.outputs[name].get_node() for name in self.graph.state_results]
        for name in self.graph.outputs:
            if name not in self.graph.state_results:
                results.append(self.ops.result(self.outputs[name]))
                results[-1].set_friendly_name(f"{name}/result")
        return self.openvino.Model(results, written, parameters, self.graph.name)

    def _parameter(self, tensor: Tensor) -> Any:
        node = self.ops.parameter(list(tensor.shape), element_type(self.graph, tensor))
        node.set_friendly_name(tensor.name)
        node.output(0).get_tensor().set_names({tensor.name})
        value = node
        if tensor.dtype is DType.INT8:
            # OpenVINO's CPU looks for 8-bit products only in a model with a FakeQuantize; this one changes
            # nothing, and it leaves it out.
            value = self._rounded(self._dequantized(node))
        self.outputs[tensor.name] = value.output(0)
        return node

    def _constant(self, tensor: Tensor) -> Any:
        element, name = element_type(self.graph, tensor), tensor.name
        values = self.values(name).reshape(tensor.shape)
        if tensor.dtype is not DType.INT8:
            node = self.ops.constant(values, element)
        elif _is_kept_in_bytes(self.graph, name):
            packed = np.round(values * np.float32(_LARGEST)).astype(np.int8)
            node = self._dequantized(self.ops.constant(packed))
        else:
            carrier = getattr(self.openvino.Type, self.carrier)
            node = self._rounded(self.ops.constant(values, carrier))
        node.set_friendly_name(name)
        return node.output(0)

    def _number(self, value: float) -> Any:
        """Return a number in the format that carries 8-bit numbers."""
        number = self.ops.constant(np.float32(value))
        return number if self.carrier == "f32" else self.ops.convert(number, self.carrier)

    def _rounded(self, node: Any) -> Any:
        """Return a FakeQuantize of a floating-point node to -1 to 1."""
        high, low = self._number(1.0), self._number(-(_LARGEST + 1) / _LARGEST)
        return self.ops.fake_quantize(node, low, high, low, high, _LEVELS)

    def _dequantized(self, node: Any) -> Any:
        """Return the real numbers that bytes stand for: Convert and Multiply, which devices fold."""
        scale = self._number(1.0 / _LARGEST)
        return self.ops.multiply(self.ops.convert(node, self.carrier), scale)

    def _operator(self, op: Operator) -> None:
        results = self.graph.outputs_of(op)
        node = self._node(op, results)
        for port, result in enumerate(results):
            self.outputs[result.name] = node.output(port)
        if op.type not in (*_ROUNDS, "ReadValue") and _quantizes_result(self.graph, results[0]):
            node = self._rounded(node)
            node.set_friendly_name(f"{op.name}/rounded")
            self.outputs[results[0].name] = node.output(0)

    def _node(self, op: Operator, results: tuple[Tensor, ...]) -> Any:
        writer, result = EXACT.get(op.type) or TIMING.get(op.type), results[0]
        inputs = [self.outputs[name] for name in op.inputs if op.type != "ReadValue"]
        if op.type == "ReadValue":  # a state begins with zeros, in the format that it is read in
            element = element_type(self.graph, result)
            zeros = self.ops.constant(np.zeros(result.shape, np.float32), element)
            node = self.ops.read_value(zeros, op.inputs[0], element, list(result.shape))
        elif op.type in _ROUNDS and result.dtype is DType.INT8:
            node = self._rounded(inputs[0])
        elif writer is None or (len(op.outputs) != 1 and op.type != "VariadicSplit"):
            several = " with several results" if writer is not None else ""
            raise UnwritableError(
                f"{self.graph.name}: operator {op.name!r} cannot be written for a real device: type "
                f"{op.type}{several}; there are {', '.join(sorted({*EXACT, *TIMING}))}"
            )
        else:
            call = Call(self.ops, op, inputs, self.graph.inputs_of(op)[0], result)
            return write_node(self.graph.name, writer, call, results)
        node.set_friendly_name(op.name)
        return node


def element_type(graph: Graph, tensor: Tensor) -> Any:
    """Return OpenVINO's element type of a tensor; an UnwritableError refuses formats that no file holds."""
    if tensor.dtype not in ELEMENT_TYPES:
        raise UnwritableError(
            f"{graph.name}: tensor {tensor.name!r} cannot be written for a real device: it is "
            f"{tensor.dtype.value}; there are {', '.join(ELEMENT_TYPES)}"
        )
    return getattr(openvino().Type, ELEMENT_TYPES[tensor.dtype])


def _is_kept_in_bytes(graph: Graph, constant: str) -> bool:
    """Whether an 8-bit constant must be kept as bytes; otherwise the model rounds it.

    OpenVINO's CPU folds the FakeQuantize of a constant on the left of a product (an aggregation matrix) and
    multiplies floats; kept as bytes it is multiplied as bytes. On the right (weights) it knows both.
    """
    return any(op.family is Family.MATMUL and op.inputs[0] == constant for op in graph.readers(constant))


def _quantizes_result(graph: Graph, tensor: Tensor) -> bool:
    """Whether an 8-bit result is rounded right behind its operator.

    A chain of product, bias and activation is rounded once, at its end, as the output stage of a grid does
    and as OpenVINO's quantised models have it.
    """
    writer = graph.writer(tensor.name)
    if tensor.dtype is not DType.INT8 or writer is None:
        return False
    passes_on = writer.family in _SAME_VALUES or writer.type == "MaxPool"
    if passes_on and graph.tensors[writer.inputs[0]].dtype is DType.INT8:
        return False
    return any(_reads_bytes(graph, op) for op in graph.readers(tensor.name))


def _reads_bytes(graph: Graph, op: Operator) -> bool:
    """Whether quantising tools round what an operator reads: also both operands of a sum of images."""
    images = all(len(t.shape) == 4 and t.dtype is DType.INT8 for t in graph.inputs_of(op))
    return op.family in (*_PRODUCTS, *_SAME_VALUES) or (op.type in ("Add", "MaxPool") and images)
