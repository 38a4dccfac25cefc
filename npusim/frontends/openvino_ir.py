"""Import of an OpenVINO IR or ONNX file as an operator graph."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from npusim.errors import (
    DynamicShapeError,
    ModelFileError,
    ShapeError,
    UnfixedSizeError,
    UnknownNameError,
    shown,
)
from npusim.files import optional_module
from npusim.frontends.model_structure import (
    LARGEST_XML,
    ModelStructure,
    read_ir_structure,
    read_onnx_structure,
    user_line,
)
from npusim.frontends.translation import Origin, translate
from npusim.graph import Graph
from npusim.ops import DType, Role

_NO_REPORTS = "TF_BUILD"  # set where programs are built and tested; OpenVINO's telemetry is silent there
_READERS = {".xml": "ir", ".onnx": "onnx"}
_MOST_NAMED = 3  # operators in a note on sizes
SUFFIXES = tuple(_READERS)
"""Endings of the files that `import_model` reads."""
_NO_RULE = re.compile(r"No conversion rule found for operations: (.*)")
_OPERATOR = re.compile(r"ONNX node '<Node\((\w+)\): ([^>]*)>'")


@contextmanager
def unreported() -> Iterator[None]:
    """Switch off OpenVINO's telemetry of imports and conversions.

    A simulator reports its use to nobody. Besides, reports are sent by processes that threads fork, which
    numba's own threads may not survive.
    """
    before = os.environ.get(_NO_REPORTS)
    os.environ[_NO_REPORTS] = "npusim"
    try:
        yield
    finally:
        os.environ.pop(_NO_REPORTS)
        if before is not None:
            os.environ[_NO_REPORTS] = before


_LARGE_BYTES, _VERY_LARGE_BYTES = 1 << 20, 1 << 28
"""Weights, and sum of weights, from which on they are set aside while a model is optimised."""


def openvino(purpose: str = "model files are read with it") -> Any:
    """Return the module openvino, or say how to install it.

    Raises
    ------
    FileError
        Where it is not installed.
    """
    with unreported():
        return optional_module("openvino", '"npusim[openvino]"', f", and {purpose}")


def refuse_missing_openvino() -> None:
    """Raise the error of `openvino` where it is not installed, without importing it."""
    if find_spec("openvino") is None:
        openvino()


def import_model(
    path: str | Path,
    shapes: Mapping[str, Sequence[int]] | None = None,
    roles: Mapping[str, Role] | None = None,
    precision: DType | None = DType.FP16,
    origin: Origin | None = None,
) -> Graph:
    """Read an OpenVINO IR (`.xml`, with its `.bin` beside it) or an ONNX file.

    Constant subgraphs, shape arithmetic, decompression and operators that change nothing are folded.

    Parameters
    ----------
    shapes : mapping of str to sequence of int, optional
        Fixed shapes for inputs that the model leaves open.
    roles : mapping of str to Role, optional
        What inputs mean where their name (x, edge_index, adj, norm, mask ...) does not say it.
    precision : DType, optional
        Format in which wider floating-point tensors are held. None: that of the file.
    origin : Origin, optional
        Filled with the `openvino.Model`, optimised, and the nodes that the graph was translated from.

    Raises
    ------
    ModelFileError
        When the file is missing, empty, truncated or no model.
    ShapeError
        When an input or tensor has no fixed shape (`DynamicShapeError`), or `shapes` does not fit.
    UnknownNameError
        When `shapes` or `roles` name an input that the model does not have.
    """
    path = Path(path)
    model, structure = _read(path)
    try:
        notes = fix_shapes(model, path.stem, shapes or {}, roles or {})
        problem = "" if shapes else structure.declared(_result_shapes(model, path.suffix))
        if problem:
            raise ModelFileError(str(path), problem, "mend it, or give its inputs by --shape")
        optimise(model)
        if origin is not None:
            multiply_by_reciprocals(model)
        return translate(model, path.stem, roles or {}, precision, origin, notes)
    except RuntimeError as error:
        raise ModelFileError(str(path), f"cannot be optimised: {_reason(error)}", _remedy(path)) from None
    except DynamicShapeError:
        raise
    except ShapeError as error:
        node = structure.find(error.operator) if isinstance(error, UnfixedSizeError) else None
        line = user_line(node.origin) if node is not None else ""
        raise ShapeError(f"{path}: {error}" + (f"; it comes from {line}" if line else "")) from None


def _read(path: Path) -> tuple[Any, ModelStructure]:
    """Return the model in a file, as it is, and what the file says of itself."""
    _check_file(path)
    openvino()
    from openvino.frontend import FrontEndManager

    structure = read_ir_structure(path) if path.suffix == ".xml" else read_onnx_structure(path)
    structure.check(path)
    # Core.read_model would try the readers of all formats on a damaged file, and some of them write to
    # standard error.
    reader = FrontEndManager().load_by_framework(_READERS[path.suffix])
    try:
        return reader.convert(reader.load(str(path))), structure
    except Exception as error:  # the readers raise exceptions of their own, without a common base
        missing, reason = _NO_RULE.search(str(error)), _reason(error)
        remedy = "mend that operator" if reason.startswith("operator ") else _remedy(path)
        if missing:
            first = missing[1].split(",")[0].strip().partition("-")[0]  # listed as `domain.Type-version`
            domain, _, kind = first.rpartition(".")
            node = next((n for n in structure.nodes if (n.domain, n.type) == (domain, kind)), None)
            reason = (
                f"{node.label} is unknown to OpenVINO" if node else f"OpenVINO has no operator {missing[1]}"
            )
            remedy = "export it with operators that OpenVINO reads, of the domains ai.onnx and com.microsoft"
        raise ModelFileError(str(path), f"cannot be read as a model: {reason}", remedy) from None


def _result_shapes(model: Any, suffix: str) -> dict[str, tuple[int, ...]]:
    """Return the fixed shapes of a model's results, by the names that its file declares shapes for."""
    shapes: dict[str, tuple[int, ...]] = {}
    if suffix == ".onnx":
        for output in model.outputs:
            if output.get_partial_shape().is_static:
                shapes.update(dict.fromkeys(output.get_names(), tuple(output.get_shape())))
        return shapes
    names = Counter(node.get_friendly_name() for node in model.get_ops())
    for node in model.get_ops():
        name = node.get_friendly_name()
        if names[name] == 1 and node.get_output_size() == 1 and node.get_output_partial_shape(0).is_static:
            shapes[name] = tuple(node.get_output_shape(0))
    return shapes


def graph_of_model(
    model: Any,
    name: str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    roles: Mapping[str, Role] | None = None,
    precision: DType | None = DType.FP16,
    origin: Origin | None = None,
    examples: Mapping[str, Any] | None = None,
) -> Graph:
    """Translate an `openvino.Model` in memory as it is; parameters and errors as for `import_model`.

    Sizes that depend on values are those of the examples, arrays by input.
    """
    notes = fix_shapes(model, name, shapes or {}, roles or {})
    if origin is not None:
        multiply_by_reciprocals(model)
    try:
        notes += _fix_sizes(model, examples or {})
    except RuntimeError:  # an empty list counts as one entry, which need not fit: upper bounds are costed
        model.validate_nodes_and_infer_types()
    try:
        return translate(model, name, roles or {}, precision, origin, notes)
    finally:
        model.validate_nodes_and_infer_types()


def _fix_sizes(model: Any, examples: Mapping[str, Any]) -> list[str]:
    """Set the sizes that depend on values to those of the examples, until the model is validated again.

    Returns
    -------
    list of str
        A note that names the operators whose results have such a size, the first ones; none without.
    """
    from npusim.frontends.openvino_write import run_model

    ports = {input_name(port): port for port in model.inputs}
    if ports.keys() - examples.keys():
        return []
    open_sizes, fixed, ops = list[str](), set[str](), openvino().opset15
    while True:
        first = []
        for node in model.get_ordered_ops():
            if node.get_name() not in fixed and node.get_type_name() not in ("Parameter", "Constant"):
                node.validate_and_infer_types()
                is_first = all(port.get_partial_shape().is_static for port in node.inputs())
                is_open = any(output.get_partial_shape().is_dynamic for output in node.outputs())
                first += [node] if is_first and is_open else []
        if not first:
            more = f" and {len(open_sizes) - _MOST_NAMED} more" if len(open_sizes) > _MOST_NAMED else ""
            named = ", ".join(open_sizes[:_MOST_NAMED]) + more
            return [f"sizes that depend on values are those of the example: {named}"] if named else []
        wanted = [
            # A slice has the size that its bounds say: what is sliced need not be computed.
            node.input_values()[1:]
            if node.get_type_name() == "Slice"
            else [ops.shape_of(output).output(0) for output in node.outputs()]
            for node in first
        ]
        known = {
            node.get_friendly_name(): node.input(0).get_shape()
            for node in model.get_ordered_ops()
            if node.get_type_name() == "ShapeOf" and node.get_input_partial_shape(0).is_static
        }
        results = [ops.result(output) for outputs in wanted for output in outputs]
        clone = openvino().Model(results, [port.get_node() for port in ports.values()], "sizes").clone()
        for node in clone.get_ordered_ops():
            if node.get_friendly_name() in known:  # nothing is computed for its size alone
                shape = np.asarray(known[node.get_friendly_name()], node.get_element_type().to_dtype())
                node.output(0).replace(ops.constant(shape).output(0))
        values = iter(run_model(clone, examples))
        for node, sources in zip(first, wanted, strict=True):
            sizes: list[Any] = [next(values) for _ in sources]
            if node.get_type_name() == "Slice":
                sizes = [_sliced(node.input(0).get_shape(), *sizes)]
            fixed.add(node.get_name())
            for output, size in zip(node.outputs(), sizes, strict=True):
                extents = [max(1, int(extent)) for extent in size]
                if output.get_partial_shape().is_static:
                    continue
                node.set_output_type(
                    output.get_index(), output.get_element_type(), openvino().PartialShape(extents)
                )
                open_sizes.append(f"{node.get_friendly_name()} ({node.get_type_name()}) {extents}")


def _sliced(
    shape: Sequence[int], starts: Any, stops: Any, steps: Any, axes: Sequence[int] | None = None
) -> list[int]:
    """Return the shape of a Slice."""
    sizes = list(shape)
    for axis, *bounds in zip(range(len(starts)) if axes is None else axes, starts, stops, steps, strict=True):
        sizes[axis] = len(range(*slice(*map(int, bounds)).indices(sizes[axis])))
    return sizes


def fix_shapes(
    model: Any, name: str, shapes: Mapping[str, Sequence[int]], roles: Mapping[str, Role]
) -> list[str]:
    """Fix the shapes of a model's inputs; refuse unknown names and dimensions that stay open.

    Returns
    -------
    list of str
        A note for each fixed size of the file that was replaced.
    """
    known = {input_name(port): port for port in model.inputs}
    for key in (*shapes, *roles):
        if key not in known:
            raise UnknownNameError("input", key, known)
    notes = []
    for key, shape in shapes.items():
        declared = known[key].get_partial_shape()
        _check_shape(key, shape, declared)
        pairs = zip(declared, shape, strict=True) if declared.rank.is_static else ()
        if any(size.is_static and size.get_length() != wanted for size, wanted in pairs):
            notes.append(f"--shape replaces sizes that the file fixes: {key} {declared}, now {list(shape)}")
    if shapes:
        try:
            model.reshape({known[key]: list(shape) for key, shape in shapes.items()})
        except RuntimeError as error:
            raise ShapeError(f"{name}: the model does not take these shapes: {_reason(error)}") from None
    for key, port in known.items():
        sizes = port.get_partial_shape()
        if sizes.is_static and not all(sizes.to_shape()):
            raise ShapeError(
                f"input {shown(key)} has the shape {sizes} and holds nothing; sizes are at least 1: "
                f"--shape '{key}=[...]'"
            )
    sizes_of = {key: port.get_partial_shape() for key, port in known.items()}
    dynamic = {key: str(sizes) for key, sizes in sizes_of.items() if sizes.is_dynamic}
    if dynamic:
        raise DynamicShapeError(dynamic)
    return notes


def _check_shape(name: str, shape: Sequence[int], declared: Any) -> None:
    """Refuse a shape of another rank than the model's, or sizes below 1."""
    if declared.rank.is_static and len(shape) != declared.rank.get_length():
        raise ShapeError(
            f"--shape {name}={list(shape)}: {len(shape)} sizes for an input that has "
            f"{declared.rank.get_length()}: {declared}"
        )
    if any(size < 1 for size in shape):
        raise ShapeError(f"--shape {name}={list(shape)}: sizes are at least 1")


def optimise(model: Any) -> None:
    """Run OpenVINO's common optimisations on a model in place, which every plugin runs before its own.

    They fold batch normalisation, division by constants and identities, and join the parts of GELU, layer
    normalisation and their kin, so that an ONNX file and the IR that OpenVINO makes of it give one graph.
    """
    from openvino._offline_transformations import apply_moc_transformations

    weights = _set_aside(model)
    nodes = 0
    while nodes != len(model.get_ops()):  # what one pass joins another may find more to join with
        nodes = len(model.get_ops())
        apply_moc_transformations(model, cf=False, smart_reshape=False)
    for stand_in, output in weights:
        for target in stand_in.output(0).get_target_inputs():
            target.replace_source_output(output)
        model.remove_parameter(stand_in)


def multiply_by_reciprocals(model: Any) -> None:
    """Make products of a model's divisions by constants, as the graph has them.

    OpenVINO's CPU device (2026.4) returns wrong values where a sum of products takes such a division in, as
    in `torch_geometric.nn.TransformerConv`.
    """
    ops: Any = openvino().opset15
    for node in model.get_ops():
        if node.get_type_name() == "Divide" and node.get_element_type().is_real():
            dividend, divisor = node.input_values()
            if _is_constant(divisor) and not _is_constant(dividend):
                reciprocal = ops.divide(ops.constant(1.0, node.get_element_type()), divisor)
                product = ops.multiply(dividend, reciprocal)
                product.set_friendly_name(node.get_friendly_name())
                node.output(0).replace(product.output(0))


def _is_constant(output: Any) -> bool:
    """Whether an output follows from constants alone."""
    node = output.get_node()
    if not node.get_input_size():
        return bool(node.get_type_name() == "Constant")
    return node.get_type_name() == "Convert" and _is_constant(node.input_value(0))


def _set_aside(model: Any) -> list[tuple[Any, Any]]:
    """Replace the weights of a very large model by inputs; return each input with the weight.

    The optimisations convert fp16 weights to fp32 and read all of them in every round. For a language model
    that takes seconds and twice the file's memory. Weights that an operator might be folded into stay.
    """
    weights = []
    for node in model.get_ops():
        if node.get_type_name() == "Constant" and node.get_element_type().is_real():
            output = node.output(0)
            readers = list(output.get_target_inputs())
            if len(readers) == 1 and readers[0].get_node().get_type_name() == "Convert":
                output = readers[0].get_node().output(0)
                readers = list(output.get_target_inputs())
            if node.get_byte_size() >= _LARGE_BYTES and all(map(_reads_weights_alone, readers)):
                weights.append((node.get_byte_size(), output, readers))
    if sum(size for size, _, _ in weights) < _VERY_LARGE_BYTES:
        return []
    ov = openvino("it holds the model")
    stand_ins = []
    for _, output, readers in weights:
        stand_in = ov.op.Parameter(output.get_element_type(), output.get_partial_shape())
        for reader in readers:
            reader.replace_source_output(stand_in.output(0))
        model.add_parameters([stand_in])
        stand_ins.append((stand_in, output))
    return stand_ins


def _reads_weights_alone(reader: Any) -> bool:
    """Whether an operator reads weights that no later operator can be folded into."""
    node, kind = reader.get_node(), reader.get_node().get_type_name()
    if kind == "Gather":
        return bool(reader.get_index() == 0)
    if kind != "MatMul" or reader.get_index() != 1:
        return False
    after = [target.get_node() for target in node.output(0).get_target_inputs()]
    scaling = [reading for reading in after if reading.get_type_name() in ("Multiply", "Divide")]
    factors = [port.get_source_output().get_node() for op in scaling for port in op.inputs()]
    return all(factor.get_type_name() != "Constant" for factor in factors)


def input_name(port: Any) -> str:
    """Return the name of a model's input: its tensor name, or else its node's."""
    return str(port.get_any_name()) if port.get_names() else str(port.get_node().get_friendly_name())


def _check_file(path: Path) -> None:
    """Refuse problems that OpenVINO reports badly: no file, no content, an IR without its weights."""
    if path.suffix not in SUFFIXES:
        problem = f"is not one of {', '.join(SUFFIXES)}"
        raise ModelFileError(str(path), problem, "export the model as OpenVINO IR or ONNX")
    _check_regular(path)
    if path.stat().st_size == 0:
        raise ModelFileError(str(path), "is empty", _remedy(path))
    if path.suffix != ".xml":
        return
    if path.stat().st_size > LARGEST_XML:
        raise ModelFileError(str(path), f"has more than {LARGEST_XML >> 20} MiB, and is no IR", _remedy(path))
    weights = path.with_suffix(".bin")
    if weights.exists():
        _check_regular(weights)
    elif b'type="Const"' in path.read_bytes():
        problem = f"its weights {weights.name} are missing"
        raise ModelFileError(str(path), problem, "put the .bin file beside the .xml")


def _check_regular(path: Path) -> None:
    """Refuse a folder, a pipe or a device."""
    if not path.is_file():
        problem = "is no regular file" if path.exists() else "does not exist"
        problem = "is a directory" if path.is_dir() else problem
        raise ModelFileError(str(path), problem, "check the path")


def _remedy(path: Path) -> str:
    return "export or copy it again" + (" with its .bin file" if path.suffix == ".xml" else "")


def _reason(error: Exception) -> str:
    """Return the operator and the last useful line of OpenVINO's message; first lines name source files."""
    text = str(error).partition("\nSummary:")[0]
    lines = [line.strip() for line in text.splitlines()]
    places = ("Exception from", "Check ", "src/", "FrontEnd API failed", "While validating")
    telling = [line for line in lines if line and not line.startswith(places)]
    operator = _OPERATOR.search(text)
    named = f"operator {shown(operator[2])} ({operator[1]}): " if operator else ""
    return named + (telling[-1] if telling else str(error).strip())[:300]
