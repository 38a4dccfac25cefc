"""Kernels as plain Python give what compiled ones give, to the last bit, and run only while that pays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from one_point import evaluate
from strategies import convolutions, graphs, machines, runs, tight_convolutions, tight_products

import npusim
from npusim.compiling.kernels import SHIPPED, VARIABLE, Kernel, compiled, compiled_or_plain, plain_kernels
from npusim.cost.batch.evaluation import (
    _cost_chosen,
    _evaluate_group,
    _search_group,
    _served_search,
    operator_costs,
)
from npusim.cost.lowering.tables import RESULT_DTYPE, TOTAL_DTYPE
from npusim.errors import InfeasibleError
from npusim.mapping import Run, map_graph


def mapped(graph: Any, soc: Any, run: Any) -> bytes | None:
    """All that the kernels found, or None where the network does not fit."""
    try:
        found = map_graph(graph, soc, run)
    except InfeasibleError:
        return None
    return bytes(
        found.arch.numbers.tobytes() + found.results.tobytes() + found.uses.tobytes() + found.total.tobytes()
    )


@hypothesis_settings(max_examples=12)
@given(st.data(), st.one_of(graphs(max_operators=4), convolutions()), machines())
def test_networks_cost_the_same_to_the_bit(data, graph, machine):
    run = data.draw(runs(machine.soc))
    as_compiled = mapped(graph, machine.soc, run)
    with plain_kernels():
        assert mapped(graph, machine.soc, run) == as_compiled


@pytest.mark.parametrize("plain", ["_evaluate_group", "_search_group", "_cost_chosen", "_served_search"])
def test_plain_and_compiled_kernels_read_each_other(plain, monkeypatch):
    graph, soc = npusim.Scenario("gcn-cora").graph, npusim.load_soc("core-ultra-series2")
    expected = costs(graph, soc)
    for kernel in (_evaluate_group, _search_group, _cost_chosen, _served_search):
        monkeypatch.setattr(kernel, "_is_compiled", False)
    monkeypatch.setattr(Kernel, "_runs_plain", lambda kernel, _: kernel.__name__ == plain)
    assert costs(graph, soc) == expected


def costs(graph: Any, soc: Any) -> bytes:
    """Return the costs of a network's operators under the best plan, and of each alone."""
    found = map_graph(graph, soc, Run())
    results = operator_costs(found.arch, found.lowered.ops)
    return bytes(found.results.tobytes() + results.tobytes())


@hypothesis_settings(max_examples=12)
@given(st.one_of(tight_products(), tight_products(triangle=True), tight_convolutions()))
def test_operators_cost_the_same_to_the_bit(pair):
    arch, op = pair

    def cost() -> bytes:
        results, total = np.zeros(1, RESULT_DTYPE), np.zeros(1, TOTAL_DTYPE)
        evaluate(arch, np.array([op]), results, total[0])
        return bytes(results.tobytes() + total.tobytes())

    as_compiled = cost()
    with plain_kernels():
        assert cost() == as_compiled


@pytest.mark.parametrize("stack", ["none", "stagr", "stagr+symg", "graphsplit"])
def test_estimates_are_the_same_text(stack):
    def text() -> str:
        return npusim.estimate("gcn-cora", "core-ultra-series2", techniques=stack).model_dump_json()

    as_compiled = text()
    with plain_kernels():
        assert text() == as_compiled


def first_estimate(cache: Path, **variables: str) -> dict[str, Any]:
    """An estimate where nothing is compiled: the document, and what then lies in the cache."""
    kept = {k: v for k, v in os.environ.items() if k != VARIABLE}
    command = [sys.executable, "-m", "npusim", "estimate", "gcn-cora", "-t", "stagr", "--format", "json"]
    done = subprocess.run(
        command, env=kept | {"NPUSIM_CACHE": str(cache)} | variables, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def test_a_first_estimate_compiles_nothing_and_says_so_to_nobody(tmp_path):
    found = first_estimate(tmp_path)
    assert found == json.loads(
        npusim.estimate("gcn-cora", "core-ultra-series2", techniques="stagr").model_dump_json(by_alias=True)
    )
    brought = {Path(name).name for archive in SHIPPED.glob("*.zip") for name in ZipFile(archive).namelist()}
    assert {path.name for path in tmp_path.rglob("*") if path.suffix in (".nbi", ".nbc")} <= brought


def kernel(duration_ms: Any = None) -> Any:
    """A kernel of its own; its calls are judged, not run."""
    return compiled_or_plain(duration_ms)(lambda *_: None) if duration_ms else compiled(lambda *_: None)


def test_calls_run_plain_up_to_a_limit_per_kernel(monkeypatch):
    monkeypatch.setenv(VARIABLE, "auto")
    first, second = kernel(lambda ms: ms), kernel(lambda ms: ms)
    assert first._runs_plain((6_000.0,))
    assert not first._runs_plain((6_000.0,))
    assert second._runs_plain((9_999.0,))


def test_code_on_disk_is_loaded_sooner(monkeypatch):
    """In this process the compiler has been started already."""
    monkeypatch.setenv(VARIABLE, "auto")
    monkeypatch.setattr(Kernel, "_is_on_disk", True)
    on_disk = kernel(lambda ms: ms)
    assert on_disk._runs_plain((30.0,))
    assert not on_disk._runs_plain((30.0,))


def test_the_time_of_a_call_with_arrays_is_unknown(monkeypatch):
    monkeypatch.setenv(VARIABLE, "auto")
    assert kernel()._runs_plain((1.0, 2))
    assert not kernel()._runs_plain((1.0, (np.zeros(3), 2)))


@pytest.mark.parametrize(("value", "expected"), [("plain", True), ("compiled", False)])
def test_a_variable_decides(monkeypatch, value, expected):
    monkeypatch.setenv(VARIABLE, value)
    assert kernel(lambda: 1e9)._runs_plain(()) is expected


def test_a_short_command_starts_no_compiler(tmp_path):
    script = (
        "import sys; from npusim.cli.program import run; "
        "status = run(['estimate', 'gcn-cora', '--format', 'json', '-o', 'out.json']); "
        "print(status, 'numba' in sys.modules, 'llvmlite' in sys.modules)"
    )
    kept = {k: v for k, v in os.environ.items() if k != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", script], env=kept | {"NPUSIM_CACHE": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=900, check=True,
    )  # fmt: skip
    assert done.stdout.split()[-3:] == ["0", "False", "False"]
