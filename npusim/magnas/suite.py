"""Latency and energy of Vision GNNs on a Jetson AGX Xavier, whole and mapped, by MaGNAS."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from npusim.config.reading import read_yaml
from npusim.errors import ConfigError
from npusim.magnas.spec import GraphOperator
from npusim.mapping import ChainProblem
from npusim.scenario import Scenario
from npusim.studies.chain import chain_of, chain_problem
from npusim.studies.mapping_letters import placement_of
from npusim.validation.evidence import Evidence
from npusim.validation.figures import read_keyed
from npusim.validation.suite import Suite
from npusim.validation.unit_models import Machine

SOC, WORKLOAD, UNITS = "jetson-agx-xavier", "magnas-vig", ("gpu", "dla")
_BASELINES, _TABLE3 = "magnas.baselines_latency_ms_energy_mj", "magnas.table3_cifar100_a3"
_QUANTITIES = ("latency_ms", "energy_mj")
_ROW = re.compile(re.escape(_TABLE3) + r"\.(\d+)\.(latency_ms|energy_mj)")
_PARTS = ("stem", "grapher", "ffn", "cls")
A3 = "a3"
"""Name of the architecture of Table 3 among the networks."""

SETTINGS: dict[str, tuple[str, ...]] = {
    **{op: (f"workload.operator={op}", "workload.ffn_hidden=320") for op in get_args(GraphOperator)},
    A3: (
        "workload.depth=2",
        "workload.operator=[graphsage,gin,graphsage,gin]",
        "workload.ffn_hidden=320",
        "workload.preprocess=[true,false,false,false]",
    ),
}
"""What makes the backbone each network. The paper gives neither the width of the baselines' feed-forward
networks nor which superblock of a3 has pre-processing: docs/vision-gnns.md."""


class Key(NamedTuple):
    """What a figure is of."""

    source: str
    """Baselines or Table 3."""
    network: str
    mapping: tuple[str, ...]
    """Letters of stem, graphers, feed-forward networks and classifier; of baselines the unit alone."""
    quantity: str


def predicted(key: Key, problem: ChainProblem) -> float:
    """Return the prediction of a figure, in its unit, from the costs of its network's blocks."""
    if len(key.mapping) == 1:
        placement = np.full(len(problem.blocks), problem.units.index(key.mapping[0]))
    else:
        placement = placement_of(problem.blocks, problem.units, key.mapping)
    return 1e3 * float(problem.evaluate(placement[None])[0, _QUANTITIES.index(key.quantity)])


@cache
def problem_of(network: str) -> ChainProblem:
    """Return the costs of a network's blocks on GPU and DLA."""
    scenario = _scenario(network)
    return chain_problem(scenario, chain_of(scenario.graph), UNITS)


@cache
def _scenario(network: str) -> Scenario:
    return Scenario(WORKLOAD, SOC, settings=SETTINGS[network])


def read_figures(path: Path) -> tuple[list[str], list[Key], list[float], list[str]]:
    """Return ids, keys and values of the figures of a file, and notes.

    Raises
    ------
    FileError, ConfigError
        Where the file cannot be read, or a row's strings are no mapping.
    """
    document = read_yaml(path)
    figures, notes = read_keyed(path, _is_known, (_BASELINES, _TABLE3))
    keys = []
    for one in figures:
        row = _ROW.fullmatch(one.id)
        if row is None:
            *_, network, unit, place = one.id.split(".")
            keys.append(Key("baselines", network, (unit,), _QUANTITIES[int(place)]))
            continue
        at = ("magnas", "table3_cifar100_a3", int(row[1]))
        mapping = _strings(document.data["magnas"]["table3_cifar100_a3"][int(row[1])], path, document, at)
        keys.append(Key("Table 3", A3, mapping, row[2]))
    others = [note for note in notes if _TABLE3 not in note]  # names and strings of its rows
    return [one.id for one in figures], keys, [one.value for one in figures], others


def _is_known(name: str) -> bool:
    if _ROW.fullmatch(name):
        return True
    network, _, rest = name.removeprefix(f"{_BASELINES}.").partition(".")
    unit, _, place = rest.partition(".")
    return network in SETTINGS and network != A3 and unit in UNITS and place in ("0", "1")


def _strings(row: Mapping[str, Any], path: Path, document: Any, at: Sequence[str | int]) -> tuple[str, ...]:
    """Return the letters of a row of Table 3."""
    found = tuple(str(row.get(name, "")) for name in _PARTS)
    try:
        placement_of(chain_of(_scenario(A3).graph).blocks, UNITS, found)
    except ConfigError as error:
        key = ".".join(map(str, at))
        message, line = error.found, document.line((*at, "stem"))
        raise ConfigError(message, file=str(path), line=line, key=key, allowed=error.allowed) from None
    return found


class _Magnas:
    def evidence(self, suite: Suite, path: Path | None, machines: Mapping[str, Machine]) -> Evidence:
        """Return the rows with their predictions; see `npusim.validation.evidence.Predictor`."""
        assert path is not None, "published figures are a file"
        ids, keys, values, notes = read_figures(path)
        columns = {name: np.array([getattr(k, name) for k in keys], object) for name in Key._fields[:2]}
        return Evidence(
            ids=ids,
            columns={
                **columns,
                "quantity": np.array([k.quantity.partition("_")[0] for k in keys], object),
                "mapping": np.array(["/".join(k.mapping) for k in keys], object),
            },
            measured=np.array(values),
            predicted=np.array([predicted(key, problem_of(key.network)) for key in keys]),
            unit="",
            dimensions=("network", "mapping"),
            notes=notes,
        )


FIGURES = _Magnas()
"""MaGNAS's figures, by their path in the file."""
