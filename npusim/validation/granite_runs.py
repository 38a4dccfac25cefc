"""Runs a network as a definition says, and returns interval, package energy and shares of time."""

from __future__ import annotations

from dataclasses import dataclass, field

from npusim.arch import Soc, load_soc, with_overrides
from npusim.config.overrides import as_overrides
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.graph import Graph, GraphStructure, Phase
from npusim.mapping import map_placed
from npusim.scenario import Scenario, resolve_run
from npusim.studies.stream.masks import MaskKeeper, entries_changed
from npusim.studies.stream.updates import Size, Update
from npusim.techniques import apply
from npusim.validation.granite_definitions import (
    Alternative,
    Definitions,
    LayerVariant,
    Place,
    PublishedVariant,
)
from npusim.validation.granite_graphs import FORMS, peak_product
from npusim.workloads import build_gnn, load_gnn, load_workload


@dataclass(frozen=True)
class Outcome:
    """One network at one place."""

    interval_s: float
    """Time between inferences in steady state."""
    package_j: float
    """Energy that the package draws in that time: the device at work, the others idle."""


@dataclass(frozen=True)
class Shares:
    """Where the time of a layer goes, by operators' latencies."""

    preprocessing: float
    """Preprocessing over everything (Fig. 4)."""
    control: float
    """Control operators over the layer's own (Fig. 5)."""


@dataclass
class GraniteRunner:
    """Runs definitions; graphs are made once, SoCs may stand in for the shipped ones."""

    definitions: Definitions
    socs: dict[str, Soc] = field(default_factory=dict)
    """SoC by name; shipped ones are loaded when asked for."""
    _graphs: dict[tuple[str, str], Graph] = field(default_factory=dict)

    def with_socs(self, socs: dict[str, Soc]) -> GraniteRunner:
        """Return a runner with other machines that shares the graphs."""
        return GraniteRunner(self.definitions, socs, self._graphs)

    def with_alternative(self, other: Alternative) -> GraniteRunner:
        """Return a runner of another reading that shares the graphs."""
        definitions, socs = self.definitions.with_alternative(other), self.socs
        if other.settings:
            names, settings = {p.soc for p in definitions.places.values()}, as_overrides(other.settings)
            socs = {name: with_overrides(self.soc(name), settings) for name in names}
        return GraniteRunner(definitions, socs, self._graphs)

    def soc(self, name: str) -> Soc:
        """Return a SoC."""
        if name not in self.socs:
            self.socs[name] = load_soc(name)
        return self.socs[name]

    def outcome(self, workload: str, variant: PublishedVariant, place: Place) -> Outcome:
        """Run a network."""
        graph = self._graph(workload, variant)
        estimate = self._estimate(graph, place)
        interval_s = 1.0 / estimate.throughput_per_s
        if variant.serial_cpu and place.device == "auto":
            npu_s = sum(o.latency_s for o in estimate.operators if o.unit.startswith("npu"))
            interval_s = estimate.units["cpu"].busy_s + npu_s
        if variant.mask_writes != "none":
            interval_s += self._mask_writes_s(graph, place, variant.mask_writes == "all")
        longer = interval_s * estimate.throughput_per_s - 1.0  # the package idles for the rest
        return Outcome(interval_s, estimate.energy_j + longer * estimate.energy.idle_j)

    def shares(self, layer: LayerVariant) -> Shares:
        """Run the first layer of a network on the data graph of Figs. 4 and 5."""
        graph = self._layer_graph(layer)
        estimate = self._estimate(graph, self.definitions.places["layer"])
        before_s = sum(op.latency_s for op in estimate.operators if op.phase is Phase.PREPROCESSING)
        others = [op for op in estimate.operators if op.phase is not Phase.PREPROCESSING]
        own = [op for op in others if op.block not in ("layer1", "readout")]
        own_s = sum(op.latency_s for op in own)
        control_s = sum(op.latency_s for op in own if op.type in self.definitions.layers.control)
        return Shares(before_s / (before_s + own_s), control_s / own_s)

    def peak_ratio(self) -> tuple[float, float]:
        """Return int8 over fp16 of a large product: operations per second, and per joule without DRAM."""
        peak = self.definitions.peak
        place = self.definitions.places[peak.place]
        seconds, joules = {}, {}
        for precision in ("int8", "fp16"):
            name = f"product-{precision}"
            if (name, "") not in self._graphs:
                self._graphs[name, ""] = peak_product(peak.m, peak.k, peak.n, precision)
            estimate = self._estimate(self._graphs[name, ""], place)
            seconds[precision] = 1.0 / estimate.throughput_per_s
            soc, energy = self.soc(place.soc), estimate.energy
            hosts_j = seconds[precision] * (soc.cpu.power.idle + soc.gpu.power.idle)
            joules[precision] = estimate.energy_j - energy.dram_j - hosts_j
        return seconds["fp16"] / seconds["int8"], joules["fp16"] / joules["int8"]

    def _mask_writes_s(self, graph: Graph, place: Place, everything: bool) -> float:
        """Time in which the CPU brings a kept mask up to date (s)."""
        data = graph.structure
        assert data is not None  # built on a data graph
        size = Size(data.nodes, data.edges // 2)
        loops = data.nodes if graph.meta.model in ("gcn", "gat") else 0
        edge = entries_changed(graph.meta.model, Update({"add_edge": 1}), size, graph.meta.neighbours or 0)
        entries = 2.0 * (data.edges + loops) if everything else edge
        run = resolve_run(self.soc(place.soc), place.hint, place.requests, place.tiles)
        return MaskKeeper(graph, self.soc(place.soc), run).update_s(entries)

    def _graph(self, workload: str, variant: PublishedVariant) -> Graph:
        key = (workload, variant.model_dump_json())
        if key not in self._graphs:
            graph = load_workload(workload, variant.settings)
            capacity = self.definitions.capacity.get(workload.rpartition("-")[2], 0)
            self._graphs[key] = FORMS[variant.form](
                apply(graph, variant.techniques.format(capacity=capacity))
            )
        return self._graphs[key]

    def _layer_graph(self, layer: LayerVariant) -> Graph:
        key = ("layer", layer.model_dump_json())
        if key not in self._graphs:
            data = self.definitions.layers.graph
            structure = GraphStructure("layer", data.nodes, data.edges, data.features, data.classes)
            graph = build_gnn(load_gnn(f"{layer.model}-cora", layer.settings), structure)
            self._graphs[key] = FORMS[layer.form](apply(graph, layer.techniques))
        return self._graphs[key]

    def _estimate(self, graph: Graph, place: Place) -> Estimate:
        soc, tiles = self.soc(place.soc), place.tiles
        asked = Scenario(
            graph, soc, hint=place.hint, requests=place.requests, tiles=tiles, device=place.device,
            swap_operands=place.swap_operands,
        )  # fmt: skip
        return mapped_estimate(map_placed(asked.graph, asked.machine, asked.run))
