"""Labs of the course: solutions are accepted, wrong answers get a hint, bad files one message."""

import json
import runpy
from pathlib import Path

import pytest
from lab_mistakes import MISTAKES

import npusim
from npusim.cli.program import run
from npusim.course.labs import check_lab
from npusim.errors import NpusimError

REPOSITORY = Path(__file__).parents[1]
COURSE = REPOSITORY / "docs" / "course"
LABS = sorted(COURSE.glob("labs/*.py"))
FEW = ("lab01", "lab03", "lab06")
"""Labs of `make test`; `make slow` takes all."""
ALL = [pytest.param(lab, marks=[] if lab.stem in FEW else pytest.mark.slow, id=lab.stem) for lab in LABS]


def test_ten_labs_have_a_check_a_solution_and_a_mistake() -> None:
    names = [lab.stem for lab in LABS]
    assert len(names) == 10
    for folder in ("labs/checks", "solutions"):
        assert [path.stem for path in sorted(COURSE.glob(f"{folder}/*.py"))] == names
    assert list(MISTAKES) == names


@pytest.mark.few(1)
@pytest.mark.parametrize("lab", ALL)
def test_the_reference_solution_is_accepted(lab: Path) -> None:
    properties = check_lab(COURSE / "solutions" / lab.name)
    assert properties and all(each.holds for each in properties), properties[-1]


@pytest.mark.few(1)
@pytest.mark.parametrize("lab", ALL)
def test_a_wrong_answer_gets_a_hint(lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers, hint = MISTAKES[lab.stem]
    path = tmp_path / f"{lab.stem}-anna.py"
    path.write_text(answers)
    assert run(["learn", "check", str(path)]) == 1
    said = capsys.readouterr().out
    assert "no     " in said and hint in " ".join(said.split())


@pytest.mark.parametrize("lab", [LABS[0], *(pytest.param(lab, marks=pytest.mark.slow) for lab in LABS[1:])])
def test_an_untouched_lab_runs_in_every_form_and_asks_for_answers(lab: Path, tmp_path: Path) -> None:
    pytest.importorskip("marimo")
    runpy.run_path(str(REPOSITORY / "scripts" / "course_notebooks.py"))["main"](tmp_path, lab.name)
    for form in (lab, tmp_path / f"{lab.stem}.ipynb", tmp_path / f"{lab.stem}_marimo.py"):
        (entry,) = check_lab(form)
        assert not entry.holds and "set `" in entry.hint


@pytest.mark.laws
def test_a_notebook_of_jupyter_and_of_marimo_is_checked(tmp_path: Path) -> None:
    code = (COURSE / "solutions" / "lab01.py").read_text()
    cell = {"cell_type": "code", "source": ["%matplotlib inline\n", code]}
    (tmp_path / "lab01.ipynb").write_text(json.dumps({"cells": [cell]}))
    body = code.replace("\n", "\n    ")
    marimo = f"import marimo\napp = marimo.App()\n@app.cell\ndef _():\n    {body}\n    return\n"
    (tmp_path / "lab01_marimo.py").write_text(marimo)
    pytest.importorskip("marimo")
    forms = ("lab01.ipynb", "lab01_marimo.py")
    assert all(each.holds for form in forms for each in check_lab(tmp_path / form))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("busy_percent = = 3", "line 1: SyntaxError"),
        ("\nbusy_percent = nothing", "line 2: NameError"),
        ("import sys\nsys.exit(0)", "line 2: it ends Python"),
        ("import os\nos._exit(0)", "ended its process"),
        ("import os\nos._exit(71)", "ended its process before"),
        ("while True: pass", "more than 1 seconds"),
        ("x = bytearray(1 << 40)", "more than 2048 MiB"),
        ("busy_percent = object()", "answer cannot be checked"),
        ("busy_percent = float('nan')", "finite numbers"),
    ],
)
def test_a_file_that_fails_is_refused_in_one_message(body: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "lab01.py"
    path.write_text(body)
    with pytest.raises(NpusimError, match=says) as refusal:
        check_lab(path, 1.0 if "while" in body else 60.0)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check"], "allowed: a file"),
        (["check", "absent.py"], "no such file"),
        (["check", "{folder}/report.py"], "unknown lab"),
        (["check", "{folder}/lab01.ipynb"], "JSONDecodeError"),
        (["labs"], "allowed: a folder"),
        (["labs", "{folder}"], "exists"),
        (["roofline", "lab01.py"], "after `check` or `labs`"),
    ],
)
def test_bad_input_ends_with_status_2(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("report.py", "lab01.ipynb", "lab01.py"):
        (tmp_path / name).write_text("busy_percent = 1")
    assert run(["learn", *(word.format(folder=tmp_path) for word in words)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.laws
def test_answers_of_a_wrong_kind_are_wrong_answers(tmp_path: Path) -> None:
    path = tmp_path / "lab01.py"
    for answers, says in {
        "busy_percent = 'most'": "valid number",
        "busy_percent = 74.4\nrows, depth, columns = 0, 1, 1": "greater than 0",
        "busy_percent = 74.4\nrows, depth = 368, 368": "set `columns`",
    }.items():
        path.write_text(answers)
        last = check_lab(path)[-1]
        assert not last.holds and says in last.hint


def test_a_stranger_adds_a_lab_without_changing_npusim(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    check = "def check_sum(total: int):\n    yield total == 5, f'{total} is the sum', 'add 2 and 3'\n"
    (tmp_path / "checks" / "sums.py").write_text(check)
    path = tmp_path / "sums.py"
    for total in (5, 6):
        path.write_text(f"import numpy as np\ntotal = np.int64({total})")
        assert check_lab(path) == [(total == 5, f"{total} is the sum", "add 2 and 3")]


def test_labs_are_written_into_a_folder(tmp_path: Path) -> None:
    said: list[str] = []
    assert npusim.learn("labs", tmp_path / "mine", tell=said.append)
    assert [path.name for path in sorted((tmp_path / "mine").iterdir())] == [lab.name for lab in LABS]
    assert "npusim learn check" in said[0]
