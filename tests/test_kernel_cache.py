"""Compiled kernels on disk: never stale, never in the way. Each test runs a small kernel of a copy of the
package in processes, where all is compiled that may also run as plain Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import npusim
from npusim.locate import resource

SCRIPT = """
import sys
import numpy as np
from npusim.cost.machine.architecture import ARCH_DTYPE
from npusim.compiling.notice import tell_once
from npusim.cost.units.rates import GAP, RATES, fill_rates

tell_once(lambda: print("compiling", file=sys.stderr))
arch, rates = np.ones(1, ARCH_DTYPE)[0], np.zeros((1, RATES, 1))
fill_rates(arch, rates, 0, 0)
seconds = rates[0, GAP, 0]
print(seconds, sum(fill_rates.dispatcher.stats.cache_hits.values()))
"""
COMPILED = {"NPUSIM_KERNELS": "compiled", "PYTHONDONTWRITEBYTECODE": "1"}
CALLEE = '''

@compiled
def row_gap_s(p: Any, direction: int) -> float:
    """Answer something else than before."""
    return 42.0
'''


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package, without anything compiled."""
    home = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(npusim.__file__).parent, home / "npusim", ignore=ignored)
    shutil.copytree(resource("configs"), home / "npusim" / "_data" / "configs", dirs_exist_ok=True)
    return home


def start(copy: Path, **variables: str) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NPUSIM_", "NUMBA_", "PYTHON"))}
    environment = kept | {"PYTHONPATH": str(copy), **COMPILED} | variables
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.Popen(
        command, env=environment, cwd=copy, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def answer(process: subprocess.Popen[str]) -> tuple[float, int]:
    """Return (the kernel's result, whether it came from the disk); where it did not, that was told once."""
    output, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    seconds, hits = output.split()
    assert errors == ("" if int(hits) else "compiling\n")
    return float(seconds), int(hits)


def compiled(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".nbi", ".nbc")]


def test_a_changed_callee_is_noticed_and_the_cache_is_where_the_variable_says(copy, tmp_path):
    """Whoever asks is told that kernels are compiled, and nothing when they are on disk: see `answer`."""
    cache = {"NPUSIM_CACHE": str(tmp_path / "cache")}
    before, _ = answer(start(copy, **cache))
    assert before != 42.0
    assert compiled(tmp_path / "cache") and not compiled(copy)
    assert answer(start(copy, **cache)) == (before, 1)
    with (copy / "npusim" / "cost" / "units" / "rates.py").open("a", encoding="utf-8") as source:
        source.write(CALLEE)
    after, hits = answer(start(copy, **cache))
    assert (after, hits) == (42.0, 0)


@pytest.mark.slow
def test_two_processes_at_once_leave_a_good_cache(copy, tmp_path):
    cache = {"NPUSIM_CACHE": str(tmp_path / "cache")}
    both = [start(copy, **cache) for _ in range(2)]
    (first, _), (second, _) = (answer(process) for process in both)
    assert first == second
    assert answer(start(copy, **cache)) == (first, 1)


def test_a_read_only_installation_works_without_a_home(copy, tmp_path):
    before = sorted(copy.rglob("*"))
    for path in [*before, copy]:
        path.chmod(path.stat().st_mode & ~0o222)
    file = tmp_path / "file"
    file.touch()
    nowhere = str(file / "home")
    try:
        seconds, _ = answer(
            start(copy, HOME=nowhere, XDG_CACHE_HOME=nowhere, LOCALAPPDATA=nowhere, TMPDIR=str(tmp_path))
        )
    finally:
        for path in [*before, copy]:
            path.chmod(path.stat().st_mode | 0o200)
    assert seconds > 0.0
    assert sorted(copy.rglob("*")) == before


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files there")
def test_a_full_disk_is_no_obstacle(copy, tmp_path):
    script = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n" + SCRIPT
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        **COMPILED,
        "NPUSIM_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    # Standard output is a pipe, which the limit leaves alone.
    assert done.returncode == 0, done.stderr
    assert not compiled(tmp_path / "cache")


@pytest.mark.slow
def test_damaged_code_is_compiled_anew(copy, tmp_path):
    cache = {"NPUSIM_CACHE": str(tmp_path / "cache")}
    good, _ = answer(start(copy, **cache))
    for damage in (lambda data: data[: len(data) // 2], flipped):
        for path in compiled(tmp_path / "cache"):
            path.write_bytes(damage(path.read_bytes()))
        assert answer(start(copy, **cache)) == (good, 0)
    assert answer(start(copy, **cache)) == (good, 1)


def flipped(data: bytes) -> bytes:
    """One byte in the middle is another."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


FROM_ARCHIVE = """
import os
os.environ["NUMBA_DEBUG_CACHE"] = "1"
from npusim.compiling import kernels
if kernels._processor() != kernels._LEVEL:
    raise SystemExit(77)
import sys
sys.argv = ["npusim", *sys.argv[1:]]
from npusim.cli import main
main()
"""


@pytest.mark.few(1)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="archives are for Python 3.11")
@pytest.mark.parametrize("command", ["estimate resnet-50", "sweep gcn-cora --keep pareto --quiet -o {out}"])
def test_a_new_installation_compiles_nothing(command, tmp_path):
    """If this fails, a kernel changed after the archives were made: run `make kernels`."""
    words = command.format(out=tmp_path / "out").split()
    settings = os.environ | {"NPUSIM_CACHE": str(tmp_path / "cache"), "NPUSIM_KERNELS": "auto"}
    done = subprocess.run(
        [sys.executable, "-c", FROM_ARCHIVE, *words],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("archives are for x86-64-v3")
    assert done.returncode == 0, done.stderr
    assert "data loaded from" in done.stdout
    assert "data saved to" not in done.stdout
    assert "compiling" not in done.stderr
