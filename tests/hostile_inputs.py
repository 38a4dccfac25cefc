"""Hostile inputs (`tests/hostile/*.yaml`), one a line: what is handed over and what must come back.

A case is a mapping. `run` is the command line, `says` a regular expression that its message holds, `status`
the exit status (2 unless it says otherwise). `most_s` bounds the processor time of a refusal whose cost must
not grow with the size: such a case runs with both kinds of kernels. Every other key is a file: its text, or
`{MAKER: value}` with a maker of this module.
"""

import json
import os
import re
import shlex
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "hostile"
WORDS = ("run", "says", "status", "needs", "most_s")
Case = dict[str, Any]

SPACE = {
    "schema": "npusim.space/1",
    "workload": "gcn-cora",
    "techniques": "stagr",
    "axes": {"npu.tiles": {"from": 1, "to": 4, "step": 1}, "npu.dsp.per_tile": {"values": [1, 2]}},
    "keep": "all",
}
MEASUREMENT = {
    "schema": "npusim.measurement/1",
    "npusim": "0.1.0",
    "device": {"kind": "cpu", "name": "A chip"},
    "rows": [
        {
            "id": f"MatMul {m}",
            "model": {"kind": "benchmark", "operator": "MatMul", "sizes": {"m": m, "k": 256, "n": 256}},
            "latency_s": {"median_s": m / 1e6, "low_s": m / 1.1e6, "high_s": m / 0.9e6, "repetitions": 20},
        }
        for m in range(64, 64 * 11, 64)
    ],
}
SOC = {"schema": "npusim.soc/1", "extends": "core-ultra-series2", "name": "mine", "title": "Mine"}
STATISTICS = {"name": "mine", "source": "none", "nodes": 100, "edges": 400, "features": 16, "classes": 4}
TRACE = {
    "traceEvents": [
        {"name": "conv", "cat": "Layer", "ph": "X", "ts": 0.0, "dur": 5.0, "pid": 0, "tid": 0, "args": {}},
        {"name": "conv/t", "cat": "DPU", "ph": "X", "ts": 0.0, "dur": 5.0, "pid": 1, "tid": 0, "args": {}},
    ]
}


def cases() -> Iterator[tuple[str, Case]]:
    """Yield every case with its name: the group, its number there and the command."""
    for path in sorted(FOLDER.glob("*.yaml")):
        for number, case in enumerate(
            yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        ):
            yield f"{path.stem}-{number}-{case['run'][:60]}", case


def rule(name: str, case: Case) -> tuple[str, str]:
    """Return what a case is an example of: the group of the file and the command."""
    return name.partition("-")[0], case["run"].split()[0]


LARGE = {
    "deep": "[" * 30_000,
    "deeper": "{a: " * 20_000,
    "dashes": "- " * 30_000,
    "path": "a." * 30_000 + "b",
    "long": "x" * 300,
    "many": ",".join(map(str, range(1, 2001))),
    "names": ",".join(f"x{i}" for i in range(5_000)),
    "parens": "(" * 50_000,
    "columns": ",".join("1" for _ in range(200_000)),
}
"""Words of a command line, by the name that stands for them in braces."""


def arguments(case: Case) -> list[str]:
    """Return the words of a command line, those in braces written out."""
    text = re.compile("[{](" + "|".join(LARGE) + ")[}]")
    return [text.sub(lambda found: LARGE[found[1]], word) for word in shlex.split(case["run"])]


def complaints(case: Case, status: int, output: str, error: str) -> list[str]:
    """Return what is wrong with how a command ended."""
    wanted, found = case.get("status", 2), []
    told = error if wanted else output
    if status != wanted:
        found.append(f"status {status}")
    if wanted and (not error.startswith("error: ") or output):
        found.append("one message on standard error alone")
    if wanted and len(error.splitlines()) > MOST_LINES:
        found.append(f"{len(error.splitlines())} lines")
    if "Traceback" in error or "bug in npusim" in error:
        found.append("a traceback")
    if not re.search(case["says"], told, re.DOTALL):
        found.append(f"does not say {case['says']}")
    if CONTROL.search(output + error):
        found.append("control characters")
    return found


MOST_LINES = 14
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def files_of(case: Case) -> dict[str, Any]:
    return {name: what for name, what in case.items() if name not in WORDS}


def place(folder: Path, case: Case) -> None:
    """Put the files of a case into a folder."""
    for name, what in files_of(case).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, str):
            path.write_text(what, encoding="utf-8")
        else:
            ((maker, value),) = what.items()
            MAKERS[maker](path, value)


def _changed(base: dict[str, Any]) -> Callable[[Path, dict[str, Any]], None]:
    """Return the maker of a document with other values at some paths; null takes a key out."""

    def make(path: Path, changes: dict[str, Any]) -> None:
        data = json.loads(json.dumps(base))
        for key, value in changes.items():
            put(data, key.split("/"), value)
        path.write_text(json.dumps(data), encoding="utf-8")

    return make


def put(data: Any, keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        data = data[int(key)] if isinstance(data, list) else data.setdefault(key, {})
    if isinstance(data, list):
        data[int(keys[-1])] = value
    elif value is None:
        data.pop(keys[-1], None)
    else:
        data[keys[-1]] = value


def _repeated(path: Path, parts: list[Any]) -> None:
    """Write texts and numbers: `[a, 3, b]` is `aaab`."""
    text = ""
    for i, part in enumerate(parts):
        if isinstance(part, str):
            text += part * (parts[i + 1] if i + 1 < len(parts) and isinstance(parts[i + 1], int) else 1)
    path.write_text(text, encoding="utf-8")


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _sheet(path: Path, swaps: list[str]) -> None:
    """Write a shipped file with some texts replaced: `[configs/x.yaml, old, new, ...]`."""
    text = (Path(__file__).parents[1] / swaps[0]).read_text(encoding="utf-8")
    for old, new in zip(swaps[1::2], swaps[2::2], strict=True):
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text, encoding="utf-8")


@cache
def swept(root: Path) -> Path:
    """Return a folder of results: eight points in four chunks."""
    import npusim

    npusim.sweep(SPACE, root / "results", chunk=2)
    npusim.sweep(SPACE | {"workload": "gat-cora"}, root / "others", chunk=2)
    return root


_RESULTS: list[Path] = []
_HELD: list[Any] = []
"""The folder of results, which goes with the process."""


def results() -> Path:
    """Return a folder of results that goes with the process."""
    if not _RESULTS:
        _HELD.append(TemporaryDirectory())
        _RESULTS.append(Path(_HELD[0].name))
    return swept(_RESULTS[0])


def _results(path: Path, damages: list[list[Any]]) -> None:
    """Write the results of a sweep, with damages `[file, what]`."""
    shutil.copytree(results() / "results", path)
    for name, damage, *values in damages:
        _damage(path / name, damage, values)


def _damage(file: Path, damage: str, values: list[Any]) -> None:
    if damage == "set":
        data = json.loads(file.read_text())
        put(data, values[0].split("/"), values[1])
        file.write_text(json.dumps(data))
    elif damage == "truncate":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    elif damage == "text":
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(values[0])
    elif damage == "flip":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(bytes(data))
    elif damage == "copy":
        shutil.copy(file.parent / values[0], file)
    elif damage == "other":
        shutil.copy(swept(_RESULTS[0]) / "others" / "chunks" / file.name, file)
    elif damage == "folder":
        file.unlink(missing_ok=True)
        file.mkdir()
    elif damage == "remove":
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    else:
        raise KeyError(damage)


def _planetoid(path: Path, what: str) -> None:
    """Write raw files of a data set of which one runs code, or is none."""
    import pickle

    raw = path / "cora" / "raw"
    raw.mkdir(parents=True)
    content = {
        "code": b"cos\nsystem\n(S'touch ran'\ntR.",
        "global": pickle.dumps(Path),
        "text": b"hello",
        "number": pickle.dumps(7),
        "empty": b"",
        "mark": b"\x80\x02" + b"(" * 100_000 + b".",
        "huge": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60),
        "reduce": pickle.dumps(range(9)),
    }[what]
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.cora.{part}").write_bytes(content)


def _layer(number: int, kind: str, data: str, inputs: list[list[int]], outputs: list[list[int]]) -> str:
    def ports(shapes: list[list[int]], first: int) -> str:
        sizes = ("".join(f"<dim>{size}</dim>" for size in shape) for shape in shapes)
        return "".join(
            f"<port id='{i}' precision='FP16'>{dims}</port>" for i, dims in enumerate(sizes, first)
        )

    into, out = ports(inputs, 0), ports(outputs, len(inputs))
    borders = (f"<input>{into}</input>" if into else "") + (f"<output>{out}</output>" if out else "")
    return f"<layer id='{number}' name='l{number}' type='{kind}' version='opset1'>{data}{borders}</layer>"


def _ir(path: Path, layers: list[str], edges: list[tuple[int, int, int, int]]) -> None:
    names = ("from-layer", "from-port", "to-layer", "to-port")
    written = ("".join(f" {n}='{v}'" for n, v in zip(names, edge, strict=True)) for edge in edges)
    body = f"<layers>{''.join(layers)}</layers><edges>{''.join(f'<edge{one}/>' for one in written)}</edges>"
    path.write_text(f"<?xml version='1.0'?><net name='n' version='11'>{body}</net>", encoding="utf-8")


def _parameter(number: int, shape: list[int]) -> str:
    data = f"<data shape='{','.join(map(str, shape))}' element_type='f16'/>"
    return _layer(number, "Parameter", data, [], [shape])


def _product(path: Path, sizes: list[int]) -> None:
    """Write an IR of one product of `[m, k, n]`."""
    m, k, n = sizes
    left, right, out = [m, k], [k, n], [m, n]
    data = "<data transpose_a='false' transpose_b='false'/>"
    layers = [_parameter(0, left), _parameter(1, right), _layer(2, "MatMul", data, [left, right], [out])]
    _ir(path, [*layers, _layer(3, "Result", "", [out], [])], [(0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0)])


def _chain(path: Path, operators: int) -> None:
    """Write an IR of so many operators in a row."""
    shape = [1, 16]
    chain = [_layer(i, "Tanh" if i % 2 else "Sigmoid", "", [shape], [shape]) for i in range(1, operators + 1)]
    layers = [_parameter(0, shape), *chain, _layer(operators + 1, "Result", "", [shape], [])]
    _ir(path, layers, [(i, min(i, 1), i + 1, 0) for i in range(operators + 1)])


def _devices(path: Path, number: int) -> None:
    _changed(SOC)(path, {"devices": {f"n{i}": {"like": "npu"} for i in range(number)}})


def _npz(path: Path, kind: str) -> None:
    """Write an archive of arrays that is damaged, holds objects, or unpacks to more than it should."""
    import numpy as np

    if kind == "objects":
        np.savez(path, x=np.array([object()], dtype=object))
        return
    values = 6 << 28 if kind == "bomb" else 4
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as file:
            claimed = {"lie": 1 << 50}.get(kind, values)
            header = {"descr": "<f4", "fortran_order": False, "shape": (claimed,)}
            np.lib.format.write_array_header_1_0(file, header)
            file.write(bytes(16 if kind != "bomb" else 0))
        if kind == "bomb":
            archive.filelist[0].file_size = 4 * values
    if kind == "cut":
        path.write_bytes(path.read_bytes()[:-30])


ONNX_BOMBS = ("Expand", "ConstantOfShape", "Range", "Tile")
"""Operators of constants that make 20,000 million values of two."""


def _onnx(path: Path, operator: str) -> None:
    """Write an ONNX model that adds the sum of very many constants to its input."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    values = {
        "one": np.array([1], np.float32),
        "many": np.array([20_000_000_000], np.int64),
        "none": np.array(0, np.int64),
        "last": np.array(20_000_000_000, np.int64),
        "step": np.array(1, np.int64),
    }
    operands = {"ConstantOfShape": ["many"], "Range": ["none", "last", "step"]}.get(operator, ["one", "many"])
    nodes = [
        helper.make_node(operator, operands, ["e"]),
        helper.make_node("ReduceSum", ["e"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    shapes = {"x": [2, 8], "y": None}
    borders = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, shape) for n, shape in shapes.items()]
    constants = [numpy_helper.from_array(values[name], name) for name in operands]
    graph = helper.make_graph(nodes, "g", borders[:1], borders[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


MAKERS: dict[str, Callable[[Path, Any], None]] = {
    "repeat": _repeated,
    "zeros": _sparse,
    "bytes": lambda path, text: path.write_bytes(text.encode("latin-1")) and None,
    "encoded": lambda path, pair: path.write_bytes(pair[1].encode(pair[0])) and None,
    "link": lambda path, target: path.symlink_to(target),
    "fifo": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "shipped": _sheet,
    "soc": _changed(SOC),
    "gnn": _changed({"model": "gcn", "dataset": "cora"}),
    "statistics": _changed(STATISTICS),
    "space": _changed(SPACE),
    "measurement": _changed(MEASUREMENT),
    "trace": _changed(TRACE),
    "results": _results,
    "planetoid": _planetoid,
    "product": _product,
    "onnx": _onnx,
    "npz": _npz,
    "chain": _chain,
    "devices": _devices,
}
