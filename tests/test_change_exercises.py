"""Change exercises: a dataflow, a level, a second NPU are YAML that an architect writes, and no code."""

import pytest

import npusim
from npusim.arch import load_soc
from npusim.arch.array import shipped_dataflows

STACK = "stagr+quantgr"
"""In the integers that every machine here multiplies."""
HEAD = "schema: npusim.soc/1\nextends: {parent}\nname: mine\ntitle: Mine\n"


def machine(folder, parent, text):
    """Write a sheet of one's own and read it: one file."""
    file = folder / "mine.yaml"
    file.write_text(HEAD.format(parent=parent) + text)
    assert [path.name for path in folder.iterdir()] == ["mine.yaml"]
    return load_soc(file)


def test_a_dataflow_is_an_entry_of_a_sheet(tmp_path):
    """Output pixels on one axis, reduction on the other: no shipped dataflow has these."""
    own = "{unroll: [[output_width, output_height, batch], [input_channels]], stationary: outputs}"
    soc = machine(tmp_path, "gemmini", f"devices: {{gemmini: {{dpu: {{dataflow: {own}}}}}}}\n")
    flow = soc.device("gemmini").dpu.dataflow
    assert flow not in shipped_dataflows().values()
    found, other = (npusim.estimate("gcn-cora", one, techniques=STACK) for one in (soc, "gemmini"))
    assert found.macs == other.macs
    assert found.units["gemmini.dpu"].busy_s != other.units["gemmini.dpu"].busy_s
    assert found.units["gemmini.dpu"].busy_s >= found.macs / (256 * 1e9)  # 16 x 16 PEs at 1 GHz


@pytest.mark.parametrize("parent", ["core-ultra-series2", "gemmini"])
def test_a_level_is_an_entry_of_a_sheet(tmp_path, parent):
    device = "npu" if parent == "core-ultra-series2" else "gemmini"
    level = "{capacity: 32 MiB, bandwidth: 200 GB/s, latency: 10 ns, read_energy: 2 pJ/B}"
    soc = machine(tmp_path, parent, f"devices: {{{device}: {{levels: {{system_cache: {level}}}}}}}\n")
    found, other = (npusim.estimate("gcn-cora", one, techniques=STACK) for one in (soc, parent))
    assert found.level_bytes > 0.0 == other.level_bytes
    assert found.dram_bytes < other.dram_bytes and found.latency_s <= other.latency_s
    event = npusim.estimate("gcn-cora", soc, techniques=STACK, engine="event")
    assert event.latency_s == pytest.approx(found.latency_s, rel=0.15)


def test_a_second_npu_with_a_level_of_both_is_an_entry_of_a_sheet(tmp_path):
    level = "{capacity: 8 MiB, bandwidth: 100 GB/s, latency: 10 ns, read_energy: 2 pJ/B}"
    npus = "npu: {shared_level: l2}, second: {kind: npu, like: npu, title: another}"
    soc = machine(tmp_path, "core-ultra-series2", f"levels: {{l2: {level}}}\ndevices: {{{npus}}}\n")
    e = npusim.estimate("gcn-cora", soc, device="second", techniques=STACK)
    assert e.units["second.dpu"].busy_s > 0.0 == e.units["npu.dpu"].busy_s
    placed = npusim.map("gcn-cora", soc, techniques=STACK)
    assert {"npu", "second"} <= set(placed.groups[0].costs)
