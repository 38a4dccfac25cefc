"""The walks of docs/architecture.md: no more files than the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
pytest.importorskip("openvino")

ROOT = Path(__file__).parents[1]
TITLES = {
    "npu.sram.per_tile": "`npu.sram.per_tile`",
    "Softmax of an ONNX file": "A Softmax of an ONNX file",
    "symg": "`symg`",
    "axis npu.sram.per_tile": "An axis `npu.sram.per_tile` of a sweep",
}


def test_a_walk_is_no_longer_than_the_page_says() -> None:
    """In an interpreter of its own, for modules that other tests load would count."""
    run = [sys.executable, str(ROOT / "scripts" / "walk.py")]
    printed = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    counted = {name: int(count) for name, count in re.findall(r"^(.*): (\d+) files$", printed, re.MULTILINE)}
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    stated = {
        name: int(count)
        for name, title in TITLES.items()
        for count in re.findall(rf"\*\*{re.escape(title)}: (\d+) files\.\*\*", page)
    }
    assert set(counted) == set(stated) == set(TITLES)
    assert {name: count for name, count in counted.items() if count > stated[name]} == {}
