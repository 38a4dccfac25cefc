"""Kernels as plain Python give what compiled ones give, to the last bit, and run only while that pays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from strategies import convolutions, graphs, machines, runs, tight_convolutions, tight_products

import npusim
from npusim.cost.evaluation import evaluate
from npusim.cost.plain import COMPILING_MS, VARIABLE, Choice, Ledger, plain_kernels
from npusim.cost.tables import RESULT_DTYPE, TOTAL_DTYPE
from npusim.errors import InfeasibleError
from npusim.mapping import map_graph


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
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["plain"]
    assert files[0].stat().st_size > 0


def test_what_runs_plain_is_added_up_over_processes_until_it_came_to_compiling(tmp_path):
    path = tmp_path / "plain"
    first, second = Ledger(path), Ledger(path)
    assert first.affords(0.6 * COMPILING_MS)
    assert not second.affords(0.6 * COMPILING_MS)
    assert second.affords(0.39 * COMPILING_MS)
    assert not Ledger(path).affords(0.05 * COMPILING_MS)
    assert not Ledger(None).affords(1.01 * COMPILING_MS)


def test_small_steps_are_added_up_too(tmp_path):
    ledger = Ledger(tmp_path / "plain")
    for _ in range(1000):
        assert ledger.affords(0.1)
    assert (tmp_path / "plain").stat().st_size == pytest.approx(10, abs=1)


def test_a_folder_that_cannot_be_written_to_is_no_obstacle(tmp_path):
    ledger = Ledger(tmp_path / "missing" / "plain")
    assert ledger.affords(100.0)
    assert not ledger.affords(COMPILING_MS - 99.0)


def choice(folder: Path | None, duration_ms: Any = None) -> Choice:
    return Choice(duration_ms, Ledger(None), None if folder is None else str(folder), "search.search_rows-")


def test_finished_code_is_loaded_once_that_takes_less(tmp_path, monkeypatch):
    """In this process the compiler has been started already."""
    monkeypatch.setenv(VARIABLE, "auto")
    (tmp_path / "cost_1").mkdir()
    (tmp_path / "cost_1" / "search.search_rows-12.py311.nbi").touch()
    on_disk = choice(tmp_path, lambda ms: ms)
    assert on_disk.is_plain((30.0,))
    assert not on_disk.is_plain((30.0,))
    elsewhere = choice(tmp_path / "empty", lambda ms: ms)
    assert elsewhere.is_plain((30.0,))
    assert elsewhere.is_plain((30.0,))


def test_of_arrays_nobody_knows_how_long_they_take(monkeypatch):
    monkeypatch.setenv(VARIABLE, "auto")
    assert choice(None).is_plain((1.0, 2))
    assert not choice(None).is_plain((1.0, (np.zeros(3), 2)))


@pytest.mark.parametrize(("value", "expected"), [("plain", True), ("compiled", False)])
def test_a_variable_decides(monkeypatch, value, expected):
    monkeypatch.setenv(VARIABLE, value)
    assert choice(None, lambda: 1e9).is_plain(()) is expected


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
