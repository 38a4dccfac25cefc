"""The documentation site builds without a warning, has every call and command, loads nothing foreign."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import npusim
from npusim.cli.program import command_names

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site is built with mkdocs, of the extra `dev`")
    folder: Path = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_command_and_call_has_its_entry(site: Path) -> None:
    commands = (site / "reference/commands/index.html").read_text()
    assert all(f'id="npusim-{name}"' in commands for name in command_names())
    calls = (site / "reference/calls/index.html").read_text()
    named = [name for name in dir(npusim) if not name.startswith("_")]
    offered = [name for name in named if f'id="npusim.{name}"' in calls]
    assert {"estimate", "whatif", "sweep", "from_pyg"} <= set(offered)


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img|iframe|link)\b[^>]*(?:src|href)="(https?://[^"]*)"', page.read_text()
        )
        assert loaded == [], page
