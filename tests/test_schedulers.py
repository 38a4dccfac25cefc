"""What a perfect scheduler would save, and the bound for any scheduler."""

import pytest

from npusim import load_soc, whatif
from npusim.cli.program import run
from npusim.graph import Editor, Graph
from npusim.ops import DType

MACHINE = load_soc("core-ultra-series2", settings={"npu.sram.per_tile": "8MiB", "npu.launch_overhead": "0ms"})


def chain() -> Graph:
    """Two products that compute, then one that waits for its weights."""
    editor = Editor("chain")
    x = editor.input("x", (1024, 512), DType.INT8)
    for i in range(2):
        x = editor.matmul(x, editor.constant(f"w{i}", (512, 512), DType.INT8), f"p{i}")
    x = editor.matmul(editor.constant("chosen", (16, 1024), DType.INT8), x, "select")
    editor.outputs.append(editor.matmul(x, editor.constant("w", (512, 4096), DType.INT8), "last"))
    return editor.finish()


def test_a_perfect_scheduler_lies_between_today_and_the_bound():
    result = whatif(chain(), MACHINE, ["none"], samples=0, scheduler=True)
    scheduler, today_s = result.scheduler, result.variants[0].latency_s
    assert scheduler is not None
    assert scheduler.least_s <= scheduler.seconds < today_s
    assert scheduler.gain == pytest.approx(1.0 - scheduler.seconds / today_s)
    assert scheduler.settings == [
        f"npu.schedule.{switch}=true" for switch in ("prefetch", "resident_weights", "depth_first")
    ]
    # All weights fit into SRAM: DRAM must move the input and the output.
    moved_s = (1024 * 512 + 16 * 4096) / float(MACHINE.dram.bandwidth)
    assert scheduler.least_s >= moved_s
    assert "a perfect scheduler" in result.conclusion


def test_no_weights_stay_before_a_first_inference():
    first = whatif(chain(), MACHINE, ["none"], samples=0, scheduler=True, first=True).scheduler
    assert first is not None
    assert first.settings == ["npu.schedule.prefetch=true", "npu.schedule.depth_first=true"]


def test_the_scheduler_is_asked_for_on_one_machine(capsys):
    assert whatif(chain(), MACHINE, ["none"], samples=0).scheduler is None
    assert run(["whatif", "gcn-cora", "--scheduler", "--over", "npu.sram.per_tile=1MiB,2MiB"]) == 2
    assert "leave out --over" in capsys.readouterr().err
