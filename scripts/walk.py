"""Counts the files that a number, an operator, a technique and an axis pass: ``python scripts/walk.py [-v]``.

A file counts where a function that runs has what is followed in a variable (the value itself, its text, an
object that is called so, or a container of it) or in its code (one of its names), and where a table that is
loaded declares it. Compiled equations count as running. Following starts at the public call and ends with the
document of the answer.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import npusim

__all__ = ["FOLLOWED", "walk", "warm_up"]

PACKAGE = Path(npusim.__file__).parent
Test = Callable[[Any], bool]
_LOOKED_AT = 64
"""Elements of a container that are looked at."""


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return [*list(value)[:_LOOKED_AT], *list(value.values())[:_LOOKED_AT]]
    return list(value)[:_LOOKED_AT] if isinstance(value, list | tuple | set | frozenset) else ()


def _names(code: CodeType) -> set[str]:
    return {*code.co_names, *code.co_varnames, *_texts(code)}


def _texts(code: CodeType) -> set[str]:
    held = [
        one
        for const in code.co_consts
        for one in (const if isinstance(const, tuple | frozenset) else (const,))
    ]
    return {one for one in held if isinstance(one, str)}


def _declared(names: re.Pattern[str]) -> set[str]:
    """Return the loaded files whose tables, or whose compiled equations, have one of the names."""
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if not file.startswith(str(PACKAGE)):
            continue
        text = Path(file).read_text(encoding="utf-8")
        code = compile(text, file, "exec")
        names_in = _texts(code)
        if re.search(r"^@compiled", text, re.MULTILINE):
            names_in |= {name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)}
        if any(names.fullmatch(name) for name in names_in):
            found.add(file)
    return found


def walk(run: Callable[[], Any], is_it: Test, names: str) -> list[str]:
    """Return the files that what is followed passes, below the package.

    Parameters
    ----------
    run : callable
        The public call.
    is_it : callable
        Whether a value is what is followed.
    names : str
        Regular expression of its names in code.
    """
    pattern = re.compile(names)
    found: set[str] = set()
    named: dict[CodeType, bool] = {}

    def returned(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        file = code.co_filename
        if (
            event != "return"
            or file in found
            or not file.startswith(str(PACKAGE))
            or code.co_name == "<module>"
        ):
            return
        if code not in named:
            named[code] = any(pattern.fullmatch(name) for name in _names(code))
        held = frame.f_locals.values() if not named[code] else ()
        if named[code] or any(is_it(value) or any(map(is_it, _inside(value))) for value in list(held)):
            found.add(file)

    threading.setprofile(returned)
    sys.setprofile(returned)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return sorted(str(Path(file).relative_to(PACKAGE)) for file in found | _declared(pattern))


_SOC = "core-ultra-series2"
_SRAM, _TEXT = 1439 * 1024, "1439 KiB"


def _is_sram(value: Any) -> bool:
    if isinstance(value, str):
        return value == _TEXT
    try:
        return not isinstance(value, bool) and float(value) == _SRAM
    except (TypeError, ValueError):
        return False


def _is_softmax(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "softmax"
    return "Softmax" in (getattr(value, "type", None), getattr(value, "name", None))


def _is_symg(value: Any) -> bool:
    if isinstance(value, str):
        return value == "triangle" or "symg" in value.split("+")
    return getattr(value, "name", None) == "symg" or getattr(value, "storage", None) == "triangle"


_PATH = "npu.sram.per_tile"


def _is_axis(value: Any) -> bool:
    return value == _PATH if isinstance(value, str) else getattr(value, "path", None) == _PATH


def warm_up() -> None:
    """Import and compile what all walks need."""
    npusim.estimate(npusim.load_workload("gcn-citeseer"), npusim.load_soc("core-ultra-series1")).to_json()
    import_module("npusim.frontends.openvino_ir")
    import_module("npusim.explore.sweep")


def _of_sram() -> Any:
    network = npusim.apply(npusim.load_workload("gcn-cora"), "stagr")
    return npusim.estimate(network, npusim.load_soc(_SOC, {_PATH: _TEXT})).to_json()


def _of_softmax() -> Any:
    from onnx import TensorProto, helper, save

    from npusim.frontends.openvino_ir import import_model

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=1)], "softmax", [x], [y])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
        return npusim.estimate(import_model(path), npusim.load_soc(_SOC)).to_json()


def _of_symg() -> Any:
    network = npusim.apply(npusim.load_workload("gcn-cora"), "stagr+symg")
    return npusim.estimate(network, npusim.load_soc(_SOC)).to_json()


def _of_axis() -> Any:
    axes = {"techniques": {"values": ["stagr"]}, _PATH: {"values": ["1 MiB", "2 MiB"]}}
    space = {
        "schema": "npusim.space/1",
        "workload": "gcn-cora",
        "soc": _SOC,
        "axes": axes,
        "minimise": ["latency_s"],
    }
    with tempfile.TemporaryDirectory() as folder:
        return npusim.sweep(space, Path(folder) / "results")


FOLLOWED: dict[str, tuple[Callable[[], Any], Test, str]] = {
    "npu.sram.per_tile": (_of_sram, _is_sram, "per_tile|sram_tile_bytes"),
    "Softmax of an ONNX file": (_of_softmax, _is_softmax, "(?i)softmax"),
    "symg": (_of_symg, _is_symg, "(?i)symg|triangle|a_triangle_bytes|symg_transposed_rate"),
    "axis npu.sram.per_tile": (_of_axis, _is_axis, "column_values|AxisSpec|resolve_axes"),
}
"""What is followed: public call, test of a value, names in code."""


def main() -> None:
    """Print how many files each passes, and with ``-v`` which."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("-v", action="store_true", help="list the files")
    options = parser.parse_args()
    warm_up()
    for name, (run, is_it, names) in FOLLOWED.items():
        files = walk(run, is_it, names)
        print(f"{name}: {len(files)} files")
        for file in files if options.v else ():
            print(f"  {file}")


if __name__ == "__main__":
    main()
