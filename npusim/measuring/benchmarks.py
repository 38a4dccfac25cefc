"""Micro-benchmarks: networks of one kind of operator.

The measured graph is the graph that npusim estimates, so that a difference is an error of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from npusim.errors import ConfigError, UnknownNameError
from npusim.graph import Editor, Graph, GraphMeta
from npusim.ops import DType, Operator, Role, Storage, Tensor

_COPIED = 256  # numbers in a row of each half of a copy: long enough to use whole cache lines

_LINE_COLUMNS = 16  # numbers in a cache line of 64 bytes
# Columns from which PyTorch sorts the messages of a scatter (can_use_expanded_index_path in its
# TensorAdvancedIndexing.cpp).
_SORTED_FROM = 16

# Largest freed block that the C library keeps (mallopt(3), M_MMAP_THRESHOLD: at most 32 MiB on 64 bits);
# Linux gives larger blocks page by page, of this size.
_KEPT_BYTES, _PAGE_BYTES = 32 * 1024**2, 4096

Sizes = Mapping[str, int]
Build = Callable[[Editor, Sizes, DType], str]


@dataclass(frozen=True, slots=True)
class Microbenchmark:
    """Declaration of a micro-benchmark: dimensions, builder, number formats."""

    sizes: tuple[str, ...]  # dimensions in the order of an id
    build: Build  # adds the operator to an editor and returns its result
    int8: bool = False  # whether it exists in 8-bit integers
    granule: int = 1  # divisor of each dimension


def _matmul(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return [m, k] x [k, n] with a constant right operand in PyTorch's layout of weights: [n, k].

    In 8 bits the operands are bytes and the result is floating, as in the last product of a network.
    """
    x = editor.input("x", (sizes["m"], sizes["k"]), dtype, role=Role.FEATURES)
    weight = editor.constant("weight", (sizes["n"], sizes["k"]), dtype, role=Role.WEIGHT)
    result = editor.matmul(x, weight, "matmul", transpose_b=True)
    if dtype is DType.INT8:
        editor.change_tensor(result, dtype=editor.meta.precision)
    return result


def _aggregate(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return [m, k] x [k, n] with a constant left operand: a norm matrix as in StaGr.

    The right operand is an input: a compiler cannot change its layout beforehand.
    """
    norm = editor.constant("norm", (sizes["m"], sizes["k"]), dtype, role=Role.NORM)
    x = editor.input("x", (sizes["k"], sizes["n"]), dtype, role=Role.FEATURES)
    result = editor.matmul(norm, x, "matmul")
    if dtype is DType.INT8:
        editor.change_tensor(result, dtype=editor.meta.precision)
    return result


def _matrix(editor: Editor, sizes: Sizes, dtype: DType, name: str = "x") -> str:
    return editor.input(name, (sizes["rows"], sizes["columns"]), dtype)


def _binary(type_: str) -> Build:
    def build(editor: Editor, sizes: Sizes, dtype: DType) -> str:
        a, b = _matrix(editor, sizes, dtype), _matrix(editor, sizes, dtype, "y")
        return editor.eltwise(type_, a, b, type_.lower())

    return build


def _unary(type_: str, **attrs: object) -> Build:
    def build(editor: Editor, sizes: Sizes, dtype: DType) -> str:
        return editor.unary(type_, _matrix(editor, sizes, dtype), type_.lower(), **attrs)

    return build


def _prelu(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return a leaky ReLU with one slope, as in GAT's scores."""
    x = _matrix(editor, sizes, dtype)
    slope = editor.constant("slope", (), dtype)
    return editor.op("PRelu", (x, slope), editor.tensors[x].shape, dtype, "prelu")


def _gather(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return `rows` rows of a table [table, features] in random order."""
    x = editor.input("x", (sizes["table"], sizes["features"]), dtype)
    index = editor.input("index", (sizes["rows"],), DType.INT32)
    return editor.gather(x, index, "gather")


def _scatter(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return sums of `rows` messages at random rows of a table of zeros.

    OpenVINO needs an index with the shape of the messages.
    """
    shape, table = (sizes["rows"], sizes["features"]), (sizes["table"], sizes["features"])
    messages = editor.input("x", shape, dtype)
    index = editor.input("index", shape, DType.INT32)
    blank = editor.constant("blank", table, dtype, density=0.0)
    inputs = (blank, index, messages)
    return editor.op("ScatterElementsUpdate", inputs, table, dtype, "scatter", axes=(0,), reduction="sum")


def _select(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return scores in the rows with a positive mask, and one low number elsewhere.

    The network computes the condition: devices convert booleans among the inputs first. It has
    one column, so that the comparison takes almost no time.
    """
    x = _matrix(editor, sizes, dtype)
    mask = editor.input("mask", (sizes["rows"], 1), dtype, role=Role.MASK, density=0.5)
    zero = editor.constant("zero", (1, 1), dtype, density=0.0)
    low = editor.constant("low", (1, 1), dtype)
    return editor.select(editor.eltwise("Greater", mask, zero, "greater"), x, low, "select")


def _greater(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return 1 for positive numbers, else 0: devices convert booleans that leave the network."""
    zero = editor.constant("zero", (1, 1), dtype, density=0.0)
    positive = editor.eltwise("Greater", _matrix(editor, sizes, dtype), zero, "greater")
    return editor.op("Convert", (positive,), editor.tensors[positive].shape, dtype, "convert")


def _reduce_sum(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    return editor.reduce("ReduceSum", _matrix(editor, sizes, dtype), (1,), "reduce", keep_dims=True)


def _reduce_max(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return the maximum over adjacent neighbours, as in SAGE-max."""
    x = editor.input("x", (sizes["rows"], sizes["neighbours"], sizes["features"]), dtype)
    return editor.reduce("ReduceMax", x, (1,), "reduce")


def _max_pool(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return the same maximum as a pooling over an image, as in GrAx3."""
    rows, neighbours, features = sizes["rows"], sizes["neighbours"], sizes["features"]
    x = editor.input("x", (1, rows, neighbours, features), dtype)
    window = {"kernel": (neighbours, 1), "strides": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0)}
    result = Tensor("maxpool", (1, rows, 1, features), dtype)
    editor.add_operator(Operator("maxpool", "MaxPool", (x,), ("maxpool",), window), [result])
    return result.name


def _copy(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return two halves concatenated row by row: each byte is read once and written once.

    No compiler can remove that: a reshape or a slice of the whole would take no time, and consecutive halves
    are written in place.
    """
    rows = sizes["bytes"] // (2 * _COPIED * int(dtype.bytes))
    halves = [editor.input(name, (rows, _COPIED), dtype) for name in ("x", "y")]
    return editor.op("Concat", halves, (rows, 2 * _COPIED), dtype, "concat", axes=(1,))


def _transpose(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    x = _matrix(editor, sizes, dtype)
    return editor.op("Transpose", (x,), (sizes["columns"], sizes["rows"]), dtype, "transpose", order=(1, 0))


def _chain(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return consecutive square products: the overhead per operator, without the launch."""
    size = sizes["size"]
    result = editor.input("x", (size, size), dtype, role=Role.FEATURES)
    for layer in range(sizes["layers"]):
        weight = editor.constant(f"weight{layer}", (size, size), dtype, role=Role.WEIGHT)
        result = editor.matmul(result, weight, f"matmul{layer}", transpose_b=True)
    return result


def _empty(editor: Editor, _: Sizes, dtype: DType) -> str:
    """Return the ReLU of 16 numbers: its time is the launch."""
    return editor.unary("Relu", editor.input("x", (1, 16), dtype), "relu")


_PLANE = ("rows", "columns")
_TABLE = ("rows", "table", "features")
_NEIGHBOURS = ("rows", "neighbours", "features")

OPERATORS: dict[str, Microbenchmark] = {
    "MatMul": Microbenchmark(("m", "k", "n"), _matmul, int8=True),
    "Aggregate": Microbenchmark(("m", "k", "n"), _aggregate, int8=True),
    **{name: Microbenchmark(_PLANE, _binary(name)) for name in ("Add", "Multiply", "Divide")},
    "Relu": Microbenchmark(_PLANE, _unary("Relu")),
    "Elu": Microbenchmark(_PLANE, _unary("Elu", alpha=1.0)),
    "PRelu": Microbenchmark(_PLANE, _prelu),
    "Softmax": Microbenchmark(_PLANE, _unary("Softmax", axes=(1,))),
    "LogSoftmax": Microbenchmark(_PLANE, _unary("LogSoftmax", axes=(1,))),
    "Gather": Microbenchmark(_TABLE, _gather),
    "ScatterElementsUpdate": Microbenchmark(_TABLE, _scatter),
    "Select": Microbenchmark(_PLANE, _select),
    "Greater": Microbenchmark(_PLANE, _greater),
    "ReduceSum": Microbenchmark(_PLANE, _reduce_sum),
    "ReduceMax": Microbenchmark(_NEIGHBOURS, _reduce_max),
    "MaxPool": Microbenchmark(_NEIGHBOURS, _max_pool),
    "Transpose": Microbenchmark(_PLANE, _transpose),
    "Copy": Microbenchmark(("bytes",), _copy, granule=2 * _COPIED * 4),
    "Chain": Microbenchmark(("layers", "size"), _chain),
    "Empty": Microbenchmark((), _empty),
}
"""Every micro-benchmark, by its operator."""


def _chunk(sizes: Sizes) -> int:
    """Return the width of a chunk; a `ConfigError` where chunks do not divide the features."""
    chunks, hidden = sizes.get("chunks", 1), sizes["hidden"]
    if chunks > hidden or hidden % chunks:
        allowed = f"a divisor of the {hidden} hidden features"
        raise ConfigError(f"`{chunks}`", file="aggregation", key="chunks", allowed=allowed)
    return hidden // chunks


def _message_passing(editor: Editor, sizes: Sizes, dtype: DType, scaled: bool = True) -> str:
    """Return sums of messages [nodes, hidden] as PyTorch Geometric computes them, chunk by chunk.

    A narrow row of a chunk is fetched with its whole cache line. PyTorch sorts wide messages by target and
    adds whole rows. It adds narrow messages number by number, edge after edge (cpu_scatter_gather_base_kernel
    in its ScatterGatherKernel.cpp), so that a row is looked up once.
    """
    nodes, edges, chunks, width = sizes["nodes"], sizes["edges"], sizes.get("chunks", 1), _chunk(sizes)
    x = editor.input("x", (nodes, max(width, _LINE_COLUMNS)), dtype)
    source, target = (editor.input(name, (edges,), DType.INT32) for name in ("source", "target"))
    messages = editor.op("Gather", (x, source), (edges, max(width, 2)), dtype, "gather", axes=(0,))
    names = [messages]
    if scaled:
        weight = editor.input("weight", (edges, 1), dtype)
        messages = editor.op("Multiply", (messages, weight), (edges, width), dtype, "scale")
        names.append(messages)
    if width >= _SORTED_FROM:
        names.append(_compressed(editor, (nodes, edges), (source, target), edges, dtype))
        result = editor.op("SparseMatMul", (names[-1], messages), (nodes, width), dtype, "sum")
    else:
        index = editor.input("index", (edges, width), DType.INT32)
        blank = editor.constant("blank", (nodes, width), dtype, density=0.0)
        inputs, shape = (blank, index, messages), (nodes, width)
        result = editor.op("ScatterElementsUpdate", inputs, shape, dtype, "sum", axes=(0,), reduction="sum")
    names.append(result)
    item = float(dtype.bytes)
    blocks = [edges * width * item] * (2 if scaled else 1)
    names += _take_pages(editor, "messages_pages", [*blocks, nodes * width * item])
    if chunks == 1:
        return result
    for name in names:
        editor.change_operator(name, repeats=chunks)
    _take_pages(editor, "joined_pages", [nodes * sizes["hidden"] * item])
    return editor.op("Concat", (result,) * chunks, (nodes, sizes["hidden"]), dtype, "join", axes=(1,))


def _take_pages(editor: Editor, name: str, blocks: Sequence[float]) -> list[str]:
    """Add page faults for blocks (B) that the C library does not keep; return the operator's name, if any."""
    pages = sum(int(size // _PAGE_BYTES) for size in blocks if size > _KEPT_BYTES)
    if not pages:
        return []
    size = editor.input(f"{name}_size", (1,), DType.INT32)
    operator = editor.op("TakePages", (size,), (pages,), DType.INT32, name)
    editor.outputs.append(operator)
    return [operator]


def _compressed(
    editor: Editor, shape: tuple[int, int], ends: tuple[str, str], edges: int, dtype: DType
) -> str:
    """Return a matrix in compressed rows, sorted from the edges."""
    fields = {"density": min(1.0, edges / (shape[0] * shape[1])), "storage": Storage.CSR}
    return editor.op("EdgesToCsr", ends, shape, dtype, "sort", tensor=fields, normalise="none")


def _csr_product(editor: Editor, sizes: Sizes, dtype: DType) -> str:
    """Return [nodes, hidden] as a product with a matrix in compressed rows, sorted from the edges."""
    nodes, edges = sizes["nodes"], sizes["edges"]
    x = editor.input("x", (nodes, sizes["hidden"]), dtype)
    source, target = (editor.input(name, (edges,), DType.INT32) for name in ("source", "target"))
    matrix = _compressed(editor, (nodes, nodes), (source, target), edges, dtype)
    _take_pages(editor, "sum_pages", [nodes * sizes["hidden"] * float(dtype.bytes)] * 2)
    return editor.op("SparseMatMul", (matrix, x), (nodes, sizes["hidden"]), dtype, "sum")


_GRAPH = ("nodes", "edges", "hidden")
AGGREGATIONS: dict[str, Microbenchmark] = {
    "MessagePassing": Microbenchmark((*_GRAPH, "chunks"), _message_passing),
    "MeanPassing": Microbenchmark((*_GRAPH, "chunks"), partial(_message_passing, scaled=False)),
    "CsrProduct": Microbenchmark(_GRAPH, _csr_product),
}
"""Aggregations that PyTorch Geometric runs: weighted sums, means, products in compressed rows."""


def benchmark_graph(
    operator: str, sizes: Sizes, dtype: DType = DType.FP32, floats: DType = DType.FP32
) -> Graph:
    """Return the network of one operator.

    Parameters
    ----------
    operator : str
        One of `OPERATORS` or `AGGREGATIONS`.
    dtype : DType, optional
        Number format of its operands: floating point, for products also int8.
    floats : DType, optional
        Floating-point format in a benchmark of int8.

    Raises
    ------
    UnknownNameError
        When there is no such operator or size.
    ConfigError
        When a size is missing, or the operator does not exist in the format.

    Examples
    --------
    >>> benchmark_graph("MatMul", {"m": 128, "k": 64, "n": 32}).macs
    262144.0
    """
    kind = _kind(operator)
    place = f"benchmark {operator}"
    for name in sizes:
        if name not in kind.sizes:
            raise UnknownNameError(f"size of {place}", name, kind.sizes)
    missing = [name for name in kind.sizes if name not in sizes]
    if missing:
        raise ConfigError(f"no size {', '.join(missing)}", file=place, allowed=", ".join(kind.sizes))
    for name, size in sizes.items():
        if size < 1 or size % kind.granule:
            allowed = "at least 1" if kind.granule == 1 else f"a multiple of {kind.granule}"
            raise ConfigError(f"`{size}`", file=place, key=name, allowed=allowed)
    if not dtype.is_float and not (kind.int8 and dtype is DType.INT8):
        allowed = "fp32, fp16, bf16" + (", int8" if kind.int8 else "")
        raise ConfigError(f"`{dtype.value}`", file=place, key="dtype", allowed=allowed)
    name, precision = benchmark_id(operator, sizes, dtype), dtype if dtype.is_float else floats
    editor = Editor(name, meta=GraphMeta(model=operator, form="benchmark", precision=precision))
    editor.outputs = [kind.build(editor, sizes, dtype), *editor.outputs]
    return editor.finish()


def benchmark_id(operator: str, sizes: Sizes, dtype: DType = DType.FP32) -> str:
    """Return the name of a benchmark in reports.

    Examples
    --------
    >>> benchmark_id("MatMul", {"m": 128, "k": 64, "n": 32}, DType.INT8)
    'MatMul-128x64x32-int8'
    >>> benchmark_id("Empty", {})
    'Empty'
    """
    shape = "x".join(str(sizes[name]) for name in _kind(operator).sizes)
    parts = [operator, shape, "" if dtype is DType.FP32 else dtype.value]
    return "-".join(part for part in parts if part)


def _kind(operator: str) -> Microbenchmark:
    known = OPERATORS | AGGREGATIONS
    if operator not in known:
        raise UnknownNameError("benchmark", operator, known)
    return known[operator]
