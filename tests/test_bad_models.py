"""Models that cannot be: each is one message with file, operator and what is allowed, before any work."""

import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.errors import InfeasibleError, NpusimError

ov = pytest.importorskip("openvino")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from npusim.cli.program import run  # noqa: E402
from npusim.frontends.model_structure import read_ir_structure  # noqa: E402
from npusim.frontends.openvino_ir import import_model  # noqa: E402

ops = ov.opset13


def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, list(shape))


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), name=f"the_{kind}", **attributes)


def constant(*shape: int, dims: Sequence[int] = ()) -> Any:
    """A weight `w`; `dims` are those that the file claims, where they differ."""
    made = numpy_helper.from_array(np.ones(shape, np.float32), "w")
    if dims:
        del made.dims[:]
        made.dims.extend(dims)
    return made


def integers(name: str, *numbers: int) -> Any:
    return numpy_helper.from_array(np.array(numbers, np.int64), name)


def outside(location: str, **entries: int) -> Any:
    """A weight `w` of 4 x 8 whose data lie in another file."""
    made = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4, 8])
    made.data_location = TensorProto.EXTERNAL
    for key, number in {"location": location, **entries}.items():
        entry = made.external_data.add()
        entry.key, entry.value = key, str(number)
    return made


def model(nodes: Sequence[Any], x: Any, y: Any, *constants: Any, opset: int = 13, version: int = 8) -> bytes:
    graph = helper.make_graph(list(nodes), "g", [x], [y], list(constants))
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.acme", 1)]
    made = helper.make_model(graph, opset_imports=domains)
    made.ir_version = version
    return bytes(made.SerializeToString())


X, Y, OPEN = value("x", 1, 4), value("y", 1, 4), value("y", *"ab")
IMAGE, ANY = value("x", 1, 3, 8, 8), value("y", *"abcd")
RELU, PRODUCT, CONV = node("Relu", "x"), node("MatMul", "x w"), node("Conv", "x w")
GOOD = model([PRODUCT], X, value("y", 1, 8), constant(4, 8))
ONNX: dict[str, tuple[bytes, str]] = {
    "truncated": (GOOD[: len(GOOD) // 2], "truncated, damaged or no ONNX file"),
    "one byte short": (GOOD[:-1], "truncated, damaged or no ONNX file"),
    "corrupted": (bytes(b ^ 0x55 * (i % 7 == 0) for i, b in enumerate(GOOD)), "truncated, damaged"),
    "text": (b"hello", "truncated, damaged or no ONNX file"),
    "zeros": (bytes(4096), "truncated, damaged or no ONNX file"),
    "a cycle": (
        model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Abs", "b")], X, Y),
        "a cycle: `the_Add` -> `the_Relu` -> `the_Add`",
    ),
    "a loop to itself": (model([node("Add", "x a", "a"), node("Relu", "a")], X, Y), "`the_Add` -> `the_Add`"),
    "a tensor of nobody": (model([node("Add", "x nobody")], X, Y), r"`the_Add` \(Add\) reads `nobody`"),
    "two writers": (model([RELU, node("Abs", "x")], X, Y), "`the_Relu` .* `the_Abs` .* both write `y`"),
    "an output of nobody": (model([RELU], X, value("z", 1, 4)), '"z" was declared .* not produced'),
    "a negative size": (model([RELU], value("x", 1, -4), Y), r"input `x` has the shape \[1, -4\]; sizes"),
    "a size of zero": (model([RELU], value("x", 0, 4), value("y", 0, 4)), r"`x` .* \[0,4\] .* at least 1"),
    "an empty result": (
        model([node("Slice", "x s s", "z"), node("Relu", "z")], X, OPEN, integers("s", 1)),
        r"`y` \(Relu\): the model's result \[0, 4\] holds nothing",
    ),
    "another result": (
        model([PRODUCT], X, value("y", 1, 9), constant(4, 8)), r"declared \[1, 9\], .* \[1, 8\]"
    ),
    "an unknown operator": (model([node("Foo", "x")], X, Y), r"`the_Foo` \(Foo\) is unknown to OpenVINO"),
    "an unknown domain": (
        model([node("Foo", "x", domain="com.acme")], X, Y),
        r"`the_Foo` \(com\.acme\.Foo\) is unknown .* domains ai\.onnx",
    ),
    "an unknown format": (model([RELU], X, Y, version=99), "ONNX format is 99; known are 1 to 14"),
    "no format": (model([RELU], X, Y, version=0), "ONNX format is 0; known are 1 to 14"),
    "an unknown operator set": (model([RELU], X, Y, opset=999), "operator set is 999; known are 1 to 28"),
    "operands that differ": (
        model([PRODUCT], value("x", 1, 5), OPEN, constant(4, 8)), r"\(MatMul\): .*dimension=5 .*dimension=4"
    ),
    "channels that differ": (model([CONV], IMAGE, ANY, constant(4, 5, 3, 3)), r"\(Conv\): .*\(3\).*\(5\)"),
    "a kernel larger than the image": (
        model([CONV], value("x", 1, 3, 2, 2), ANY, constant(4, 3, 5, 5)), r"\(Conv\): Kernel .* larger"
    ),
    "a stride of zero": (
        model([node("Conv", "x w", strides=[0, 0])], IMAGE, ANY, constant(4, 3, 3, 3)), r"Conv.*: Strides has"
    ),
    "a negative kernel": (
        model([node("MaxPool", "x", kernel_shape=[-2, 2])], IMAGE, ANY), r"\(MaxPool\): Kernel .* larger"
    ),
    "an axis that is none": (model([node("Concat", "x x", axis=7)], X, OPEN), r"\(Concat\): Axis 7 out of"),
    "a shape of more": (
        model([node("Reshape", "x s")], X, OPEN, integers("s", 3, 3)), r"Reshape.*\[3,3\] is incompatible"
    ),
    "sizes that overflow": (
        model([node("Tile", "x s")], X, OPEN, integers("s", 2**62, 2**62)), r"\(Tile\): its result"
    ),
    "a constant of negative size": (model([PRODUCT], X, OPEN, constant(4, 8, dims=[-4, 8])), "tensor 'w'"),
    "a constant that is short": (model([PRODUCT], X, OPEN, constant(4, 8, dims=[4000, 8])), "tensor 'w'"),
    "a constant that overflows": (model([PRODUCT], X, OPEN, constant(4, 8, dims=[2**40] * 2)), "tensor 'w'"),
    "no data": (model([PRODUCT], X, OPEN, outside("no.dat")), "constant `w`: .*`no.dat` does not exist"),
    "data outside": (model([PRODUCT], X, OPEN, outside("../y.dat")), "`w`: .*`../y.dat` is outside"),
    "data elsewhere": (model([PRODUCT], X, OPEN, outside("/etc/passwd")), "`w`: .*`/etc/passwd` is outside"),
    "a folder of data": (model([PRODUCT], X, OPEN, outside("folder")), "`w`: .*`folder` is no regular file"),
    "data beyond the end": (
        model([PRODUCT], X, OPEN, outside("w.dat", offset=99, length=128)), "`w`: .*bytes 99 to 227 of 128"
    ),
    "data before the start": (
        model([PRODUCT], X, OPEN, outside("w.dat", offset=-1, length=128)), "`w`: .*bytes -1 to 127 of 128"
    ),
    "data of another length": (model([PRODUCT], X, OPEN, outside("w.dat", length=64)), "initializer 'w'"),
    "text as a tensor": (
        model([node("Identity", "x")], value("x", 2, kind=TensorProto.STRING), value("y", 2, kind=8)),
        r"'x' \(Parameter\): tensors of string",
    ),
}  # fmt: skip


def message(path: Path, **options: Any) -> str:
    """The one line that a model is refused with; it names the file."""
    with pytest.raises(NpusimError) as caught:
        import_model(path, **options)
    text = str(caught.value)
    assert str(path) in text and "\n" not in text and caught.value.exit_status == 2
    return text


@pytest.mark.few(12)
@pytest.mark.parametrize("case", ONNX)
def test_an_onnx_file_that_cannot_be_is_refused_in_one_line(
    case: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content, complaint = ONNX[case]
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    (tmp_path / "w.dat").write_bytes(bytes(128))
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    assert re.search(complaint, message(path))
    assert sorted(tmp_path.iterdir()) == before
    assert capfd.readouterr() == ("", "")


def test_the_models_that_the_bad_ones_were_made_of_are_good(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    (tmp_path / "w.dat").write_bytes(bytes(128))
    for content in (GOOD, model([PRODUCT], X, value("y", 1, 8), outside("w.dat"))):
        path.write_bytes(content)
        assert import_model(path).macs == 32


@pytest.fixture(scope="module")
def ir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The XML of a product and an activation; its weights lie beside it."""
    path = tmp_path_factory.mktemp("ir") / "model.xml"
    x = ops.parameter([1, 4], np.float32, name="x")
    product = ops.matmul(x, ops.constant(np.ones((8, 4), np.float32)), False, True, name="product")
    ov.save_model(ov.Model([ops.relu(product, name="relu")], [x], "net"), path, compress_to_fp16=False)
    return path.read_text()


def swap(*pairs: str) -> Callable[[str], str]:
    """A change of the XML: each of some texts, found once or more, by another."""

    def change(text: str) -> str:
        for old, new in zip(pairs[::2], pairs[1::2], strict=True):
            assert old in text
            text = text.replace(old, new)
        return text

    return change


IR: dict[str, tuple[Callable[[str], str], str]] = {
    "a negative size": (swap('shape="1,4"', 'shape="1,-4"'), r"`x` \(Parameter\) has the size -4; sizes"),
    "a size in words": (swap('shape="1,4"', 'shape="1,four"'), r"`x` \(Parameter\) has the size `four`"),
    "a size that overflows": (swap('shape="1,4"', f'shape="1,{2**70}"'), "`x` .* below 2.62"),
    "a size of zero": (
        swap('shape="1,4"', 'shape="0,4"', "<dim>1</dim>", "<dim>0</dim>"), r"`x` has the shape \[0,4\]"
    ),
    "another result": (swap("<dim>8</dim>", "<dim>9</dim>"), "is declared .*9.*, but its operator makes .*8"),
    "data beyond the end": (swap('size="128"', 'size="12800"'), "Incorrect weights"),
    "an unknown version": (swap('version="11">', 'version="99">'), "the IR is 99; known are 10 to 11"),
    "an unknown operator": (swap('type="ReLU"', 'type="Foo"'), "operation with type: Foo"),
    "an unknown operator set": (swap('"ReLU" version="opset1"', '"ReLU" version="opset99"'), "opset99"),
    "a cycle": (
        swap('from-layer="0" from-port="0"', 'from-layer="3" from-port="1"'), "`product` -> `relu`"
    ),
    "an edge to nobody": (swap('to-layer="3"', 'to-layer="33"'), "leads to layer 33, which does not exist"),
    "an edge from nobody": (swap('from-layer="0"', 'from-layer="77"'), "reads `77:0`, which is neither"),
    "one number twice": (swap('layer id="1"', 'layer id="0"'), "both have the id 0"),
    "entities": (lambda text: '<!DOCTYPE a [<!ENTITY a "b">]>' + text, "declares XML entities"),
    "depth": (swap("<layers>", "<layers>" + "<a>" * 30000), "more than 200 deep"),
    "a web page": (lambda _: "<html><body>404</body></html>", "begins with <html>, an IR with <net>"),
    "an unknown format": (swap('element_type="f32"', 'element_type="f99"'), "f99"),
}  # fmt: skip


@pytest.mark.few(8)
@pytest.mark.parametrize("case", IR)
def test_an_ir_that_cannot_be_is_refused_in_one_line(
    case: str, ir: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change, complaint = IR[case]
    path = tmp_path / "model.xml"
    text = ir if "<?xml" not in ir else ir.partition("?>")[2].lstrip()
    path.write_text(change(text))
    path.with_suffix(".bin").write_bytes(np.ones(32, np.float32).tobytes())
    assert re.search(complaint, message(path))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: os.mkfifo(path), "is no regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
        (lambda path: path.symlink_to(path), "does not exist"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"\0"), "cannot be read as a model"),
    ],
    ids=["folder", "pipe", "device", "link to itself", "empty", "one byte"],
)
def test_what_is_no_file_is_refused_by_its_kind(
    suffix: str, make: Callable[[Path], object], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / f"model{suffix}"
    make(path)
    assert complaint in message(path)


def test_weights_that_are_no_file_are_refused(ir: str, tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    path.write_text(ir)
    os.mkfifo(path.with_suffix(".bin"))
    with pytest.raises(NpusimError, match=r"model\.bin: is no regular file"):
        import_model(path)


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ([3, 4, 4], r"3 sizes for an input that has 2: \[\?,4\]"),
        ([4], "1 sizes for an input that has 2"),
        ([0, 4], "sizes are at least 1"),
        ([-3, 4], "sizes are at least 1"),
        ([3, 5], "does not take these shapes"),
    ],
)
def test_a_shape_that_the_input_does_not_have_is_refused(
    shape: list[int], complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model([PRODUCT], value("x", "n", 4), value("y", "n", 8), constant(4, 8)))
    assert import_model(path, {"x": [3, 4]}).macs == 96
    assert re.search(complaint, message(path, shapes={"x": shape}))


def test_a_batch_larger_than_memory_is_refused_with_what_would_do(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model([RELU], value("x", "n", 1000), value("y", "n", 1000)))
    graph = import_model(path, {"x": [10**9, 1000]})
    with pytest.raises(InfeasibleError, match=r"smaller batch .* --set dram.capacity="):
        npusim.estimate(graph, "core-ultra-series2")


def test_the_command_ends_with_status_two_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, result = tmp_path / "model.onnx", tmp_path / "result.json"
    path.write_bytes(ONNX["a cycle"][0])
    assert run(["estimate", str(path), "-o", str(result)]) == 2
    assert not result.exists()
    error = capsys.readouterr().err
    assert "a cycle" in error and "Traceback" not in error


@pytest.mark.parametrize("shift", range(7))
def test_a_size_at_the_edge_of_a_block_of_the_file_is_one_size(tmp_path: Path, shift: int) -> None:
    sizes = "<dim>1234567</dim>" * 20_000
    path = tmp_path / "long.xml"
    path.write_text(
        f'<net name="{"x" * shift}" version="11"><layers><layer id="0" name="a" type="ReLU" version="opset1">'
        f'<output><port id="0" precision="FP32">{sizes}</port></output></layer></layers><edges/></net>'
    )
    assert set(read_ir_structure(path).outputs["a"]) == {1234567}


@pytest.mark.parametrize("written", ["doc_string", "metadata"])
def test_an_exporters_stack_trace_names_the_line_of_a_size_that_values_make(
    written: str, tmp_path: Path
) -> None:
    trace = '  File "/home/me/net.py", line 7, in forward\n    i = torch.arange(n)\n'
    made = helper.make_node("Range", ["zero", "x", "one"], ["y"], name="the_Range")
    if written == "doc_string":
        made.doc_string = "/home/me/net.py(7): forward\n/x/site-packages/torch/jit.py(9): trace\n"
    else:
        made.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    scalars = [numpy_helper.from_array(np.array(n, np.int64), name) for n, name in ((0, "zero"), (1, "one"))]
    path = tmp_path / "model.onnx"
    kind = TensorProto.INT64
    path.write_bytes(model([made], value("x", kind=kind), value("y", "n", kind=kind), *scalars))
    assert message(path).endswith("it comes from /home/me/net.py:7, in forward")


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=60)
def test_an_onnx_file_with_some_other_bytes_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(GOOD)
    for place, byte in changes:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "fuzzed.onnx"
    path.write_bytes(bytes(content))
    try:
        import_model(path)
    except NpusimError as error:
        assert error.exit_status == 2


@given(st.data())
@settings(max_examples=60)
def test_an_ir_with_some_other_letters_is_read_or_refused(ir: str, data: st.DataObject) -> None:
    path = Path(tempfile.gettempdir()) / f"npusim-fuzzed-{os.getpid()}.xml"
    place = data.draw(st.integers(0, len(ir) - 1))
    letters = data.draw(st.text("<>/=\"'0123456789-abcxyz ", max_size=3))
    path.write_text(ir[:place] + letters + ir[place + data.draw(st.integers(0, 3)) :])
    path.with_suffix(".bin").write_bytes(np.ones(32, np.float32).tobytes())
    try:
        import_model(path)
    except NpusimError as error:
        assert error.exit_status == 2
    finally:
        path.unlink()
        path.with_suffix(".bin").unlink()
