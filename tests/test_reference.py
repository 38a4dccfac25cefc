"""The kernels reduce needs of operators to seconds and joules by `npusim.cost.network.reference`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import graphs, machines

from npusim import load_soc
from npusim.cost.batch.evaluation import evaluate_plans
from npusim.cost.lowering.plans import operators_of, rows_under
from npusim.cost.lowering.tables import Unit
from npusim.cost.machine.architecture import MAC_FORMATS
from npusim.cost.network.reference import Needs, UnitCosts, network, operator_j, operator_s
from npusim.cost.units.levels import add_candidate_demands
from npusim.cost.units.rates import BUFFER, PAGE_WALK, QUICK_COPY, READ_WAIT, TILE_SRAM, WRITE_WAIT
from npusim.cost.units.resources import (
    COUNT,
    LEVELS,
    PLACE_OF,
    RESOURCES,
    Server,
    add_operator_demand,
    dsp_lane_cycles,
    refills,
)
from npusim.mapping import Run, plan_tables
from npusim.techniques import apply
from npusim.workloads import load_workload

TIMED = [resource.name for resource in RESOURCES if resource.server in (Server.GRID, Server.DMA)]
"""Resources whose needs take time by `UnitCosts.seconds`."""
ALIKE = {"rel": 1e-9, "abs": 1e-18}


def unit_costs_of(work: Any, arch: Any, d: int) -> UnitCosts:
    """Return what a unit of each resource takes on a device at the only point that was evaluated."""
    rates = work.batch.rates[d, :, 0]
    joules = {f"{form}_macs": arch["mac_j"][i] for i, form in enumerate(MAC_FORMATS)}
    joules["lane_cycles"] = arch["dsp_j_per_lane_op"]
    for k in range(LEVELS):
        joules[f"level{k}_read_bytes"] = arch["read_j"][k] + arch["write_j"][k]
        joules[f"level{k}_written_bytes"] = arch["write_j"][k]
    return UnitCosts(
        seconds={name: rates[PLACE_OF[name]] for name in TIMED},
        joules=joules,
        sram_j_per_byte=arch["sram_j_per_byte"],
        dram_j_per_byte=arch["dram_j_per_byte"],
        static_w=arch["static_w"],
        read_wait_s=rates[READ_WAIT],
        write_wait_s=rates[WRITE_WAIT],
        page_walk_s=rates[PAGE_WALK],
        buffer_bytes=rates[BUFFER],
        quick_copy_s=rates[QUICK_COPY],
        stream_pieces=arch["stream_pieces"],
    )


def needs_of(work: Any, arch: Any, op: Any, o: int, r: int) -> Needs:
    """Return what one run of an operator needs under the mapping that the kernels chose."""
    rates, terms, demands = work.batch.rates[op["device"]], work.costing.terms, np.zeros((1, COUNT))
    add_operator_demand(arch, op, demands, 0)
    demands /= op["repeats"]
    place, dsp_s = terms.candidate[r, 0], float(work.batch.independent.dsp_s[o, 0])
    add_candidate_demands(work.costing.search.candidates.view(np.float64), place, 1.0, rates, 0, demands[0])
    candidate = work.costing.search.candidates[place]
    if op["unit"] == Unit.DSP:
        demands[0, PLACE_OF["lane_cycles"]] = dsp_lane_cycles(arch, op, dsp_s)
    return Needs(
        amounts={resource.name: demands[0, i] for i, resource in enumerate(RESOURCES)},
        dsp_s=dsp_s,
        first_bytes=candidate["prologue_bytes"],
        known_bytes=candidate["known_bytes"],
        last_bytes=candidate["epilogue_bytes"],
        refills=refills(candidate, rates[TILE_SRAM, 0]),
        page_walks=candidate["page_walks"],
        restarts=candidate["restarts"],
        first_wait_s=terms.wait_s[r, 0],
        calls_s=op["dispatches"] * arch["dispatch_s"],
        repeats=op["repeats"],
    )


def is_compared(graph: Any, soc: Any) -> bool:
    """Compare each operator and the network, if it fits and runs on one array device without prefetch."""
    row, tables = Run(tiles=2).row(soc), plan_tables(graph, soc)
    costs = evaluate_plans(row, tables.table)
    if costs.plan < 0:
        return False
    ops, row_of = operators_of(tables.table, costs.plan), rows_under(tables.table, costs.plan)
    work = costs.work
    results, _, transfers = costs.operators()
    devices = {int(op["device"]) for op in ops if op["unit"] != Unit.VIEW}
    if len(devices) != 1 or (ops["unit"] == Unit.HOST).any() or len(transfers):
        return False
    device, steps = devices.pop(), {}
    arch = row[row.arrays[device]]
    unit_costs = unit_costs_of(work, arch, device)
    for o, op in enumerate(ops):
        if op["unit"] == Unit.VIEW:
            continue
        needs = needs_of(work, arch, op, o, row_of[o])
        assert results[o]["latency_s"] == pytest.approx(operator_s(needs, unit_costs), **ALIKE)
        assert results[o]["energy_j"] == pytest.approx(operator_j(needs, unit_costs), **ALIKE)
        steps.setdefault(op["fused_chain"] or -1 - o, []).append(needs)
    launches_s = float((ops["launches"] * arch["launch_s"]).sum())
    latency_s, energy_j = network([*steps.values()], unit_costs, launches_s, row.shared["idle_w"])
    if row.shared["limit_w"] == 0.0:
        assert costs.total["latency_s"] == pytest.approx(latency_s, **ALIKE)
        assert costs.total["energy_j"] == pytest.approx(energy_j, **ALIKE)
    return True


@pytest.mark.parametrize(
    ("workload", "stack", "soc"),
    [
        ("gcn-cora", "stagr", "core-ultra-series2"),
        ("gat-cora", "stagr+effop+grax1", "core-ultra-series1"),
        ("mobilenet-v2", "none", "core-ultra-series2"),
        ("bert-base", "none", "core-ultra-series3"),
    ],
)
def test_kernels_obey_the_reference_on_networks(workload, stack, soc):
    assert is_compared(apply(load_workload(workload), stack), load_soc(soc))


@given(graphs(), machines())
@settings(max_examples=25, deadline=None)
def test_kernels_obey_the_reference_on_random_networks_and_machines(graph, machine):
    is_compared(graph, machine.soc)
