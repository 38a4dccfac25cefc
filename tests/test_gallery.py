"""Every study of `examples/gallery` gives the sentence and the picture of docs/gallery.md."""

import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER, DOCS = ROOT / "examples" / "gallery", ROOT / "docs"
STUDIES = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem != "picture")
QUICK = ("deadline_clocks", "magnas_split", "zigzag_machine")
"""Run by `make test`; the others by `make slow`."""
MOST_S = 20.0
NEEDED = {"area_budget": "pymoo", "magnas_split": "pymoo"}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in STUDIES]
)
def test_a_study_writes_the_picture_and_sentence_of_the_gallery(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip(NEEDED.get(name, "npusim"))
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "argv", [name, str(tmp_path)])
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    sentence = capsys.readouterr().out.strip()
    assert sentence.endswith(".") and any(letter.isdigit() for letter in sentence)
    assert " ".join(sentence.split()) in " ".join((DOCS / "gallery.md").read_text().split())
    picture = (tmp_path / f"{name}.svg").read_text()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert picture == (DOCS / "gallery" / f"{name}.svg").read_text()


def test_fifteen_studies_have_a_picture_and_a_text():
    assert len(STUDIES) == 15
    page = (DOCS / "gallery.md").read_text()
    assert all(f"gallery/{name}.svg" in page for name in STUDIES)
    assert sorted(file.stem for file in (DOCS / "gallery").glob("*.svg")) == STUDIES


@pytest.mark.calm
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_takes_less_than_twenty_seconds(name, tmp_path):
    started = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(FOLDER / f"{name}.py"), str(tmp_path)]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path, capture_output=True)
    assert time.monotonic() - started < MOST_S
