"""Where results go: whole files or none, plain text in pipes, colours in terminals, every encoding."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from npusim.cli.output import write_whole
from npusim.cli.program import run

FULL = Path("/dev/full")
needs_full_disk = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full, which only Linux has")


def npusim_bytes(*arguments: str, **environment: str) -> tuple[bytes, bytes]:
    clean = {
        key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    done = subprocess.run(
        [sys.executable, "-m", "npusim", *arguments], capture_output=True, env=clean | environment, check=True
    )
    return done.stdout, done.stderr


def test_a_file_gets_the_document_and_the_terminal_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "estimate.txt"
    assert run(["estimate", "gcn-cora", "--format", "json", "-o", str(target)]) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(target.read_text(encoding="utf-8"))["schema"] == "npusim.estimate/1"


def test_the_ending_of_the_file_decides_where_no_format_is_named(tmp_path: Path) -> None:
    as_json, as_table = tmp_path / "estimate.json", tmp_path / "estimate.txt"
    assert run(["estimate", "gcn-cora", "-o", str(as_json)]) == 0
    assert run(["estimate", "gcn-cora", "-o", str(as_table)]) == 0
    json.loads(as_json.read_text(encoding="utf-8"))
    assert as_table.read_text(encoding="utf-8").startswith("gcn-cora on core-ultra-series2")


def test_a_table_in_a_file_has_no_colours_and_no_blanks_at_line_ends(tmp_path: Path) -> None:
    target = tmp_path / "whatif.txt"
    assert run(["whatif", "gcn-cora", "--stack", "stagr", "-o", str(target)]) == 0
    text = target.read_text(encoding="utf-8")
    assert "\033" not in text
    assert not any(line != line.rstrip() for line in text.split("\n"))


def test_a_dash_is_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "socs", "--format", "json", "-o", "-"]) == 0
    json.loads(capsys.readouterr().out)


def test_a_directory_is_refused_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["estimate", "no-such-workload", "-o", str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err


def test_a_missing_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "socs", "-o", str(tmp_path / "none" / "socs.txt")]) == 2
    assert f"there is no directory {tmp_path / 'none'}" in capsys.readouterr().err


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.write_bytes(b"old")
    target.chmod(0o640)
    write_whole(target, b"new")
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"new", 0o640)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no file sizes")
def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    target = tmp_path / "result"
    target.write_bytes(b"old")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
        "from npusim.cli import main; main()"
    )
    command = [sys.executable, "-B", "-c", code, "list", "ops", "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{target}: cannot be written (File too large); nothing was changed" in done.stderr
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["result"]


@needs_full_disk
@pytest.mark.parametrize(
    "arguments",
    [["list", "ops"], ["list", "ops", "--format", "json"], ["--help"], ["--version"]],
    ids=" ".join,
)
def test_a_full_disk_behind_standard_output_is_told(arguments: list[str]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "npusim", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@needs_full_disk
def test_a_device_is_written_to_and_not_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "socs", "-o", "/dev/null"]) == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert run(["list", "socs", "-o", str(FULL)]) == 2
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
    ids=["terminal", "NO_COLOR", "dumb"],
)
@pytest.mark.parametrize("arguments", [["list", "socs"], ["list", "sox"]], ids=["page", "error"])
def test_a_terminal_gets_colours_unless_told_otherwise(
    arguments: list[str], environment: dict[str, str], coloured: bool
) -> None:
    pty = pytest.importorskip("pty")
    chunks: list[bytes] = []
    master, slave = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "npusim", *arguments], stdout=slave, stderr=slave, env=clean | environment
    )
    os.close(slave)
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    process.wait()
    os.close(master)
    colour_codes = any(code in b"".join(chunks) for code in (b"\033[1;3", b"\033[31m", b"\033[36m"))
    assert colour_codes == coloured


@pytest.mark.few(1)
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_every_encoding_can_show_the_pages_and_a_pipe_gets_no_colours(encoding: str) -> None:
    variables = {"PYTHONIOENCODING": encoding, "TERM": "xterm-256color"}
    page, errors = npusim_bytes("whatif", "gcn-cora", "--stack", "stagr", **variables)
    text = page.decode(encoding)
    assert errors == b"" and "\033" not in text
    assert "?" not in text
    assert ("#" in text) == (encoding != "utf-8")
    npusim_bytes("--help", PYTHONIOENCODING=encoding)


def test_json_is_utf8_in_every_encoding() -> None:
    assert npusim_bytes("list", "socs", "--format", "json", PYTHONIOENCODING="ascii") == npusim_bytes(
        "list", "socs", "--format", "json", PYTHONIOENCODING="utf-8"
    )


def test_a_warning_of_a_library_does_not_reach_the_user() -> None:
    code = (
        "import sys, warnings; from npusim.api import exploring; from npusim.cli.program import run; "
        "exploring.learn = lambda **values: warnings.warn('look here'); sys.exit(run(['learn']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
