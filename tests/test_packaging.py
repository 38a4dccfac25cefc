"""What a user installs is what was tested: a wheel that is complete, says what it needs, and starts fast."""

import ast
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import packages_distributions
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import npusim

# How long `npusim --help` may take: 0.4 s on a quiet machine. A shared CI machine is given twice that:
# what this guards against, an import of numba or torch, costs from half a second up to several.
HELP_LIMIT_S = 0.8 if os.environ.get("CI") else 0.4
AUDIT = "pip-audit==2.9.0"
HEAVY = {"torch", "torch_geometric", "openvino", "nncf", "dask", "distributed", "marimo", "numba", "scipy"}

# Folders whose modules may import what only an extra installs; everything else must do with the core.
EXTRAS_ONLY = (
    "gnn_models",
    "frontends",
    "measuring",
    "course",
    "explore",
    "llm",
    "magnas",
    "pruning",
    "decomposition",
)
EXTRAS_TOO = ("studies/evolution.py",)
"""Single files that import what an extra brings."""


@pytest.fixture(scope="session")
def project(repository: Path) -> dict[str, Any]:
    """The ``[project]`` table of pyproject.toml."""
    table = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return dict(table)


@pytest.fixture(scope="session")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built with the backend of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(repository)]
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def empty_environment(wheel: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a new environment that holds the wheel and what it asks for, no more."""
    folder = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", str(folder)])
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    constraints = str(repository / "constraints.txt")
    install = ["install", "--quiet", "--no-compile", "-c", constraints, str(wheel)]
    run([str(programs / "python"), "-m", "pip", *install])
    return programs


def run(command: list[str], **environment: str) -> str:
    """Run a command outside the checkout, require that it succeeds, and return what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NPUSIM"))}
    done = subprocess.run(
        command, env={**clean, **environment}, cwd=Path(sys.prefix), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def distribution_names(requirements: list[str]) -> set[str]:
    """The normalised names of requirements such as ``torch_geometric>=2.6``."""
    return {
        re.split(r"[^\w.-]", text)[0].lower().replace("_", "-").replace(".", "-") for text in requirements
    }


def imported_libraries(source: Path) -> set[str]:
    """The top-level names of everything that a module imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"npusim"}


@pytest.mark.slow
def test_the_wheel_carries_every_shipped_file(wheel: Path, repository: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = [repository / name for name in ("configs", "workloads", "validate", "docs/course/labs")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    shipped = {path.relative_to(repository).as_posix() for path in files if "__pycache__" not in path.parts}
    assert {f"npusim/_data/{name}" for name in shipped} <= names
    assert {"npusim/py.typed", "npusim/__init__.py"} <= names


@pytest.mark.slow
def test_the_wheel_carries_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"npusim", f"npusim-{npusim.__version__}.dist-info"}


@pytest.mark.slow
def test_a_wheel_of_the_same_files_has_the_same_bytes(wheel: Path, repository: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    skipped = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache", "site", "shared")
    shutil.copytree(repository, copy, ignore=skipped, copy_function=shutil.copyfile)  # times and modes differ
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(copy)])
    (again,) = tmp_path.glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()
    bill = json.loads(zipfile.ZipFile(wheel).read(f"{wheel.name[:12]}.dist-info/sboms/sbom.cdx.json"))
    assert bill["bomFormat"] == "CycloneDX" and len(bill["components"]) > 50


def _pinned(lines: Iterable[str]) -> dict[str, str]:
    named = (re.match(r"([\w.-]+)==([^ ;]+)", line) for line in lines)
    return {found[1].lower().replace("_", "-"): found[2] for found in named if found}


def test_the_lock_file_pins_what_is_tested(repository: Path) -> None:
    lines = (repository / "requirements.lock").read_text(encoding="utf-8").splitlines()
    tested = _pinned((repository / "constraints.txt").read_text(encoding="utf-8").splitlines())
    locked = _pinned(lines)
    assert locked.items() <= tested.items()
    assert all(re.search(r" --hash=sha256:[0-9a-f]{64}$", line) for line in lines if line[:1] != "#")
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.split("[<>=]", name)[0].lower().replace("_", "-") for name in project["dependencies"]}
    assert needed <= locked.keys()
    bill = json.loads((repository / "sbom.cdx.json").read_text(encoding="utf-8"))
    listed = {entry["name"].lower().replace("_", "-"): entry["version"] for entry in bill["components"]}
    assert listed == locked
    for file in ("requirements.lock", "sbom.cdx.json"):
        assert "://" not in (repository / file).read_text(encoding="utf-8")


@pytest.mark.slow
def test_no_locked_package_has_a_known_vulnerability(repository: Path, tmp_path: Path) -> None:
    """pip-audit runs in an environment of its own; the test is skipped where no registry answers."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path)], check=True)
    programs = tmp_path / ("Scripts" if os.name == "nt" else "bin")
    quiet = {"capture_output": True, "text": True, "check": False}
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--retries=0", AUDIT]
    installed = subprocess.run(install, **quiet)
    if installed.returncode:
        pytest.skip(f"no registry has {AUDIT}: {installed.stderr.strip()[-200:]}")
    words = ["--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json", "-r"]
    done = subprocess.run(
        [str(programs / "pip-audit"), *words, str(repository / "requirements.lock")], **quiet
    )
    if not done.stdout.strip():
        pytest.skip(f"no registry answers: {done.stderr.strip()[-200:]}")
    packages = json.loads(done.stdout)["dependencies"]
    assert len(packages) > 50
    assert not {one["name"]: [v["id"] for v in one["vulns"]] for one in packages if one.get("vulns")}


@pytest.mark.slow
def test_the_main_job_runs_from_the_wheel_in_an_empty_environment(
    empty_environment: Path,
) -> None:
    # Kernels of the same sources were compiled by the checkout already.
    words = ["whatif", "gcn-cora", "--soc", "core-ultra-series2"]
    printed = run([str(empty_environment / "npusim"), *words], NPUSIM_KERNELS="compiled")
    assert "symg" in printed and "cacheg" in printed


@pytest.mark.slow
def test_a_kernel_of_the_wheel_is_compiled_in_an_empty_environment(
    empty_environment: Path, tmp_path: Path
) -> None:
    code = (
        "from npusim.cost.units.rates import overlapped_s as kernel\n"
        "numbers = 3.0, 2.0, 0.5, 0.0\n"
        "print(kernel(*numbers) == kernel.py_func(*numbers), len(kernel.dispatcher.signatures))"
    )
    line = [str(empty_environment / "python"), "-c", code]
    assert run(line, NPUSIM_CACHE=str(tmp_path), NPUSIM_KERNELS="compiled").split() == ["True", "1"]


@pytest.fixture(scope="session")
def example(repository: Path, empty_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the example package is installed into."""
    sources, folder = tmp_path_factory.mktemp("example"), tmp_path_factory.mktemp("site")
    copy = shutil.copytree(repository / "examples" / "npusim-example", sources / "npusim-example")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(sources), str(copy)])
    (built,) = sources.glob("*.whl")
    install = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(built)]
    run([str(empty_environment / "python"), "-m", "pip", *install])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["list", "techniques"], "lowrank"),
        (["list", "workloads"], "mixer-s16"),
        (["schema", "workload"], "MixerSpec"),
        (["estimate", "mixer-s16", "-t", "lowrank:rank=64"], '"techniques": "lowrank:rank=64"'),
        (["estimate", "mixer-s16", "--set", "workload.layers=2"], "layer1/channels/down"),
        (
            ["whatif", "mixer-s16", "--set", "workload.layers=2", "--stack", "none,lowrank,lowrank+quantgr"],
            '"lowrank+quantgr"',
        ),
        (["sweep", "SPACE", "-o", "OUT"], '"points": 4'),
        (["estimate", "mixer-s16", "--mapping", "least-traffic"], '"dram_bytes"'),
    ],
)
def test_what_another_package_registers_is_used_like_our_own(
    command: list[str], shown: str, example: Path, empty_environment: Path, tmp_path: Path
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text(
        "schema: npusim.space/1\nworkload: mixer-s16\naxes:\n"
        "  techniques: {values: [none, lowrank]}\n  npu.tiles: {values: [2, 4]}\n",
        encoding="utf-8",
    )
    words = [{"SPACE": str(space), "OUT": str(tmp_path / "results")}.get(word, word) for word in command]
    form = [] if command[0] == "schema" else ["--format", "json"]
    program = str(empty_environment / "npusim")
    assert shown in run([program, *words, *form], NPUSIM_KERNELS="compiled", PYTHONPATH=str(example))


@pytest.mark.slow
def test_the_installed_program_tells_the_version(empty_environment: Path) -> None:
    assert npusim.__version__ in run([str(empty_environment / "npusim"), "--version"])


@pytest.mark.slow
def test_the_installed_package_finds_its_files_in_itself(empty_environment: Path) -> None:
    code = "from npusim.locate import data_root; print(data_root())"
    root = Path(run([str(empty_environment / "python"), "-c", code]).strip())
    assert root.parts[-3:] == ("site-packages", "npusim", "_data")


def test_the_changelog_begins_with_this_version(repository: Path) -> None:
    versions = re.findall(r"^## (\S+)", (repository / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert versions[0] == npusim.__version__


def test_help_imports_nothing_heavy() -> None:
    # The program's own way in, then a look at what it brought along.
    code = (
        "import sys; sys.argv = ['npusim', '--help']\n"
        "from npusim.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('imported:', *sys.modules)"
    )
    imported = set(run([sys.executable, "-c", code]).rpartition("imported:")[2].split())
    assert not imported & HEAVY


@pytest.mark.calm
def test_help_comes_at_once() -> None:
    def seconds() -> float:
        """Processor time: other tests run meanwhile."""
        before = os.times()
        run([sys.executable, "-m", "npusim", "--help"])
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])  # children's user and system time

    seconds()  # the first call may still have to compile the modules
    assert statistics.median(seconds() for _ in range(5)) < HELP_LIMIT_S


def test_the_front_door_opens_without_importing_anything_heavy() -> None:
    code = "import sys, npusim; print(*sys.modules)"
    assert not set(run([sys.executable, "-c", code]).split()) & (HEAVY | {"numpy", "pydantic"})


@pytest.mark.parametrize("name", npusim.__all__)
def test_every_name_of_the_front_door_is_there(name: str) -> None:
    assert getattr(npusim, name) is not None
    assert name in dir(npusim)


@pytest.mark.parametrize(
    "package", ["npusim", "npusim.cost", "npusim.mapping", "npusim.measuring", "npusim.studies"]
)
def test_type_checkers_see_the_same_names(package: str, repository: Path) -> None:
    face = import_module(package)
    stub = ast.parse((repository / package.replace(".", "/") / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [
        node
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("npusim")
    ]
    seen = {
        alias.asname: getattr(import_module(str(node.module)), alias.name)
        for node in imports
        for alias in node.names
    }
    assert set(seen) == set(face.__all__) - {"__version__"}
    for name, value in seen.items():
        here = getattr(face, name)
        assert here is value or signature(here) == signature(value), "a package may be called"
    assert set(face.__all__) <= set(dir(face))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        npusim.no_such_name  # noqa: B018


def test_every_imported_library_is_declared(project: dict[str, Any], repository: Path) -> None:
    core = distribution_names(project["dependencies"])
    groups = project["optional-dependencies"]
    extras = distribution_names([r for name, group in groups.items() if name != "dev" for r in group])
    owners = packages_distributions()
    package = repository / "npusim"
    undeclared = []
    for source in sorted(package.rglob("*.py")):
        where = source.relative_to(package)
        optional = where.parts[0] in EXTRAS_ONLY or where.as_posix() in EXTRAS_TOO
        allowed = core | extras if optional else core
        for library in imported_libraries(source):
            if not distribution_names(owners.get(library, [library])) & allowed:
                undeclared.append(f"npusim/{where.as_posix()} imports {library}")
    assert not undeclared, "\n".join(undeclared)


def test_every_dependency_is_pinned(project: dict[str, Any], repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.!]+( ; .+)?", pin) for pin in pins), "exact, public versions only"
    groups = project["optional-dependencies"]
    wanted = distribution_names([*project["dependencies"], *(r for group in groups.values() for r in group)])
    assert wanted - {"npusim"} <= distribution_names(pins)
