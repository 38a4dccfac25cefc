"""An engine and a cost equation of another package: they run by name, and what they return is checked."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import npusim
from npusim.cli.program import run
from npusim.engines.analytical import mapped_estimate
from npusim.errors import ConfigError, UnknownNameError
from npusim.plugins import PluginError
from npusim.scenario import Scenario

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "npusim-example"
SOFTMAX = "npu.equations={softmax: online-softmax}"


def install(folder: Path, entries: dict[str, dict[str, str]], source: str = "") -> None:
    """Write what an installer leaves of a package: its module and its entry points."""
    info = folder / "outsider-1.2.dist-info"
    info.mkdir()
    (folder / "outsider.py").write_text(source)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outsider\nVersion: 1.2\n")
    lines = [
        f"[{group}]\n{name} = {value}\n" for group, all_ in entries.items() for name, value in all_.items()
    ]
    (info / "entry_points.txt").write_text("".join(lines))


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the example package."""
    install(tmp_path, tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"])
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))


def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, source: str) -> None:
    """Install a package with one function `mine`."""
    install(tmp_path, {group: {"mine": "outsider:mine"}}, source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "outsider", raising=False)


@pytest.mark.usefixtures("example")
def test_an_engine_of_another_package_runs_by_its_name() -> None:
    """Work and transfers one after the other take no less than npusim's overlap, and their sum by hand."""
    overlapped, serial = (
        npusim.estimate("gcn-cora", techniques="stagr", engine=e) for e in ("analytical", "serial")
    )
    assert serial.engine == "serial"
    assert serial.latency_s > overlapped.latency_s
    assert serial.dram_bytes == overlapped.dram_bytes
    bandwidth = float(npusim.load_soc("core-ultra-series2").dram.bandwidth)
    first = overlapped.operators[0]
    assert serial.operators[0].latency_s == first.busy_s + first.dram_bytes / bandwidth
    assert sum(value for _, value in serial.energy) == pytest.approx(serial.energy_j)
    assert npusim.compare("gcn-cora", "gat-cora", engine="serial").runs[0].engine == "serial"


@pytest.mark.usefixtures("example")
def test_a_cost_equation_gives_the_cycles_of_an_operator() -> None:
    """A Softmax takes the cycles of the equation, divided among the DSPs; all else stays."""
    plain, own = (Scenario("gat-cora", techniques="stagr", settings=s) for s in ([], [SOFTMAX]))
    from npusim_example.softmax_unit import online_softmax

    npu = own.machine.npu
    dsps = own.run.tiles * int(npu.dsp.per_tile)
    before, after = mapped_estimate(plain.mapped), mapped_estimate(own.mapped)
    changed = 0
    for old, new in zip(before.operators, after.operators, strict=True):
        if new.type == "Softmax" and new.unit == "npu.dsp":
            cycles = online_softmax(own.graph.operators[new.name], own.graph, npu)
            assert new.busy_s == pytest.approx(cycles / dsps / float(npu.vpu_clock), rel=1e-12)
            changed += 1
        else:
            assert new.busy_s == old.busy_s
    assert changed
    assert any("online-softmax" in note for note in after.warnings)


GRID = (
    "def mine(op, graph, npu):\n    return {factor} * graph.work(op).macs / npu.dpu.macs_per_cycle('fp16')\n"
)


@pytest.mark.parametrize("factor", [2.0, 8.0])
def test_an_equation_of_the_grid_sets_its_rate(tmp_path: Path, monkeypatch: Any, factor: float) -> None:
    """A product that needs twice the ideal cycles keeps the grid busy no shorter than that."""
    installed(tmp_path, monkeypatch, "npusim.equations", GRID.format(factor=factor))
    scenario = Scenario("gcn-cora", techniques="stagr", settings=["npu.equations={matmul: mine}"])
    dpu, mapped = scenario.machine.npu.dpu, scenario.mapped
    per_s = dpu.macs_per_cycle("fp16") * scenario.run.tiles * float(dpu.clock)
    products = 0
    for group, result in zip(mapped.decisions.groups, mapped.results, strict=True):
        op = scenario.graph.operators[group.main]
        if op.type == "MatMul":
            wanted_s = factor * scenario.graph.work(op).macs / per_s
            assert wanted_s <= result["dpu_s"] * (1 + 1e-9)
            if scenario.graph.work(op).out_c % 16 == 0:  # all lanes of a group have a channel
                assert result["dpu_s"] <= 1.35 * wanted_s + 2e-6
            products += 1
    assert products == 4


@pytest.mark.parametrize(
    ("group", "source", "setting", "message"),
    [
        ("npusim.equations", "def mine(*_): return 0.0", "npu.equations={matmul: mine}", "positive, finite"),
        (
            "npusim.equations",
            "def mine(*_): return 'x'",
            "npu.equations={matmul: mine}",
            "package outsider 1.2",
        ),
        ("npusim.equations", "def mine(*_): 1 / 0", "npu.equations={matmul: mine}", "ZeroDivisionError"),
        ("npusim.engines", "def mine(*_): return 7", "", "package outsider 1.2: its engine"),
        ("npusim.engines", "raise RuntimeError('half')", "", "RuntimeError: half"),
    ],
)
def test_what_a_package_gets_wrong_is_one_message(
    tmp_path: Path, monkeypatch: Any, group: str, source: str, setting: str, message: str
) -> None:
    """The message names the package."""
    installed(tmp_path, monkeypatch, group, source)
    engine = "mine" if group == "npusim.engines" else "analytical"
    with pytest.raises(PluginError, match=message) as error:
        npusim.estimate("gcn-cora", techniques="stagr", engine=engine, settings=[setting] if setting else [])
    assert "\n" not in str(error.value)


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no package has ends with status 2 and one line."""
    for words in (
        ["--engine", "evnt"],
        ["--set", "npu.equations={matmul: nobody}"],
        ["--set", "npu.equations={mat: x}"],
    ):
        assert run(["estimate", "gcn-cora", "-t", "stagr", *words]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    with pytest.raises(UnknownNameError, match="event"):
        npusim.estimate("gcn-cora", engine="evnt")


def test_the_grid_takes_no_equation_of_work_without_products(tmp_path: Path, monkeypatch: Any) -> None:
    """A sum on the grid has no multiply-accumulates whose rate could change."""
    installed(tmp_path, monkeypatch, "npusim.equations", "def mine(*_): return 100.0")
    with pytest.raises(ConfigError, match="multiply and accumulate"):
        npusim.estimate("resnet-50", settings=["npu.equations={add: mine}", "npu.dpu.fuse_residual=false"])
