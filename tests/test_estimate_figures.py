"""Figures of an estimate: energy by part, power, mapping, traffic and roofline keep the laws they state."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_event import integral
from strategies import convolutions, graphs, machines, runs

import npusim
from npusim.arch import load_soc, soc_names
from npusim.cli.program import run
from npusim.engines.analytical import mapped_estimate
from npusim.engines.event import run_events
from npusim.engines.timeline import power
from npusim.errors import InfeasibleError
from npusim.mapping import Run, map_graph
from npusim.ops import TensorKind
from npusim.scenario import Scenario
from npusim.workloads import load_workload

ROUNDING = 1 + 1e-9
PARTS = ("mac_j", "sram_j", "dram_j", "dsp_j", "cpu_j", "gpu_j", "static_j", "idle_j")
OF_WORK = PARTS[:6]


def check_energy(e):
    """The parts sum to the energy, and those of the operators to those of the work."""
    parts = e.energy.model_dump()
    assert tuple(parts) == PARTS and min(parts.values()) >= 0.0
    assert sum(parts.values()) == pytest.approx(e.energy_j, rel=1e-9)
    for name in OF_WORK:
        assert sum(getattr(o.energy, name) for o in e.operators) == pytest.approx(parts[name], rel=1e-9)
    for o in e.operators:
        assert sum(o.energy.model_dump().values()) == pytest.approx(o.energy_j, rel=1e-9)
    assert e.power_w == pytest.approx(e.energy_j * e.throughput_per_s, rel=1e-9)
    assert e.edp_js == pytest.approx(e.energy_j * e.latency_s, rel=1e-9)
    assert e.ops_per_j == pytest.approx(2.0 * e.macs / e.energy_j, rel=1e-6)
    assert e.power_w <= e.peak_power_w * ROUNDING


def check_traffic(e):
    """Reads and writes of the operators sum to those of the inference."""
    assert sum(o.dram_bytes for o in e.operators) == pytest.approx(e.dram_bytes)
    assert sum(o.sram_read_bytes + o.sram_written_bytes for o in e.operators) == pytest.approx(
        e.sram_traffic_bytes
    )
    assert all(0.0 <= o.dram_read_bytes <= o.dram_bytes * ROUNDING for o in e.operators)
    assert e.dram_read_bytes <= e.dram_bytes * ROUNDING
    assert e.sram_read_bytes <= e.sram_traffic_bytes * ROUNDING


def check_roofline(e):
    """No operator is above a ceiling, and each that computes is a point."""
    names = {c.name for c in e.roofline.ceilings}
    assert len(names) == len(e.roofline.ceilings)
    for p in e.roofline.points:
        assert p.limit in names
        assert 0.0 < p.ops_per_s <= p.ceiling_ops_per_s * ROUNDING, p
    products = {o.name for o in e.operators if o.macs and o.latency_s > 0.0}
    assert products <= {p.operator for p in e.roofline.points}


def check_mapping(e, mapped):
    """Tiles and blocks cover an operator, and no more multipliers work than there are."""
    rows = dict(zip((o.name for o in e.operators), mapped.lowered.ops, strict=True))
    for o in e.operators:
        assert (o.mapping is not None) == o.unit.startswith("npu.")
        assert (o.grid_utilisation is None) == (o.unit != "npu.dpu")
        assert o.grid_utilisation is None or 0.0 <= o.grid_utilisation <= ROUNDING
        m, row = o.mapping, rows[o.name]
        if m is None or m.order is None:
            continue
        lines = row["out_w"] if row["dpu_operation"] == 1 else row["out_h"]
        over = {"rows": (m.tiles, 1), "columns": (1, m.tiles), "single": (1, 1)}[m.split]
        assert m.tiles <= e.tiles
        assert m.rows * over[0] >= lines and m.columns * over[1] >= row["out_c"]
        assert m.row_blocks <= max(m.rows, lines) * row["out_w"] and m.column_blocks <= m.columns
        assert m.depth_blocks <= max(1, m.depth, m.row_blocks)
    assert 0.0 <= e.grid_utilisation <= ROUNDING


@given(machines(), st.one_of(graphs(), convolutions()), st.data())
@settings(max_examples=40)
def test_an_estimate_keeps_its_laws_on_random_networks_and_machines(machine, graph, data):
    try:
        mapped = map_graph(graph, machine.soc, data.draw(runs(machine.soc)))
    except InfeasibleError:
        return
    estimate = mapped_estimate(mapped)
    check_energy(estimate)
    check_traffic(estimate)
    check_roofline(estimate)
    check_mapping(estimate, mapped)


@pytest.mark.few(6)
@pytest.mark.parametrize("hint", ["latency", "throughput"])
@pytest.mark.parametrize("device", ["auto", "npu", "cpu", "gpu"])
@pytest.mark.parametrize(
    "workload, stack",
    [("gcn-cora", "none"), ("gat-cora", "stagr+effop+grax1+grax2"), ("mobilenet-v2", "none")],
)
def test_an_estimate_keeps_its_laws(workload, stack, device, hint):
    scenario = Scenario(network(workload), techniques=stack, device=device, hint=hint)
    estimate = mapped_estimate(scenario.mapped)
    check_energy(estimate)
    check_traffic(estimate)
    check_roofline(estimate)
    check_mapping(estimate, scenario.mapped)
    assert estimate.dram_bytes >= compulsory_bytes(scenario.graph) / ROUNDING


ARRAYS = [name for name in soc_names() if any(a.dpu.array for a in load_soc(name).array_devices.values())]


@pytest.mark.few(1)
@pytest.mark.parametrize("precision", ["int8", "fp16"])
@pytest.mark.parametrize("soc", ARRAYS)
def test_no_operator_of_a_machine_of_arrays_is_above_its_ceiling(soc, precision):
    network = load_workload("resnet-50", [f"workload.precision={precision}"])
    try:
        estimate = mapped_estimate(Scenario(network, soc).mapped)
    except InfeasibleError:  # an array without the format
        return
    check_roofline(estimate)
    assert 0.0 <= estimate.grid_utilisation <= ROUNDING


def test_the_ceiling_of_an_array_counts_its_processing_elements():
    """TPU v1: 65,536 PEs at 700 MHz (Jouppi et al., ISCA 2017: 92 TOPS)."""
    roofline = mapped_estimate(Scenario(network("resnet-50"), "tpu-v1").mapped).roofline
    (ceiling,) = [c for c in roofline.ceilings if c.unit == "tpu.dpu" and c.ops_per_s]
    assert ceiling.ops_per_s == 65536 * 2 * 700e6


@given(
    st.sampled_from(["weight_stationary", "output_stationary", "kcp_ws", "nlr", "row_stationary"]),
    st.sampled_from(["2", "4"]), st.sampled_from(["1", "4"]), st.sampled_from(["16 B", "64 B"]),
    st.one_of(graphs(), convolutions()),
)  # fmt: skip
@settings(max_examples=15)
def test_no_operator_of_a_random_array_is_above_its_ceiling(dataflow, vpe, ports, word, graph):
    settings = (f"npu.dpu.dataflow={dataflow}", f"npu.dpu.grid.vpe={vpe}", f"npu.sram.read_ports={ports}")
    soc = load_soc("core-ultra-series2", (*settings, f"npu.sram.word={word}"))
    try:
        mapped = map_graph(graph, soc, Run("latency", 4))
    except InfeasibleError:
        return
    check_roofline(mapped_estimate(mapped))


@cache
def network(workload):
    return load_workload(workload)


def compulsory_bytes(graph):
    """Inputs and results of a network, each once; what a Gather takes of a table, and no more."""
    found = 0.0
    for name, tensor in graph.tensors.items():
        users = [op for op in graph if name in op.inputs]
        if tensor.kind is TensorKind.INPUT and users and not any(op.type == "Gather" for op in users):
            found += tensor.stored_bytes
    return found + sum(graph.tensors[name].stored_bytes for name in graph.outputs)


def test_the_event_engine_counts_energy_by_the_same_parts():
    scenario = Scenario(network("gcn-cora"), techniques="stagr")
    estimate = run_events(scenario.mapped)
    line = estimate.timeline
    assert sum(estimate.energy.model_dump().values()) == pytest.approx(estimate.energy_j, rel=1e-9)
    assert integral(power(line), line.makespan_s) == pytest.approx(estimate.energy_j, rel=0.01)
    assert estimate.energy_j == pytest.approx(mapped_estimate(scenario.mapped).energy_j, rel=0.1)


def test_idle_power_of_every_device_counts_on_every_device():
    for device in ("npu", "cpu", "gpu"):
        for neighbour in ("npu", "cpu", "gpu"):
            one, more = (
                mapped_estimate(Scenario(network("gcn-cora"), device=device, settings=settings).mapped)
                for settings in ((), (f"{neighbour}.power.idle=2W",))
            )
            busy_s = one.units["npu.dsp"].busy_s if device == "npu" else one.units[device].busy_s
            assert more.energy.idle_j > one.energy.idle_j
            assert (more.energy_j > one.energy_j) == (neighbour != device or busy_s < one.latency_s)


def test_details_show_every_operator_with_its_mapping_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["estimate", "gcn-cora", "--techniques", "stagr", "--details"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert all(word in page for word in ("rows / 4", "4x16", "688x64x2708", "npu DRAM", "idle devices"))
    assert run(["estimate", "gcn-cora", "--device", "cpu", "--details"]) == 0
    page = capsys.readouterr().out
    assert "cpu" in page and "tiles" not in page and "SRAM peak" not in page and "NPU area" not in page


def test_a_space_keeps_the_metrics_that_it_names(tmp_path):
    space = {
        "schema": "npusim.space/1", "workload": "gcn-cora", "techniques": "stagr", "keep": "all",
        "axes": {"npu.tiles": {"values": [1, 2, 4]}}, "minimise": ["edp_js", "dram_j", "power_w"],
    }  # fmt: skip
    npusim.sweep(space, tmp_path / "found")
    front = npusim.pareto(tmp_path / "found", minimise=["power_w", "edp_js"])
    for row in front.rows:
        e = npusim.estimate("gcn-cora", techniques="stagr", settings=[f"npu.tiles={row['npu.tiles']}"])
        assert row["dram_j"] == pytest.approx(e.energy.dram_j)
        assert row["edp_js"] == pytest.approx(e.edp_js) and row["power_w"] == pytest.approx(e.power_w)
    with pytest.raises(npusim.NpusimError, match="mac_j"):
        npusim.pareto(tmp_path / "found", minimise=["mac_j"])
