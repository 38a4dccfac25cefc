"""The README shows what its commands print; `python tests/test_cli_readme.py` pastes their output again."""

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest

from npusim.cli.program import run

README = Path(__file__).resolve().parents[1] / "README.md"
SHOWN = re.compile(r"(```console\n\$ npusim (?P<command>.*)\n)(?P<output>[^`]*)(```)")


def printed(command: str) -> str:
    """What a command prints into a pipe that is 80 columns wide."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert run(shlex.split(command)) == 0
    return out.getvalue()


def refreshed(text: str) -> str:
    return SHOWN.sub(lambda shown: shown[1] + printed(shown["command"]) + shown[4], text)


def test_the_output_in_the_readme_is_that_of_a_real_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = README.read_text(encoding="utf-8")
    assert SHOWN.search(text)
    assert text == refreshed(text), "run: python tests/test_cli_readme.py"


def test_the_readme_shows_the_command_of_make_demo(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    (command,) = re.findall(r"^demo:.*\n\t\$\(BIN\)/npusim (.*)$", makefile, flags=re.MULTILINE)
    assert f"$ npusim {command}\n" in README.read_text(encoding="utf-8")


def test_every_command_in_the_readme_exists() -> None:
    from npusim.cli.program import command_names

    commands = re.findall(r"^(?:\$ )?npusim ([a-z]+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert commands
    assert set(commands) <= set(command_names())


TUTORIALS = sorted((README.parent / "docs").glob("tutorial_*.md"))
BLOCK = re.compile(r"^```(?P<kind>console|yaml)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_there_is_a_tutorial_for_each_kind_of_user() -> None:
    named = {path.stem.removeprefix("tutorial_") for path in TUTORIALS}
    assert named == {"architect", "gnn_engineer", "student"}
    assert all(f"docs/{path.name}" in README.read_text(encoding="utf-8") for path in TUTORIALS)


@pytest.mark.slow
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_every_command_of_a_tutorial_runs(
    tutorial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = 0
    for block in BLOCK.finditer(tutorial.read_text(encoding="utf-8")):
        if block["kind"] == "yaml":
            name = block["text"].splitlines()[0].removeprefix("# ")
            Path(name).write_text(block["text"], encoding="utf-8")
            continue
        for command in block["text"].splitlines():
            assert command.startswith("npusim "), command
            assert run(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
            commands += 1
    assert commands >= 4


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    README.write_text(refreshed(README.read_text(encoding="utf-8")), encoding="utf-8")
