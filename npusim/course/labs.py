"""Labs: a student's file runs in a child process, and a check compares its answers with the model.

A lab is a percent script such as `lab03.py`. Its check is a module of the same name in the folder `checks`
beside it, with a function `check_NAME` for each part of the lab: the parameters name the variables that the
student sets, and it yields a tuple for each property: whether it holds, what should hold, and a hint.
"""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pydantic import ValidationError, validate_call

import npusim
from npusim.confined import confined
from npusim.errors import FileError, NpusimError, UnknownNameError
from npusim.locate import resource

SECONDS = 120.0
"""Time for a student's file, and the same for its check."""
MOST_BYTES = 2 << 30
"""Memory for each of them."""
LABS = ("docs", "course", "labs")


class Property(NamedTuple):
    """A property that answers must have."""

    holds: bool
    claim: str
    """What should hold, with the figure that npusim computed."""
    hint: str
    """What to do if it does not hold."""


def check_lab(path: Path, seconds: float = SECONDS) -> list[Property]:
    """Return the properties of a student's answers, up to the first that does not hold.

    Parameters
    ----------
    path : Path
        The lab as percent script, Jupyter notebook or marimo notebook; its name begins with the lab's name.
    seconds : float
        Time for the file, and for its check.

    Raises
    ------
    NpusimError
        There is no such file or lab, or the file fails or exceeds its time (`seconds`) or memory.
    """
    if not path.is_file():
        raise FileError(str(path), "no such file", "`npusim learn labs FOLDER` writes the labs")
    check = _check_of(path)
    _compile()
    limits: dict[str, Any] = {"seconds": seconds, "most_bytes": MOST_BYTES, "what": str(path)}
    limits["remedy"] = "look for an endless loop or a very large number"
    written = confined("npusim.course.labs:answers", str(path), str(check), **limits)
    if not written:
        raise NpusimError(f"{path}: it ended its process before its answers were read")
    judged = confined("npusim.course.labs:judge", str(check), json.loads(written), **limits)
    return [Property(*entry) for entry in json.loads(judged)]


def _compile() -> None:
    """Compile the model, once on this machine: it takes more time and memory than a lab may have."""
    if "NPUSIM_KERNELS" not in os.environ:
        os.environ["NPUSIM_KERNELS"] = "compiled"
        npusim.estimate("gcn-cora", interval=False)
        del os.environ["NPUSIM_KERNELS"]


def _check_of(path: Path) -> Path:
    """Return the check of the lab with whose name that of the file begins; shipped labs come first."""
    folders = (path.parent / "checks", resource(*LABS, "checks"))
    checks = {each.stem: each for folder in folders for each in sorted(folder.glob("*.py"))}
    matching = [name for name in checks if path.stem.startswith(name)]
    if not matching:
        raise UnknownNameError("lab", path.stem, checks)
    return checks[max(matching, key=len)]


def answers(answer: BinaryIO, path: str, check: str) -> None:
    """Run a student's file and write the variables that its check asks for, as JSON."""
    namespace: dict[str, Any] = {"__name__": "lab", "__file__": path}
    try:
        exec(compile(_source(Path(path)), path, "exec"), namespace)
        app = namespace.get("app")
        if type(app).__module__.startswith("marimo."):
            namespace |= app.run()[1]  # type: ignore[union-attr]
    except MemoryError:
        raise
    except BaseException as error:
        raise NpusimError(f"{path}: {_place(path, error)}") from None
    asked = {name for parameters in _parts(Path(check)).values() for name in parameters}
    values = {name: namespace[name] for name in asked & namespace.keys()}
    try:
        answer.write(json.dumps(values, allow_nan=False, default=lambda value: value.tolist()).encode())
    except (AttributeError, TypeError, ValueError) as error:
        allowed = "finite numbers, text, lists and mappings can be checked"
        raise NpusimError(f"{path}: an answer cannot be checked ({error}); {allowed}") from None


def _source(path: Path) -> str:
    """Return the code of a script, or of a notebook's code cells without commands to the notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    return re.sub(r"(?m)^[%!]", "# ", "\n\n".join("".join(cell["source"]) for cell in cells))


def _place(path: str, error: BaseException) -> str:
    """Return what went wrong in a student's file, with its line."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    place = f"line {line}: " if line else ""
    if isinstance(error, SystemExit):
        return f"{place}it ends Python (exit); take that out"
    return f"{place}{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _parts(check: Path) -> dict[str, list[str]]:
    """Return the names of the variables that each function of a check asks for."""
    body = ast.parse(check.read_text(encoding="utf-8")).body
    functions = (each for each in body if isinstance(each, ast.FunctionDef))
    parts = {each.name: [argument.arg for argument in each.args.args] for each in functions}
    return {name: asked for name, asked in parts.items() if name.startswith("check_")}


def judge(answer: BinaryIO, check: str, values: dict[str, Any]) -> None:
    """Run a check and write the properties up to the first that does not hold, as JSON."""
    properties: list[Property] = []
    for entry in _properties(Path(check), values):
        properties.append(entry)
        if not entry.holds:
            break
    answer.write(json.dumps([[bool(each.holds), each.claim, each.hint] for each in properties]).encode())


def _properties(check: Path, values: dict[str, Any]) -> Iterator[Property]:
    functions = runpy.run_path(str(check))
    for part, names in _parts(check).items():
        missing = ", ".join(f"`{name}`" for name in names if values.get(name) is None)
        if missing:
            yield Property(False, f"an answer for {missing}", f"set {missing}; keep the names")
            return
        try:
            entries = validate_call(functions[part])(**{name: values[name] for name in names})
            yield from (Property(*entry) for entry in entries)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            yield Property(False, "every answer is of the right kind", f"`{where}`: {first['msg']}")
        except NpusimError as error:
            yield Property(False, "npusim accepts the answers", str(error))


def write_labs(folder: Path) -> list[Path]:
    """Copy the labs into a folder, and return their paths; a `FileError` says that one exists."""
    labs = sorted(resource(*LABS).glob("*.py"))
    targets = [folder / lab.name for lab in labs]
    for target in filter(Path.exists, targets):
        raise FileError(str(target), "exists, perhaps with answers", "name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for lab, target in zip(labs, targets, strict=True):
        target.write_text(lab.read_text(encoding="utf-8"), encoding="utf-8")
    return targets
