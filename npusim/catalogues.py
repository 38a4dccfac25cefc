"""What npusim ships, as documents: machines, workloads, techniques, operators, suites, spaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from npusim.documents import Document

Entry = dict[str, Any]


class Listing(Document):
    """A catalogue as a document."""

    schema_: Literal["npusim.list/1"] = Field("npusim.list/1", alias="schema")
    catalogue: Literal[
        "socs", "workloads", "techniques", "ops", "suites", "spaces", "schedulers", "formats", "plugins"
    ]
    """What is listed."""
    entries: list[Entry]
    """One entry a thing: its name and its headline facts, in SI units."""


def socs() -> list[Entry]:
    """Machines that npusim ships."""
    from npusim.arch import load_soc, soc_names

    entries: list[Entry] = []
    for name in soc_names():
        soc = load_soc(name)
        entry: Entry = {
            "name": soc.name,
            "title": soc.title,
            "devices": {name: device.kind for name, device in soc.devices.items()},
            "dram_bytes_per_s": float(soc.dram.bandwidth),
        }
        if soc.dram.peak_bandwidth is not None:
            entry["dram_peak_bytes_per_s"] = float(soc.dram.peak_bandwidth)
        if soc.has("npu"):
            npu = soc.npu
            # A multiply-accumulate counts as two operations, as in every data sheet.
            entry |= {
                "npu_tiles": int(npu.tiles),
                "npu_clock_hz": float(npu.dpu.clock),
                "npu_int8_ops_per_s": 2 * npu.peak_macs_per_s("int8"),
                "npu_sram_bytes": npu.sram_bytes(),
            }
        entries.append(entry | {"file": _file("configs", "socs", name)})
    return entries


def _file(*parts: str) -> str:
    """Return the path of a shipped YAML file: what to copy for a machine of one's own."""
    from npusim.locate import resource

    return str(resource(*parts[:-1], f"{parts[-1]}.yaml"))


def workloads() -> list[Entry]:
    """Workloads that npusim and other packages ship."""
    from npusim.workloads import load_spec, load_workload, workload_names, workload_path

    loaded = {name: (load_spec(name), load_workload(name)) for name in workload_names()}
    return [
        {
            "name": name,
            "kind": spec.kind,
            "model": spec.model,
            **spec.facts,
            "precision": spec.precision,
            "description": spec.description,
            "operators": len(graph),
            "macs": graph.macs,
            "file": str(workload_path(name)),
        }
        for name, (spec, graph) in loaded.items()
    ]


def techniques() -> list[Entry]:
    """Techniques, in the order in which a stack applies them."""
    from npusim.config import field_descriptions
    from npusim.techniques import get, technique_names

    return [
        {
            "name": name,
            "summary": get(name).summary,
            "needs": get(name).needs,
            "excludes": dict(get(name).excludes),
            "settings": field_descriptions(get(name).parameters),
            "numerics": get(name).numerics,
        }
        for name in technique_names()
    ]


def ops() -> list[Entry]:
    """Operator types that npusim knows, with the units that may run them."""
    from npusim.cost import execution_of
    from npusim.ops import OPERATORS

    entries: list[Entry] = []
    for op in sorted(OPERATORS.values(), key=lambda op: (op.family.value, op.name)):
        execution = execution_of(op)
        able = {"npu.dpu": execution.dpu is not None, "npu.dsp": bool(execution.dsp_kernel)}
        on_npu = [unit for unit, can in able.items() if can]
        units = [*on_npu, "cpu", "gpu"] if on_npu or execution.host_only else []  # a view costs nothing
        entries.append({"name": op.name, "family": op.family.value, "units": units})
    return entries


def suites() -> list[Entry]:
    """Suites of published figures that npusim is checked against."""
    from npusim.validation.suite import load_suite, suite_names

    return [{"name": name, "title": load_suite(name).title} for name in suite_names()]


def spaces() -> list[Entry]:
    """Design spaces that npusim ships."""
    from npusim.explore.campaign import campaign_of
    from npusim.explore.spaces import load_space, space_names

    return [
        {
            "name": name,
            "title": space.title,
            "points": campaign_of(space).total,
            "axes": list(space.axes),
            "file": _file("configs", "spaces", name),
        }
        for name, space in ((name, load_space(name)) for name in space_names())
    ]


def schedulers() -> list[Entry]:
    """Orders in which devices serve the requests of a mix."""
    from npusim.system.schedulers import SCHEDULERS

    return [
        {"name": name, "summary": SCHEDULERS.find(name).summary, "preempts": SCHEDULERS.find(name).preempts}
        for name in SCHEDULERS
    ]


def formats() -> list[Entry]:
    """Number formats of weights and activations."""
    from npusim.ops.formats import FORMATS

    return [{"name": name, **form.model_dump()} for name, form in FORMATS.items()]


def plugins() -> list[Entry]:
    """What other installed packages add to npusim."""
    from npusim import plugins

    return [{"name": entry["name"]} | entry for entry in plugins.plugins()]


CATALOGUES: Mapping[str, Callable[[], list[Entry]]] = {
    entries.__name__: entries
    for entries in (socs, workloads, techniques, ops, suites, spaces, schedulers, formats, plugins)
}


def listing(catalogue: str) -> Listing:
    """Return a catalogue as a document; a `KeyError` where `CATALOGUES` has none of that name.

    Examples
    --------
    >>> listing("ops").entries[0]
    {'name': 'Abs', 'family': 'activation', 'units': ['npu.dsp', 'cpu', 'gpu']}
    """
    return Listing(catalogue=catalogue, entries=CATALOGUES[catalogue]())
