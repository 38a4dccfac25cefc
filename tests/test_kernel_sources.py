"""What compiled functions may do: no array is lost, and idle threads leave others their time."""

import ast
import os
from pathlib import Path

import pytest

import npusim
from npusim.compiling.kernels import start_threads, thread_count

NUMBERS = {"None", "float", "int", "bool", "tuple[float, float]", "tuple[float, float, float]"}


def own(path: Path, name: str) -> str:
    """A name as all files know it: private ones belong to their file."""
    return f"{path}:{name}" if name.startswith("_") else name


@pytest.mark.laws
def test_a_kernel_that_counts_no_references_calls_none_that_returns_a_new_array():
    """Nobody would free it. That such a kernel makes one itself, numba refuses."""
    makers, called = set(), {}
    for path in Path(npusim.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            kinds = [ast.unparse(one).partition("(")[0] for one in node.decorator_list]
            if "compiled" in kinds:
                calls = (one.func for one in ast.walk(node) if isinstance(one, ast.Call))
                names = (f.id if isinstance(f, ast.Name) else getattr(f, "attr", "") for f in calls)
                called[own(path, node.name)] = {own(path, name) for name in names}
            elif any(kind.startswith("compiled") for kind in kinds) and node.returns is not None:
                makers |= set() if ast.unparse(node.returns) in NUMBERS else {own(path, node.name)}
    assert len(called) > 200 and {"search_rows", "new_batch", "new_sums"} <= makers
    assert {name: of & makers for name, of in called.items() if of & makers} == {}


def test_starting_threads_leaves_the_environment_as_it_was(monkeypatch):
    for value in (None, "ACTIVE"):
        if value is None:
            monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        else:
            monkeypatch.setenv("OMP_WAIT_POLICY", value)
        start_threads.__wrapped__()
        assert os.environ.get("OMP_WAIT_POLICY") == value
        assert thread_count() >= 1
