"""GraNNite's figures: each is answered by what `validate/definitions/granite.yaml` says it compares.

The baselines and conditions are data, so that another reading of a figure is another line in that file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from npusim.arch import Soc, load_soc, with_overrides
from npusim.config import Section, load_model
from npusim.config.overrides import as_overrides
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.graph import Editor, Graph, GraphStructure, Phase
from npusim.locate import resource
from npusim.mapping import map_placed
from npusim.ops import Annotation, DType, Role, TensorKind
from npusim.scenario import Scenario, resolve_run
from npusim.studies.stream.following import MaskKeeper, entries_changed
from npusim.studies.stream.updates import Size, Update
from npusim.techniques import apply, parse, technique_with
from npusim.validation.figures import Key, PathPredictor, shipped_figures
from npusim.workloads import build_gnn, load_gnn, load_workload

Count = Annotated[int, Field(ge=1)]


class Place(Section):
    """Machine, device and hint of a run."""

    soc: str
    hint: Literal["latency", "throughput"]
    tiles: Count
    """NPU tiles."""
    requests: Count | None = None
    """Inferences in flight; None: the SoC's default for the hint."""
    device: Literal["auto", "npu", "cpu", "gpu"] = "auto"
    """auto: the NPU, with preprocessing where a technique wants it."""
    swap_operands: bool | Literal["search"] = False
    """Roles of the operands of products, as for `npusim.mapping.Run`."""


class PublishedVariant(Section):
    """A network as it was run."""

    techniques: str
    """Technique stack; `{capacity}` is the data set's."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Settings of the workload, such as its form."""
    form: Literal["as_built", "by_elements", "each_layer", "formula", "row_scaled", "spread_masks"] = (
        "as_built"
    )
    """Rewriting of the graph beyond techniques: see `FORMS`."""
    mask_writes: Literal["none", "edge", "all"] = "none"
    """Entries of a kept mask that the CPU writes before each inference, on the critical path: those that a
    new edge changes, or all, after setting the old ones to 0."""
    model: str = ""
    """Model whose first layer it is, on the data graph of Figs. 4 and 5; empty: it is a whole network."""
    serial_cpu: bool = False
    """Whether each inference waits for the CPU's part, even with several requests in flight."""
    reason: str
    """Why this is what the figure shows."""


class Layers(Section):
    """Figs. 4 and 5."""

    graph: dict[Literal["nodes", "edges", "features", "classes"], Count]
    """Sizes of the data graph; `edges` are the entries of the edge list."""
    graph_conv: PublishedVariant
    graph_attn: PublishedVariant
    control: list[str]
    """Operator types that Fig. 5 counts as control."""


class Peak(Section):
    """A product that only the MAC grid bounds."""

    m: Count
    k: Count
    n: Count
    place: str


class Readings(Section):
    """Networks and machines by name, and the variants that devices choose from."""

    variants: dict[str, dict[str, PublishedVariant]] = Field(default_factory=dict)
    """Networks by model and name."""
    places: dict[str, Place] = Field(default_factory=dict)
    """Machines and hints by name."""
    best_of: dict[str, list[str]] = Field(default_factory=dict)
    """Variants from which each device uses its best, by model."""
    hosts_choose: dict[str, list[str]] = Field(default_factory=dict)
    """The same for CPU and GPU, for models where their variants differ."""


class Alternative(Readings):
    """Another reading of some figures: its entries replace those of the definitions."""

    title: str
    figures: list[str] = Field(min_length=1)
    """Keys of the figures that it changes, without `granite.`."""
    settings: list[str] = Field(default_factory=list)
    """Changes of the SoCs, as `--set` takes them."""


class GraniteReadings(Readings):
    """All definitions."""

    schema_name: Literal["npusim.granite-definitions/1"] = Field(alias="schema")
    """Version of this file format."""
    capacity: dict[str, Count]
    """Nodes that NodePad pads to, by data set; `{capacity}` in a technique stack stands for it."""
    names: dict[str, str]
    """Variant by the figures' name of a stack."""
    layers: Layers
    peak: Peak
    """The ratio of int8 over fp16."""
    alternatives: list[Alternative] = Field(default_factory=list)
    """Other readings, each shown beside the one that holds."""

    def with_alternative(self, other: Alternative) -> GraniteReadings:
        """Return the definitions with one other reading."""
        merged = {name: {**getattr(self, name), **getattr(other, name)} for name in Readings.model_fields}
        merged["variants"] = {
            model: {**named, **other.variants.get(model, {})} for model, named in self.variants.items()
        }
        return self.model_copy(update=merged)

    def variant(self, model: str, stack: str) -> PublishedVariant:
        """Return the variant of a figure's stack, or the stack as written where none is defined."""
        known = self.variants[model]
        name = self.names.get(stack, stack)
        if name in known:
            return known[name]
        wanted = set(name.split("+")) - {technique_with(annotation=Annotation.DEVICE).name}
        for known_name, variant in known.items():
            if set(known_name.split("+")) == wanted:
                return variant
        return PublishedVariant(techniques=str(parse(name)), reason="as the figure writes it")


@cache
def load_definitions() -> GraniteReadings:
    """Return the shipped definitions."""
    return load_model(resource("validate", "definitions", "granite.yaml"), GraniteReadings)


_PREPROCESS = "preprocess"


def each_layer(graph: Graph) -> Graph:
    """Return a graph whose layers each repeat the preprocessing that they shared."""
    editor = Editor.of(graph)
    shared = [op for op in graph if graph.structural.issuperset(op.outputs)]
    layers = dict.fromkeys(op.region.split("/")[0] for op in graph if op.region.startswith("layer"))
    for layer in list(layers)[1:]:
        readers = [op.name for op in graph if op.region.startswith(f"{layer}/") and op not in shared]
        copies = {name: f"{layer}/{name}" for op in shared for name in op.outputs}
        for op in shared:
            inputs = tuple(copies.get(name, name) for name in op.inputs)
            results = [graph.tensors[name].with_(name=copies[name]) for name in op.outputs]
            outputs, region = tuple(copies[name] for name in op.outputs), f"{layer}/{_PREPROCESS}"
            renamed = op.with_(name=f"{layer}/{op.name}", inputs=inputs, outputs=outputs, region=region)
            editor.add_operator(renamed, results)
        for old, new in copies.items():
            if any(old in graph.operators[name].inputs for name in readers):
                editor.rewire(old, new, only=readers)
    return editor.finish()


def formula(graph: Graph) -> Graph:
    """Return a dense GCN that computes adjacency / sqrt(degree x degree) on N x N (Figs. 3 and 14)."""
    editor = Editor.of(graph)
    editor.region = _PREPROCESS
    norm = graph.tensors[graph.operators[f"{_PREPROCESS}/norm"].outputs[0]]
    nodes = norm.shape[0]
    degree = graph.operators[f"{_PREPROCESS}/degree"].outputs[0]
    column = editor.reshape(degree, (nodes, 1), f"{_PREPROCESS}/degree_column", "Unsqueeze")
    row = editor.reshape(degree, (1, nodes), f"{_PREPROCESS}/degree_row", "Unsqueeze")
    product = editor.eltwise("Multiply", column, row, f"{_PREPROCESS}/degree_product")
    root = editor.unary("Sqrt", product, f"{_PREPROCESS}/degree_root")
    fields = {"density": norm.density, "block_density": norm.block_density, "symmetric": True}
    adjacency = graph.with_role(Role.ADJACENCY)[0].name
    quotient = editor.eltwise(
        "Divide", adjacency, root, f"{_PREPROCESS}/quotient", tensor=fields | {"role": Role.NORM}
    )
    editor.rewire(norm.name, quotient)
    return editor.finish()


def row_scaled(graph: Graph) -> Graph:
    """Return a GCN with the adjacency as input, and features scaled by degrees before and after."""
    editor = Editor.of(graph)
    matrix = graph.with_role(Role.NORM)[0]
    nodes = matrix.shape[0]
    editor.region = _PREPROCESS
    degree = editor.reduce("ReduceSum", matrix.name, (1,), f"{_PREPROCESS}/degree")
    exponent = editor.constant(f"{_PREPROCESS}/exponent", (1,), matrix.dtype)
    factor = editor.eltwise("Power", degree, exponent, f"{_PREPROCESS}/degree_factor")
    column = editor.reshape(factor, (nodes, 1), f"{_PREPROCESS}/factor_column", "Unsqueeze")
    for op in graph.readers(matrix.name):
        editor.region = op.region
        before = editor.eltwise("Multiply", op.inputs[1], column, f"{op.name}/scale_before")
        editor.rewire(op.inputs[1], before, only=[op.name])
        readers = [reader.name for reader in graph.readers(op.outputs[0])]
        after = editor.eltwise("Multiply", op.outputs[0], column, f"{op.name}/scale_after")
        editor.rewire(op.outputs[0], after, only=readers)
    return editor.finish()


def by_elements(graph: Graph) -> Graph:
    """Return a SAGE-max as PyTorch's `gather`, `expand` and `where` export it (Fig. 18, left).

    Features, node numbers, mask and the value of a missing neighbour are all repeated to [N, K, F].
    """
    editor = Editor.of(graph)
    column, writers = "", {result: op for op in graph for result in op.outputs}
    for select in [op for op in graph if op.type == "Select"]:
        region, shape = select.region, graph.tensors[select.outputs[0]].shape
        condition, values, low = select.inputs
        features, number = writers[values].inputs[:2]
        nodes = writers[number].inputs[0]
        mask, zero = writers[condition].inputs
        editor.region = _PREPROCESS
        column = column or editor.reshape(nodes, (*shape[:2], 1), f"{_PREPROCESS}/column", "Unsqueeze")
        editor.region = region
        deep = editor.reshape(features, (shape[0], 1, shape[2]), f"{region}/unsqueeze", "Unsqueeze")
        spread = {
            name: editor.op("Broadcast", (t,), shape, editor.tensors[t].dtype, f"{region}/spread_{name}")
            for name, t in (("features", deep), ("numbers", column), ("mask", mask), ("low", low))
        }
        index = editor.op("Convert", (spread["numbers"],), shape, DType.INT32, f"{region}/convert")
        inputs = (spread["features"], index)
        dtype = graph.tensors[features].dtype
        gathered = editor.op("GatherElements", inputs, shape, dtype, f"{region}/gather_elements", axes=(0,))
        present = editor.eltwise("Greater", spread["mask"], zero, f"{region}/greater")
        masked = editor.select(present, gathered, spread["low"], f"{region}/select_elements")
        editor.rewire(select.outputs[0], masked)
    return editor.finish()


def spread_masks(graph: Graph) -> Graph:
    """Return a graph whose prepared masks have the shape of what they mask, so that nothing is repeated."""
    editor = Editor.of(graph)
    for op in graph:
        result = graph.tensors[op.outputs[0]]
        for tensor in graph.inputs_of(op):
            smaller = tensor.role is Role.MASK and 1 < tensor.elements < result.elements
            if op.type in ("Multiply", "Add") and smaller and tensor.kind is not TensorKind.ACTIVATION:
                wide = editor.constant(f"{op.name}/mask", result.shape, tensor.dtype, role=Role.MASK)
                editor.rewire(tensor.name, wide, only=[op.name])
    return editor.finish()


def peak_product(m: int, k: int, n: int, precision: str) -> Graph:
    """Return one product of M x K by K x N in a precision."""
    editor = Editor(f"product-{precision}")
    left = editor.input("x", (m, k), DType(precision))
    right = editor.constant("w", (k, n), DType(precision), role=Role.WEIGHT)
    editor.outputs.append(editor.matmul(left, right, "product"))
    return editor.finish()


FORMS: Mapping[str, Callable[[Graph], Graph]] = {
    "as_built": lambda graph: graph,
    **{form.__name__: form for form in (by_elements, each_layer, formula, row_scaled, spread_masks)},
}
"""Rewritings by the name in a definition: `each_layer` lets every layer make its own mask, `formula` writes
the norm matrix as the paper's Fig. 3 does, `row_scaled` keeps the adjacency and scales the features by the
degrees before and after the product, `by_elements` gathers and masks sampled neighbours element by element,
`spread_masks` prepares masks in the shape of their operands."""


class Outcome(NamedTuple):
    """One network at one place."""

    interval_s: float
    """Time between inferences in steady state."""
    package_j: float
    """Energy of the package in that time: one device works, the others idle."""


@dataclass
class GraniteRunner:
    """Runs networks as the definitions say; each graph is built once."""

    definitions: GraniteReadings
    socs: dict[str, Soc] = field(default_factory=dict)
    """SoCs that replace the shipped ones, by name."""
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

    def shares(self, layer: PublishedVariant) -> tuple[float, float]:
        """Return what the first layer of a network spends its time on, on the data graph of Figs. 4 and 5.

        That is the share of preprocessing in everything, and of control operators in the layer's own time.
        """
        graph = self._graph(f"{layer.model}-cora", layer)
        estimate = self._estimate(graph, self.definitions.places["layer"])
        before_s = sum(op.latency_s for op in estimate.operators if op.phase is Phase.PREPROCESSING)
        others = [op for op in estimate.operators if op.phase is not Phase.PREPROCESSING]
        own = [op for op in others if op.block not in ("layer1", "readout")]
        own_s = sum(op.latency_s for op in own)
        control_s = sum(op.latency_s for op in own if op.type in self.definitions.layers.control)
        return before_s / (before_s + own_s), control_s / own_s

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
        """Return the time in which the CPU updates a kept mask (s)."""
        data = graph.structure
        assert data is not None  # built on a data graph
        size = Size(data.nodes, data.edges // 2)
        loops = data.nodes if graph.meta.model in ("gcn", "gat") else 0
        edge = entries_changed(graph.meta.model, Update({"add_edge": 1}), size, graph.meta.neighbours or 0)
        entries = 2.0 * (data.edges + loops) if everything else edge
        run = resolve_run(self.soc(place.soc), place.hint, place.requests, place.tiles)
        return MaskKeeper(graph, self.soc(place.soc), run).updates_s([entries])[0]

    def _graph(self, workload: str, variant: PublishedVariant) -> Graph:
        """Return the graph of a variant, for the layer of Figs. 4 and 5 on their data graph."""
        key = (workload, variant.model_dump_json())
        if key not in self._graphs:
            if variant.model:
                data = self.definitions.layers.graph
                sizes = data["nodes"], data["edges"], data["features"], data["classes"]
                structure = GraphStructure("layer", *sizes)
                graph = build_gnn(load_gnn(workload, variant.settings), structure)
            else:
                graph = load_workload(workload, variant.settings)
            capacity = self.definitions.capacity.get(workload.rpartition("-")[2], 0)
            graph = apply(graph, variant.techniques.format(capacity=capacity))
            self._graphs[key] = FORMS[variant.form](graph)
        return self._graphs[key]

    def _estimate(self, graph: Graph, place: Place) -> Estimate:
        how = place.model_dump(exclude={"soc"})
        scenario = Scenario(graph, self.soc(place.soc), **how)
        return mapped_estimate(map_placed(scenario.graph, scenario.machine, scenario.run))


def predict(key: Key, runner: GraniteRunner) -> float:
    """Return the prediction of a figure; `NpusimError` where a stack cannot be applied to the model."""
    definitions = runner.definitions
    match key["figure"]:
        case "fig4" | "fig5":
            preprocessing, control = runner.shares(getattr(definitions.layers, key["layer"]))
            return preprocessing if key["figure"] == "fig4" else control
        case "fig20":
            stack, start = key["stack"], "baseline"
            if stack.endswith("_further"):  # grasp_further: on top of GrAd and NodePad
                start = "grad+nodepad"
                stack = f"{start}+{stack.removesuffix('_further')}"
            return _speedup(key, (start, "series2"), stack, runner)
        case "fig21":
            stack = key["stack"].replace("_", "+")
            return _speedup(key, (stack, "series1"), stack, runner)
        case "fig22" | "fig23":
            return _npu_gain(key, runner)
        case _:
            return runner.peak_ratio()[key["measure"] != "tops"]


def _outcome(key: Key, stack: str, place: str, runner: GraniteRunner) -> Outcome:
    workload, definitions = f"{key['model'].replace('_', '-')}-{key['dataset']}", runner.definitions
    return runner.outcome(workload, definitions.variant(key["model"], stack), definitions.places[place])


def _speedup(key: Key, before: tuple[str, str], stack: str, runner: GraniteRunner) -> float:
    """Return how much faster a stack on the Series 2 is than a stack at a place."""
    before_s = _outcome(key, *before, runner).interval_s
    return before_s / _outcome(key, stack, "series2", runner).interval_s


def _npu_gain(key: Key, runner: GraniteRunner) -> float:
    """Return time (Fig. 22) or energy (Fig. 23) of another device over the NPU's, each at its best."""
    definitions, best = runner.definitions, {}
    on_npu = definitions.best_of[key["model"]]
    on_host = definitions.hosts_choose.get(key["model"], on_npu)
    host = f"series2_{key['device']}"
    for place, stacks in (("series2", on_npu), (host, on_host)):
        runs = [_outcome(key, stack, place, runner) for stack in stacks]
        best[place] = min(run.interval_s if key["figure"] == "fig22" else run.package_j for run in runs)
    return best[host] / best["series2"]


def paper_bars(workload: str) -> str:
    """Return Fig. 20's bars of a network as the paper runs them, or '' where it has none."""
    bars = [
        f"{key['stack']} {predict(key, _shipped_runner()):.2f}x (paper {figure.value:g}x)"
        for figure, key in shipped_figures("granite")
        if key["figure"] == "fig20" and f"{key['model'].replace('_', '-')}-{key['dataset']}" == workload
    ]
    start = "GraNNite, Fig. 20, over the paper's own Baseline (series 2, throughput): "
    return start + ", ".join(bars) if bars else ""


@cache
def _shipped_runner() -> GraniteRunner:
    return GraniteRunner(load_definitions())


FIGURES = PathPredictor(lambda key: float(predict(key, _shipped_runner())), skips_errors=True)
"""The predictor of the suite `granite`."""
