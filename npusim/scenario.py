"""Scenario: a network on a SoC under a technique stack, and how it is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from npusim.arch import Soc, load_soc, with_overrides
from npusim.arch.npu import MappingObjective
from npusim.config import Override
from npusim.config.overrides import Settings, as_overrides
from npusim.errors import ConfigError, InfeasibleError, NpusimError, UnknownNameError, nearest
from npusim.graph import Graph, GraphStructure
from npusim.graph.editor import with_meta
from npusim.locate import DEFAULT_SOC
from npusim.mapping import Mapped, Run, SwapOperands, map_graph
from npusim.plugins import announced, named
from npusim.techniques import Stack, apply
from npusim.workloads import build_gnn, import_settings, load_gnn, load_workload

if TYPE_CHECKING:
    from npusim.frontends.pyg import ExampleGraph
    from npusim.mapping import MappingFile, OwnMapping

Network = Graph | str | Path | Callable[..., Any]
"""A graph, a workload or model file, a PyTorch module, or a factory of graphs (see `Scenario`)."""

_HINTS = ("latency", "throughput")
_WORKLOAD = "workload"  # first word of the paths that lead into the network; all others lead into the SoC


@dataclass(frozen=True, eq=False)
class Scenario:
    """A network on a SoC under a technique stack, and how it runs.

    Network and SoC are loaded, rewritten and mapped on first use, each once.

    The texts below are also the help of the command line's options.

    Parameters
    ----------
    network : Graph, str, Path, torch.nn.Module or callable
        A graph without techniques; the name of a workload, or a YAML, .xml or .onnx file; a module, with
        `inputs`; or a factory, which returns the graph and takes `workload.KEY` settings as keyword
        arguments (for streams also `structure`, the statistics of the data graph).
    soc : Soc, str or Path
        Machine: a name from `npusim list socs` or a SoC YAML.
    techniques : str or Stack
        Techniques joined by +, such as stagr+quantgr or nodepad:capacity=3000+grad.
    hint : {"latency", "throughput"}
        One inference at a time, or several in flight.
    requests : int, optional
        Inferences in flight. None: the SoC's for the hint
    tiles : int or "all", optional
        NPU tiles an inference is compiled for. None: the SoC's for the hint
    device : str
        Device that runs the operators, by its name on the machine, or npu, cpu, gpu; auto takes the NPU for
        what it can do.
    swap_operands : bool or "search"
        Products whose right operand is laid on the pixels, the left one as weight: none, all, or those that a
        search finds faster so.
    first : bool
        The first inference, with no weights in SRAM from an earlier one. Default: the steady state, which
        differs where npu.schedule.resident_weights is on.
    mapping_objective : {"latency", "energy", "edp"}, optional
        What the mapping of each operator is chosen for; edp: energy times latency. None: what the SoC says
        (npu.schedule.objective).
    mapping : str, Path, mapping or OwnMapping, optional
        Loop nests of operators, wholly or in part, and what stays in SRAM: a file of --save-mapping, one of
        your own (npusim schema mapping), or the name of an installed package's search. None: npusim's search
    settings : sequence of str, or mapping of str to value
        Change a value of the SoC (npu.sram.per_tile=2MiB) or of the workload (workload.hidden=128).
        Repeatable.
    shapes : mapping of str to sequence of int, optional
        Fixed shape of an input that a model file leaves open. Repeatable.
    inputs : mapping, sequence or data object, optional
        Example inputs of a module, as `npusim.from_pyg` takes them.

    Examples
    --------
    >>> Scenario("gcn-cora", techniques="stagr", settings=["npu.tiles=4"]).run.tiles
    4
    """

    network: Network
    soc: Soc | str | Path = DEFAULT_SOC
    techniques: str | Stack = "none"
    _: KW_ONLY
    hint: str = "latency"
    requests: int | None = None
    tiles: int | Literal["all"] | None = None
    device: str = "auto"
    swap_operands: SwapOperands = False
    first: bool = False
    mapping_objective: MappingObjective | None = None
    mapping: OwnMapping | MappingFile | str | Path | Mapping[str, Any] | None = None
    settings: Settings = ()
    shapes: Mapping[str, Sequence[int]] | None = None
    inputs: Any = None

    def with_(self, **changes: Any) -> Scenario:
        """Return the scenario with other fields; what they do not touch is not loaded again."""
        other = replace(self, **changes)
        for part, fields in _MADE_OF.items():
            if part in self.__dict__ and not fields.intersection(changes):
                other.__dict__[part] = self.__dict__[part]
        return other

    def on(self, machine: Soc) -> Scenario:
        """Return the scenario on another machine, with the network as it is."""
        other = replace(self, network=self.baseline, soc=machine, settings=(), shapes=None, inputs=None)
        other.__dict__["graph"] = self.graph
        return other

    def with_settings(self, settings: Settings) -> Scenario:
        """Return the scenario with further settings."""
        return self.with_(settings=[*as_overrides(self.settings), *as_overrides(settings)])

    def load(self) -> Scenario:
        """Load SoC and network now, so that errors show before any work, and return the scenario."""
        _ = self.machine, self.baseline
        return self

    @cached_property
    def machine(self) -> Soc:
        """The SoC with its settings."""
        settings = split_settings(self.settings)[1]
        if isinstance(self.soc, Soc):
            soc = with_overrides(self.soc, settings) if settings else self.soc
        else:
            soc = load_soc(self.soc, settings)
        schedules = {name: npu.schedule for name, npu in soc.array_devices.items()}
        changed = {}
        for name, schedule in schedules.items():
            if self.first and schedule.resident_weights:
                changed[f"{name}.schedule.resident_weights"] = "false"
            if self.mapping_objective not in (None, schedule.objective):
                changed[f"{name}.schedule.objective"] = self.mapping_objective
        return with_overrides(soc, as_overrides(changed)) if changed else soc

    @cached_property
    def baseline(self) -> Graph:
        """The network without techniques."""
        return load_network(self.network, split_settings(self.settings)[0], self.shapes, self.inputs)

    def learn(self, same: Graph) -> None:
        """Take over what an import of the same network with values knows of its edges."""
        if not self.baseline.meta.known:
            self.__dict__["baseline"] = with_meta(self.baseline, known=same.meta.known)

    @cached_property
    def graph(self) -> Graph:
        """The network with techniques applied; errors as for `npusim.apply`."""
        return apply(self.baseline, self.techniques)

    @cached_property
    def run(self) -> Run:
        """How the network is run, every default made definite."""
        how = (self.hint, self.requests, self.tiles, self.device, self.swap_operands)
        own, mapping = None, self.mapping
        if mapping is not None:
            from npusim.mapping import own_mapping  # few have one

            search = (
                announced("npusim.mappings").get(str(mapping)) if isinstance(mapping, str | Path) else None
            )
            if search is not None:
                with named(search, "mapping search"):
                    mapping = search.load()(self.graph, self.machine)
            own = own_mapping(mapping)
        return replace(resolve_run(self.machine, *how), own_mapping=own)

    @cached_property
    def mapped(self) -> Mapped:
        """The network mapped to the SoC; an `InfeasibleError` where it does not fit."""
        run = self.run  # before the graph, which may take long
        if run.own_mapping is not None:
            run.own_mapping.refuse_unknown(self.graph)
        mapped = map_graph(self.graph, self.machine, run)
        if run.own_mapping is not None:
            run.own_mapping.refuse_unused(mapped.decisions.groups)
        return mapped

    @cached_property
    def module(self) -> tuple[Any, Mapping[str, Any]] | None:
        """A module that takes a tensor an argument, and its example inputs; None for other networks."""
        if not is_module(self.network) and not isinstance(self.network, str | Path):
            return None
        from npusim.frontends.pyg import MODULE, flattened, module_at

        if is_module(self.network):
            return flattened(self.network, self.inputs)
        if not MODULE.fullmatch(str(self.network)):
            return None
        named = module_at(str(self.network))
        return named.module, named.inputs

    @cached_property
    def example(self) -> tuple[Any, ExampleGraph] | None:
        """The module of `module` and the graph in its example inputs; None without one list of edges."""
        if self.module is None:
            return None
        from npusim.frontends.pyg import ExampleGraph, as_arrays

        graph = ExampleGraph.of(as_arrays(self.module[1]))
        return None if graph is None else (self.module[0], graph)

    @cached_property
    def on_structure(self) -> Callable[[GraphStructure], Graph]:
        """Builds the network, without techniques, on other statistics of the data graph.

        Raises
        ------
        ConfigError
            For a network that is not built on a data graph.
        """
        settings, network = split_settings(self.settings)[0], self.network
        if self.example is not None:
            from npusim.frontends.pyg import as_tensors

            module, example = self.example

            @cache
            def traced(nodes: int, edges: int) -> Graph:
                return load_network(module, settings, inputs=as_tensors(example.resized(nodes, edges)))

            return lambda structure: traced(structure.nodes, structure.edges)
        if isinstance(network, str | Path) and self.module is None:
            spec, name = load_gnn(network, settings), Path(network).stem
            return lambda structure: build_gnn(spec, structure, name)
        if not callable(network) or "structure" not in inspect.signature(network).parameters:
            allowed = (
                "a workload of kind gnn, a factory that takes `structure`, or a module whose example inputs "
                "have one list of edges [2, E] among nodes with features [N, F]"
            )
            raise ConfigError(f"the network `{name_of(network)}`", allowed=allowed)
        return lambda structure: _graph_of_factory(network, settings, structure=structure)


_MADE_OF = {
    "machine": {"soc", "settings", "first", "mapping_objective"},
    "baseline": {"network", "settings", "shapes", "inputs"},
    "module": {"network", "inputs"},
    "example": {"network", "inputs"},
    "graph": {"network", "settings", "shapes", "inputs", "techniques"},
}
"""Fields that each loaded part depends on."""


def name_of(network: Network) -> str:
    """Return the name of a network: of the graph, the workload or the factory."""
    if isinstance(network, Graph):
        return network.name
    if is_module(network):
        return type(network).__name__
    return str(network) if isinstance(network, str | Path) else getattr(network, "__name__", repr(network))


def is_module(network: object) -> bool:
    """Whether a network is a PyTorch module; torch is not imported to find out."""
    return hasattr(network, "forward") and hasattr(network, "named_parameters")


def load_network(
    network: Network,
    settings: Settings = (),
    shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: Any = None,
) -> Graph:
    """Return the graph of a network, without techniques.

    `settings` are of the network, `shapes` for model files, `inputs` for modules; a `ConfigError` refuses
    those that this network does not take.
    """
    if is_module(network):
        if inputs is None:
            allowed = "inputs={'x': ..., 'edge_index': ...}, example values whose shapes are the network's"
            raise ConfigError(f"no inputs for the module {name_of(network)}", allowed=allowed)
        from npusim.frontends.pyg import from_pyg

        precision, roles, finished = import_settings(settings)
        return finished(from_pyg(network, inputs, roles=roles, precision=precision))
    if inputs is not None:
        raise ConfigError(f"inputs for {name_of(network)}", allowed="only for a PyTorch module")
    if isinstance(network, str | Path):
        return load_workload(network, settings, shapes)
    if shapes:
        raise ConfigError(f"shapes for {', '.join(shapes)}", allowed="only for a model file (.xml, .onnx)")
    overrides = as_overrides(settings)
    if not isinstance(network, Graph):
        return _graph_of_factory(network, overrides)
    if overrides:
        allowed = "no setting of the network: this graph is made already; a factory can take settings"
        found = f"`{'.'.join(overrides[0].path)}` of {network.name}"
        raise ConfigError(found, file=overrides[0].origin, allowed=allowed)
    return network


def _graph_of_factory(factory: Callable[..., Graph], settings: Sequence[Override], **arguments: Any) -> Graph:
    """Return what a factory makes of settings."""
    parameters = inspect.signature(factory).parameters
    known = [name for name in parameters if name not in arguments]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for setting in settings:
        name = ".".join(setting.path[1:])
        if name not in known and not takes_any:
            found = f"`{'.'.join(setting.path)}` of {name_of(factory)}"
            allowed = ", ".join(f"{_WORKLOAD}.{key}" for key in known) or "no setting"
            raise ConfigError(found, file=setting.origin, allowed=allowed, suggestion=nearest(name, known))
        arguments[name] = setting.value
    graph = factory(**arguments)
    if not isinstance(graph, Graph):
        raise NpusimError(f"{name_of(factory)}: found a {type(graph).__name__}; allowed: a Graph")
    return graph


def split_settings(settings: Settings) -> tuple[list[Override], list[Override]]:
    """Return the settings of the workload and those of the SoC.

    Raises
    ------
    ConfigError
        Where one is no ``PATH=VALUE``, or misspells ``workload``.
    """
    overrides = as_overrides(settings)
    for override in overrides:
        first = override.path[0]
        if first != _WORKLOAD and nearest(first, [_WORKLOAD]) == _WORKLOAD:
            found = f"the unknown path `{'.'.join(override.path)}`"
            meant = ".".join((_WORKLOAD, *override.path[1:]))
            allowed = "a path that begins with `workload` or with a part of the SoC"
            raise ConfigError(found, file=override.origin, allowed=allowed, suggestion=meant)
    of_workload = [override for override in overrides if override.path[0] == _WORKLOAD]
    return of_workload, [override for override in overrides if override.path[0] != _WORKLOAD]


def resolve_run(
    soc: Soc,
    hint: str = "latency",
    requests: int | None = None,
    tiles: int | Literal["all"] | None = None,
    device: str = "auto",
    swap_operands: SwapOperands = False,
) -> Run:
    """Return how a network runs under a performance hint, every default made definite.

    Defaults of `requests` and `tiles` are the SoC's for the hint; without an NPU one request (for throughput
    one per core) and no tiles.

    Raises
    ------
    UnknownNameError
        For another hint or device.
    NpusimError
        For a device that the SoC lacks, a number of tiles that the NPU has not, or fewer than one request.
    """
    if hint not in _HINTS:
        raise UnknownNameError("performance hint", hint, _HINTS)
    if swap_operands not in (False, True, "search"):
        raise UnknownNameError("value of swap_operands", str(swap_operands), ("False", "True", "search"))
    if requests is not None and requests < 1:
        raise NpusimError(f"--requests: found {requests}; allowed: a whole number of at least 1")
    if device != "auto" and soc.named(device) is None:
        if device not in ("npu", "cpu", "gpu"):
            raise UnknownNameError("device", device, ("auto", *soc.array_devices, *soc.hosts))
        names = ", ".join(["auto", *soc.array_devices, *soc.hosts])
        raise NpusimError(f"--device: {soc.name} has no {device.upper()}; allowed: {names}")
    home = Run(device=device).home(soc)
    if home is None:
        if isinstance(tiles, int) and tiles:
            raise NpusimError(f"--tiles: found {tiles}, but {soc.name} has no NPU; leave it out")
        host = soc.hosts[str(soc.main_device if device == "auto" else soc.named(device))]
        streams = 1 if hint == "latency" else int(host.cores)  # which keep all cores busy
        return Run(hint, requests or streams, 0, device)
    npu = soc.array_devices[home]
    physical = int(npu.tiles)
    if isinstance(tiles, int) and not 1 <= tiles <= physical:
        raise InfeasibleError(
            f"--tiles: found {tiles}", levers=[f"allowed: 1 to {physical}, the tiles of {soc.name}'s NPU"]
        )
    in_flight = requests if requests is not None else int(getattr(npu.inflight_requests, hint))
    default = physical if tiles == "all" else npu.tiles_used(hint)
    used = tiles if isinstance(tiles, int) else default
    return Run(hint, in_flight, used, device, swap_operands, tiles_told=isinstance(tiles, int))
