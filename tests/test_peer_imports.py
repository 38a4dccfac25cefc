"""Machines of other tools become data sheets, layers become networks: figures by hand."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import npusim
from npusim.arch import load_soc
from npusim.errors import ConfigError, NpusimError
from npusim.frontends.peer_files import NAMES, as_number, read_peer
from npusim.frontends.peer_machines import peer_machine, sheet_text
from npusim.workloads import load_workload

ZIGZAG = """
name: small
memories:
  regs:
    size: 16
    r_cost: 0.5
    w_cost: 1.0
    area: 0.1
    operands: [I2]
    ports:
      - {name: r, type: read, bandwidth_min: 8, bandwidth_max: 8, allocation: ["I2, tl"]}
      - {name: w, type: write, bandwidth_min: 8, bandwidth_max: 8, allocation: ["I2, fh"]}
    served_dimensions: [D2]
  buffer:
    size: 8192
    r_cost: 32
    w_cost: 40
    operands: [I1, I2, O]
    ports:
      - {name: rw, type: read_write, bandwidth_min: 64, bandwidth_max: 128, allocation: ["I1, tl"]}
    served_dimensions: [D1, D2]
  dram:
    size: 8000000000
    r_cost: 640
    w_cost: 640
    operands: [I1, I2, O]
    ports:
      - {name: rw, type: read_write, bandwidth_min: 64, bandwidth_max: 64, allocation: ["I1, tl"]}
    served_dimensions: [D1, D2]
operational_array:
  unit_energy: 0.25
  unit_area: 1
  dimensions: [D1, D2]
  sizes: [8, 4]
"""
ZIGZAG_MAPPING = """
- name: default
  spatial_mapping:
    D1:
      - K, 8
    D2:
      - OX, 2
  memory_operand_links: {O: O, W: I2, I: I1}
"""
SCALESIM = """[general]
run_name = small
; a comment
[architecture_presets]
ArrayHeight: 8
ArrayWidth = 4
IfmapSramSzkB: 2
FilterSramSzkB: 1
OfmapSramSzkB: 1
Bandwidth : 10
Dataflow : {dataflow}
[run_presets]
InterfaceBandwidth: {mode}
"""
TIMELOOP = """
architecture:
  version: 0.4
  nodes:
  - !Container
    name: system
    attributes: {technology: "45nm", global_cycle_seconds: 2e-9}
  - !Component
    name: DRAM
    class: DRAM
    attributes: {type: LPDDR4, width: 64, datawidth: 8}
  - !Component
    name: buffer
    class: smartbuffer_SRAM
    attributes: {depth: 1024, width: 64, datawidth: 8, read_bandwidth: 16}
  - !Container
    name: column
    spatial: {meshX: 4}
    constraints: {spatial: {permutation: [N, Q, M], factors: [N=1]}}
  - !Parallel
    nodes:
    - !Component
      name: spad
      class: regfile
      attributes: {depth: 8, width: 8, datawidth: 8}
      constraints: {dataspace: {keep: [Weights]}}
  - !Component
    name: mac
    class: intmac
    spatial: {meshY: 2}
"""
ACCELFORGE = """
arch:
  nodes:
  - !Memory
    name: MainMemory
    size: inf
    actions:
    - {name: read, energy: 8e-12, throughput: 8 * 16e9}
    - {name: write, energy: 8e-12, throughput: 8 * 16e9}
    tensors: {keep: ~Intermediates, may_keep: All}
  - !Memory
    name: Buffer
    size: 1024*64*8
    actions: [{name: read, energy: 0.5e-12, bits_per_action: 64, throughput: 4e9}]
    tensors: {keep: All}
  - !Container
    name: PE
    spatial:
    - {name: reuse_input, fanout: 8, reuse: input}
    - {name: reuse_output, fanout: 4, reuse: output}
  - !Memory
    name: Register
    size: weight.bits_per_value if weight else 1
    tensors: {keep: weight}
  - !Compute
    name: MAC
    actions: [{name: compute, energy: 0.1e-12, throughput: 2e9}]
"""
MAESTRO = "NumPEs: 32\nL1Size: 64\nL2Size: 4096\nNoC_BW: 16\nNoC_NumHops: 1\n"
MAESTRO_MAPPING = """
Constant SzK 64;
// a remark
Network Small {
  Layer CONV1 {
    Type: CONV
    Stride { X: 2, Y: 2 }
    Dimensions { K: SzK, C: 3, R: 7, S: 7, Y: 229, X: 229 }
    Dataflow {
      SpatialMap(1,1) K;
      TemporalMap(Sz(R),1) Y;
      Cluster(4, P);
      SpatialMap(1,1) C;
    }
  }
  Layer DW {
    Type: DSCONV
    Dimensions { K: 1, C: 32, R: 3, S: 3, Y: 58, X: 58 }
  }
}
"""


@pytest.fixture
def read(tmp_path):
    """Return what writes a text and reads it as a file of another tool."""

    def write(text, name="file.any"):
        (tmp_path / name).write_text(text)
        return read_peer(tmp_path / name)

    return write


@pytest.fixture
def sheet(tmp_path):
    """Return what writes the data sheet of a machine and loads it."""

    def write(*files):
        text = sheet_text(peer_machine(*files))
        (tmp_path / "sheet.yaml").write_text(text)
        return load_soc(tmp_path / "sheet.yaml"), text

    return write


def test_a_zigzag_machine_is_its_numbers_by_hand(read, sheet):
    soc, text = sheet(read(ZIGZAG), read(ZIGZAG_MAPPING, "mapping"))
    device = soc.devices["array"]
    assert dict(device.dpu.array.axes) == {"d1": 8, "d2": 2}  # the mapping uses 2 of 4
    assert device.dpu.dataflow.unroll == [["output_channels"], ["output_width"]]
    regs = device.dpu.array.levels["regs"]
    assert (regs.capacity, regs.width, regs.operands, regs.shared_by, regs.ports) == (
        2.0, 1.0, ["weights"], ["d2"], "read_and_write",
    )  # fmt: skip
    assert (device.sram.per_tile, device.sram.word, soc.dram.capacity) == (1024.0, 16.0, 1e9)
    assert soc.dram.bandwidth == pytest.approx(8e9)  # 64 bit a cycle of 1 ns
    energy = soc.technology.energy
    assert energy.sram == pytest.approx(2e-12)  # 32 pJ for 16 bytes
    assert energy.dram == pytest.approx(80e-12)
    assert energy.mac["int8"] == pytest.approx(0.25e-12)
    assert "`area`, `unit_area`: areas come from" in text and "[FILE] line 22" in text


def test_without_a_mapping_an_axis_takes_a_loop_and_says_so(read, sheet):
    soc, text = sheet(read(ZIGZAG))
    assert dict(soc.devices["array"].dpu.array.axes) == {"d1": 8, "d2": 4}
    assert "axis `D1` has no loops; output_channels [EST]" in text


def test_a_zigzag_memory_with_a_port_for_each_operand_has_them(read, sheet):
    one = '- {name: rw, type: read_write, bandwidth_min: 64, bandwidth_max: 128, allocation: ["I1, tl"]}'
    ports = "\n      ".join(
        f'- {{name: p{i}, type: read_write, bandwidth_min: 64, bandwidth_max: 128, allocation: ["{what}"]}}'
        for i, what in enumerate(("I1, tl", "I2, tl", "O, tl", "I1, fh"))
    )
    buffer, dram = ZIGZAG.split("  dram:")
    text = "  dram:".join((buffer.replace(one, ports), dram))
    machine = peer_machine(read(text), read(ZIGZAG_MAPPING, "mapping"))
    assert [memory.ports for memory in machine.memories] == ["read_and_write", "one_of_each_operand", "one"]
    assert sheet(read(text), read(ZIGZAG_MAPPING, "mapping"))[0].devices["array"].sram.read_ports == 3


@pytest.mark.parametrize(("dataflow", "stationary"), [("os", "outputs"), ("ws", "weights"), ("is", "inputs")])
def test_a_scalesim_configuration_is_a_systolic_array(read, sheet, dataflow, stationary):
    soc, _ = sheet(read(SCALESIM.format(dataflow=dataflow, mode="USER")))
    device = soc.devices["array"]
    assert (device.dpu.dataflow.stationary, device.dpu.array.transfer) == (stationary, "systolic")
    assert list(device.dpu.array.axes.values()) == [8, 4]
    assert device.sram.per_tile == 4096.0
    assert soc.dram.bandwidth == pytest.approx(10e9)
    _, text = sheet(read(SCALESIM.format(dataflow=dataflow, mode="CALC")))
    assert "memory never stalls (CALC)" in text


def test_timeloop_nodes_are_levels_and_axes(read, sheet):
    soc, _ = sheet(read(TIMELOOP))
    device = soc.devices["array"]
    assert dict(device.dpu.array.axes) == {"column_meshx": 4, "mac_meshy": 2}
    assert device.dpu.dataflow.unroll[0] == ["output_height", "output_channels"]  # N=1 is closed
    spad = device.dpu.array.levels["spad"]
    assert (spad.capacity, spad.operands, spad.shared_by) == (8.0, ["weights"], ["mac_meshy"])
    assert (device.sram.per_tile, device.sram.word) == (8192.0, 16.0)
    assert device.dpu.clock == pytest.approx(5e8) and soc.technology.node == "45nm"
    assert soc.dram.bandwidth == pytest.approx(4e9)  # 8 bytes in 2 ns


def test_accelforge_products_are_numbers_and_expressions_are_not_evaluated(read, sheet):
    soc, text = sheet(read(ACCELFORGE))
    device = soc.devices["array"]
    assert device.sram.per_tile == 65536.0  # 1024*64*8 bits
    assert device.dpu.clock == 2e9
    assert soc.dram.bandwidth == pytest.approx(16e9)
    assert device.sram.word == pytest.approx(16.0)  # 4e9 reads of 64 bits a second
    assert soc.technology.energy.dram == pytest.approx(64e-12)  # a bit costs 8 pJ
    assert soc.technology.energy.sram == pytest.approx(0.0625e-12)
    assert soc.technology.energy.mac["int8"] == pytest.approx(0.1e-12)
    assert device.dpu.dataflow.unroll == [
        ["output_channels"],
        ["input_channels", "kernel_height", "kernel_width"],
    ]
    assert "`Register` has the size `weight.bits_per_value if weight else 1`; 2 B [EST]" in text


def test_a_maestro_machine_takes_its_clusters_from_a_mapping(read, sheet):
    soc, _ = sheet(read(MAESTRO), read(MAESTRO_MAPPING, "m"))
    device = soc.devices["array"]
    assert list(device.dpu.array.axes.values()) == [8, 4]  # 32 PEs in clusters of 4
    assert device.dpu.dataflow.unroll == [["output_channels"], ["input_channels"]]
    assert (device.sram.per_tile, device.dpu.array.levels["l1"].capacity) == (4096.0, 64.0)


NETWORKS = {
    "topology.csv": (
        "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"
        "Conv1, 30, 30, 3, 3, 16, 8, 1,\nConvDP2, 30, 30, 3, 3, 16, 1, 1,\n",
        28 * 28 * 8 * 16 * 9 + 28 * 28 * 16 * 9,
    ),
    "products.csv": ("Layer, M, N, K,\nL0, 10, 20, 30,\nL1, 4, 5, 6, 1:1,\n", 10 * 20 * 30 + 4 * 5 * 6),
    "zigzag.yaml": (
        "- id: 0\n  operator_type: Conv\n  dimension_relations: [ix=2*ox+1*fx, iy=2*oy+1*fy]\n"
        "  loop_dims: [B, K, C, OY, OX, FY, FX]\n  loop_sizes: [1, 8, 16, 14, 14, 3, 3]\n"
        "- id: 1\n  operator_type: Gemm\n  loop_dims: [B, C, K]\n  loop_sizes: [4, 5, 6]\n"
        "- id: 2\n  operator_type: Add\n  loop_dims: [B, G, OY, OX]\n  loop_sizes: [1, 8, 14, 14]\n",
        8 * 16 * 14 * 14 * 9 + 4 * 5 * 6,
    ),
    "problem.yaml": (
        "problem:\n  shape: cnn-layer\n  instance: {C: 3, M: 32, N: 1, P: 112, Q: 112, R: 3, S: 3, H: 224, "
        "Wstride: 2, Hstride: 2, densities: {}}\n",
        3 * 32 * 112 * 112 * 9,
    ),
    "gemm.yaml": ("problem:\n  instance: {M: 4, N: 5, K: 6}\n", 4 * 5 * 6),
    "maestro.m": (MAESTRO_MAPPING, 64 * 3 * 49 * 112 * 112 + 32 * 9 * 56 * 56),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_have_the_multiply_accumulates_of_their_loops(tmp_path, name):
    text, macs = NETWORKS[name]
    (tmp_path / name).write_text(text)
    graph = load_workload(tmp_path / name)
    assert sum(op.macs for op in npusim.estimate(graph, "tpu-v1").operators) == macs
    assert graph.meta.notes


def test_strides_of_a_zigzag_layer_make_its_input(tmp_path):
    (tmp_path / "w.yaml").write_text(NETWORKS["zigzag.yaml"][0])
    graph = load_workload(tmp_path / "w.yaml")
    assert graph.tensors["layer0/input"].shape == (1, 16, 29, 29)  # 2 * 13 + 3


def test_a_network_runs_on_an_imported_machine_by_the_command_line(tmp_path, monkeypatch, capsys):
    from npusim.cli.program import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.cfg").write_text(SCALESIM.format(dataflow="ws", mode="USER"))
    (tmp_path / "t.csv").write_text(NETWORKS["products.csv"][0])
    assert run(["soc", "import", "small.cfg", "-o", "m.yaml"]) == 0
    assert "three SRAMs count as one" in capsys.readouterr().out
    assert run(["estimate", "t.csv", "--soc", "m.yaml", "--format", "json"]) == 0
    estimate = npusim.estimate("t.csv", "m.yaml")
    # Weight-stationary folds of 8 x 4: (reduction / 8) x (columns / 4), each M rows and the load of 8 rows.
    steps = 4 * 5 * 10 + 1 * 2 * 4
    assert estimate.units["array.dpu"].busy_s >= steps * 1e-9


def test_a_sheet_is_the_same_on_every_run_and_its_round_trip_is_itself(read, tmp_path):
    first = sheet_text(peer_machine(read(TIMELOOP)))
    assert first == sheet_text(peer_machine(read(TIMELOOP)))
    (tmp_path / "s.yaml").write_text(first)
    from npusim.config import dump_model

    soc = load_soc(tmp_path / "s.yaml")
    (tmp_path / "again.yaml").write_text(dump_model(soc))
    assert load_soc(tmp_path / "again.yaml") == soc


@given(st.lists(st.tuples(st.sampled_from("*/"), st.integers(1, 10**6)), min_size=1, max_size=6))
def test_a_product_of_numbers_is_its_value(factors):
    text, value = "1", 1.0
    for sign, number in factors:
        text += f" {sign} {number}"
        value = value * number if sign == "*" else value / number
    assert as_number(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["__import__('os')", "1 + 1", "1e999 * 1e999 x", "2 ** 3", "1 / 0", "a*2", ""]
)
def test_what_is_no_product_of_numbers_is_no_number(text):
    assert as_number(text) is None


@pytest.mark.parametrize(
    ("text", "second", "says"),
    [
        (ZIGZAG.replace("unit_energy: 0.25", "is_imc: True"), "", "is_imc: found memory cells that compute"),
        (ZIGZAG.replace("sizes: [8, 4]", "sizes: [8]"), "", "no key `1`"),
        (
            ZIGZAG.replace("sizes: [8, 4]", "sizes: [8, 1e9]"),
            "",
            "`1000000000.0`; allowed: a number from 0",
        ),
        (ZIGZAG.replace("sizes: [8, 4]", "sizes: [8, os.system]"), "", "`os.system`"),
        (ZIGZAG, MAESTRO, "allowed: a ZigZag mapping YAML"),
        (SCALESIM.format(dataflow="rs", mode="USER"), "", "dataflow: found `rs`; allowed: os, ws, is"),
        (
            SCALESIM.format(dataflow="ws", mode="USER").replace("ArrayHeight: 8\n", ""),
            "",
            "no key `arrayheight`",
        ),
        (TIMELOOP.replace("nodes:\n  - !Container", "subtree:\n  - !Container", 1), "", "no key `nodes`"),
        (ACCELFORGE.replace("fanout: 8", "fanout: {{N}}"), "", "a template"),
        (MAESTRO.replace("32", "0"), "", "NumPEs: found `0`"),
        ("hello: world\n", "", "a file of an unknown format"),
        (NETWORKS["gemm.yaml"][0], "", "a Timeloop problem YAML file; allowed: ZigZag hardware"),
    ],
)
def test_what_is_no_machine_is_refused_with_file_and_line(read, sheet, text, second, says):
    with pytest.raises(NpusimError, match=r"file\.any:\d+|second:\d+") as refused:
        sheet(read(text), *([read(second, "second")] if second else []))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("topology.csv", "30, 30, 3, 3, 16, 8", "2, 30, 3, 3, 16, 8", "a kernel above"),
        ("topology.csv", "30, 30, 3, 3, 16, 8", "-5, 30, 3, 3, 16, 8", "found `-5`"),
        ("products.csv", "10, 20, 30", "1e9, 20, 30", "whole numbers from 1 to 1e"),
        ("products.csv", "10, 20, 30", "999999, 999999, 999999", "at most 1e.12"),
        ("zigzag.yaml", "Gemm", "Softmax", "`Softmax`"),
        ("zigzag.yaml", "loop_dims: [B, C, K]", "loop_dims: [B, C, Z]", "`Z`"),
        ("zigzag.yaml", "1*fx", "2*fx", "dimension_relations"),
        ("problem.yaml", "C: 3,", "C: 0.5,", "`C` of 0.5"),
        ("maestro.m", "DSCONV", "LSTM", "`LSTM`"),
    ],
)
def test_what_is_no_layer_is_refused_with_file_and_line(tmp_path, name, old, new, says):
    (tmp_path / name).write_text(NETWORKS[name][0].replace(old, new, 1))
    with pytest.raises(ConfigError, match=says) as refused:
        load_workload(tmp_path / name)
    assert refused.value.line is not None


HEADS = """problem:
  shape:
    dimensions: [H, M, N, K]
    data_spaces:
    - name: A
      projection: [[[H]], [[M]], [[K]]]
    - name: B
      projection: [[[H]], [[N]], [[K]]]
    - name: Z
      projection: [[[H]], [[M]], [[N]]]
      read_write: true
  instance: {H: 8, M: 128, N: 64, K: 32}
"""
WINDOWS = """problem:
  shape:
    dimensions: [B, F, D, U, V, I, J]
    coefficients:
    - {name: step, default: 1}
    data_spaces:
    - name: Filters
      projection: [[[D]], [[F]], [[I]], [[J]]]
    - name: Images
      projection: [[[B]], [[D]], [[I], [U, step]], [[J], [V, step]]]
    - name: Results
      projection: [[[B]], [[F]], [[U]], [[V]]]
      read_write: true
  instance: {B: 2, F: 24, D: 16, U: 15, V: 11, I: 3, J: 5, step: 2}
"""
FLAT = "problem:\n  shape: cnn-layer\n  C: 16\n  K: 24\n  P: 15\n  Q: 11\n  R: 3\n  S: 3\n  Hstride: 2\n"
NO_COLONS = """Network small {
Layer A {
Type CONV
Stride { X 1, Y 1 }
Dimensions { K 24,C 16,R 3,S 3,Y 34,X 34 }
}
}
"""
BATCHES = """Layer, IFMAP H, IFMAP W, Filter Height, Filter Width, Channels, Num Filter, Strides, Batch Size,
stem, 34, 34, 3, 3, 16, 24, 1, 4,
"""
DIALECTS = {
    "heads.yaml": (HEADS, 8 * 128 * 64 * 32),
    "windows.yaml": (WINDOWS, 2 * 24 * 16 * 15 * 11 * 3 * 5),
    "flat.yaml": (FLAT, 16 * 24 * 15 * 11 * 9),
    "colons.m": (NO_COLONS, 16 * 24 * 32 * 32 * 9),
    "batches.csv": (BATCHES, 4 * 16 * 24 * 32 * 32 * 9),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_dialects_have_the_multiply_accumulates_of_their_loops(tmp_path, name):
    text, macs = DIALECTS[name]
    (tmp_path / name).write_text(text)
    assert load_workload(tmp_path / name).macs == macs


def test_a_declared_window_has_its_stride(tmp_path):
    (tmp_path / "w.yaml").write_text(WINDOWS)
    graph = load_workload(tmp_path / "w.yaml")
    assert graph.tensors["layer0/input"].shape == (2, 16, 2 * 10 + 5, 2 * 14 + 3)


def signature(folder, name, text):
    """Return all that a file says of a network; None where it is refused."""
    (folder / name).write_text(text)
    try:
        graph = load_workload(folder / name)
    except ConfigError:
        return None
    operators = [(op.name, op.type, dict(op.attrs)) for op in graph]
    return operators, {t.name: (t.shape, t.dtype) for t in graph.tensors.values()}, graph.meta.notes


EVERY = {**NETWORKS, **DIALECTS}


@pytest.mark.parametrize("name", EVERY)
def test_a_renamed_key_column_or_dimension_is_never_passed_over(tmp_path, name):
    text = re.sub(r"(?s)Dataflow.*?}|//.*?\n", "", EVERY[name][0])
    whole, passed = signature(tmp_path, name, text), []
    keys = r"[A-Za-z][\w ]*(?=,)" if name.endswith("csv") else r"\b[A-Za-z_]\w*(?=\s*:|\s+\d|[,\]])"
    for key in re.finditer(keys, text.partition("\n")[0] if name.endswith("csv") else text):
        changed = f"{text[: key.end()]}q{text[key.end() :]}"
        if signature(tmp_path, name, changed) == whole:
            passed.append(key[0])
    assert whole is not None and passed == []


@pytest.mark.parametrize("name", EVERY)
def test_an_added_column_key_or_dimension_is_never_passed_over(tmp_path, name):
    text = EVERY[name][0]
    whole = signature(tmp_path, name, text)
    added = {
        "csv": re.sub(r",\s*\n", ", Group, \n", text, count=1),
        "m": text.replace("Dimensions {", "Padding { X: 1 }\nDimensions {", 1),
        "yaml": re.sub(r"(?m)^(\s*- id: 0|problem:)", r"\1\n  group: 4", text, count=1),
    }[name.rpartition(".")[2]]
    assert added != text and signature(tmp_path, name, added) != whole
    wider = text.replace("Dimensions {", "Dimensions { Q: 7,", 1)
    wider = wider.replace("instance: {", "instance: {Z: 7, ", 1).replace("[B, K, C,", "[Z, K, C,", 1)
    assert wider == text or signature(tmp_path, name, wider) is None


def test_every_format_is_told_by_one_key():
    assert sorted(NAMES["told_by"].values()) == sorted(NAMES["formats"])
