"""The walks of docs/architecture.md: no more files than the page says."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("onnx")
pytest.importorskip("openvino")

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Which files")[2]
TITLES = {
    "npu.sram.per_tile": "`npu.sram.per_tile`",
    "Softmax of an ONNX file": "A Softmax of an ONNX file",
    "symg": "`symg`",
    "axis npu.sram.per_tile": "An axis `npu.sram.per_tile` of a sweep",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("walk", ROOT / "scripts" / "walk.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.warm_up()
    return module


@pytest.mark.parametrize("name", list(TITLES))
def test_a_walk_is_no_longer_than_the_page_says(name: str, script: ModuleType) -> None:
    stated = re.search(rf"\*\*{re.escape(TITLES[name])}: (\d+) files\.\*\*", PAGE)
    assert stated is not None
    files = script.walk(*script.FOLLOWED[name])
    assert len(files) <= int(stated[1]), files
