"""The calls of `import npusim`: each makes a `Scenario` and hands it to an engine or a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from npusim.arch import Soc
from npusim.config.overrides import Settings
from npusim.engines.analytical import mapped_estimate
from npusim.engines.estimate import Estimate
from npusim.errors import ConfigError, UnknownNameError
from npusim.locate import DEFAULT_SOC
from npusim.mapping import SwapOperands
from npusim.scenario import Network, Scenario
from npusim.studies.comparison import WhatIf
from npusim.studies.fitting_stacks import fitting_stacks
from npusim.studies.uncertainty import SAMPLES, with_interval
from npusim.studies.whatif import whatif as _whatif
from npusim.techniques import Stack, completed

if TYPE_CHECKING:
    from npusim.calibrate.device import Calibrated
    from npusim.measure.document import Measurement
    from npusim.measure.suites import Item
    from npusim.studies.placement_document import Placement
    from npusim.studies.side_by_side import Comparison
    from npusim.studies.stream import Followed, Update

_ENGINES = ("analytical", "event")


class What(TypedDict, total=False):
    """What is done to a network before it runs: fields of `Scenario`."""

    techniques: str | Stack
    settings: Settings
    shapes: Mapping[str, Sequence[int]] | None
    inputs: Any


class How(What, total=False):
    """How a network is asked about: the fields of `Scenario` beside network and SoC."""

    hint: str
    requests: int | None
    tiles: int | Literal["all"] | None
    device: str
    swap_operands: SwapOperands


class Common(How, total=False):
    """What holds for all runs of a comparison: all fields of `Scenario` but the network."""

    soc: Soc | str | Path


def estimate(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    *,
    engine: str = "analytical",
    interval: bool | None = None,
    **how: Unpack[How],
) -> Estimate:
    """Estimate what one inference of a network costs on a SoC.

    Parameters
    ----------
    network : Graph, str, Path, torch.nn.Module, callable or Scenario
        A graph, the name or file of a workload or model, a PyG or torch module with `inputs`, or a factory of
        graphs. A `Scenario` holds everything but `engine` and `interval`.
    soc : Soc, str or Path
        From `npusim.load_soc`, or its name or file.
    engine : {"analytical", "event"}
        Add costs up, or act every tile and transfer out.
    interval : bool, optional
        Whether to find the 90 % interval of the latency; None: where the SoC was fitted to measurements. By
        the analytical engine only.
    **how
        techniques, hint, requests, tiles, device, swap_operands, settings, shapes, inputs: as for
        `npusim.Scenario`.

    Returns
    -------
    Estimate
        Figures as attributes; `to_frame()` has the operators.

    Examples
    --------
    >>> import npusim
    >>> graph = npusim.apply(npusim.load_workload("gcn-cora"), "stagr")
    >>> e = npusim.estimate(graph, npusim.load_soc("core-ultra-series2"))
    >>> e.operators[0].unit
    'npu.dpu'
    >>> e == npusim.estimate("gcn-cora", techniques="stagr")
    True
    >>> npusim.estimate("gcn-cora", techniques="stagr", engine="event").engine
    'event'
    """
    if engine not in _ENGINES:
        raise UnknownNameError("engine", engine, _ENGINES)
    scenario = _scenario(network, soc, how)
    if engine == "event":
        from npusim.engines.event import event_estimate

        return event_estimate(scenario)
    found = mapped_estimate(scenario.mapped)
    wanted = scenario.machine.calibration is not None if interval is None else interval
    return with_interval(found, scenario.mapped) if wanted else found


def compare(
    *what: Network | Soc | Stack | Scenario | Estimate, engine: str = "analytical", **how: Unpack[Common]
) -> Comparison:
    """Compare networks, SoCs, technique stacks, scenarios or estimates, as `npusim compare` does.

    Parameters
    ----------
    *what
        Several networks, SoCs or stacks, by name, file or as objects, and one of another kind that holds for
        all; or several scenarios, estimates and files of estimates. The first is what ratios are to.
    engine : {"analytical", "event"}
        As for `estimate`.
    **how
        Fields of `npusim.Scenario` that hold for all: soc, techniques, hint, requests, tiles, device,
        swap_operands, settings, shapes, inputs.

    Examples
    --------
    >>> import npusim
    >>> found = npusim.compare("gcn-cora", "stagr", "stagr+quantgr")
    >>> found.differ_in, found.runs[1].ratios["dram_bytes"] < 1.0
    ('techniques', True)
    """
    from npusim.studies.side_by_side import compare as side_by_side

    return side_by_side(what, how, lambda scenario: estimate(scenario, engine=engine))


def whatif(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    stacks: Sequence[str] | str = "default",
    *,
    over: Mapping[str, Sequence[str]] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
    **how: Unpack[How],
) -> WhatIf:
    """Compare technique stacks on a network.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`; techniques are not looked at.
    stacks : sequence of str, or str
        Technique stacks, the baseline first; or what `npusim whatif --stack` takes: "default" are those that
        fit the network (`npusim.studies.fitting_stacks`).
    over : mapping of str to sequence of str, optional
        Settings to vary, with their values: every combination is compared.
    samples, seed : int
        Machines drawn for the 90 % intervals (0: none), and the seed of the draws.

    Examples
    --------
    >>> import npusim
    >>> gcn, soc = npusim.load_workload("gcn-cora"), npusim.load_soc("core-ultra-series2")
    >>> compared = npusim.whatif(gcn, soc, ["stagr", "stagr+symg"])
    >>> compared.variants[1].step_from
    'stagr'
    """
    from npusim.studies.over import whatif_over

    scenario, added = _scenario(network, soc, how), None
    left_out = ""
    if stacks == "default":
        fitting = fitting_stacks(scenario)
        stacks, left_out = fitting.stacks, fitting.left_out
    elif isinstance(stacks, str):
        chosen, added = completed(scenario.baseline, stacks)
        stacks = [str(one) for one in chosen]
    if over:
        result = whatif_over(scenario, stacks, over, samples=samples, seed=seed)
    else:
        result = _whatif(scenario, stacks, samples=samples, seed=seed)
    notes = [added, *result.notes] if added else result.notes
    return result.model_copy(update={"notes": notes, "left_out": left_out})


def place(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    *,
    minimise: Literal["latency", "energy"] = "latency",
    devices: Sequence[str] | None = None,
    profiles: Sequence[str | Path] = (),
    **how: Unpack[How],
) -> Placement:
    """Find the best placement of a network over the devices of a SoC, as `npusim map` does.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`.
    devices : sequence of str, optional
        Devices to choose from; None: all that the SoC has, of npu, cpu and gpu.
    profiles : sequence of str or Path
        Files of `npusim measure` with times of this network's operators, one for each device measured: they
        replace the model's.

    Examples
    --------
    >>> import npusim
    >>> npusim.place("gcn-cora", devices=["npu", "cpu"]).exact
    True
    """
    from npusim.studies.placement import place as best_placement

    scenario, measured = _scenario(network, soc, how), []
    if profiles:
        from npusim.measure.profile import operator_profiles

        measured = operator_profiles(profiles, scenario)
    return best_placement(scenario, minimise=minimise, devices=devices, profiles=measured)


def stream(
    network: Network | Scenario,
    soc: Soc | str | Path = DEFAULT_SOC,
    updates: int | str | Path | Sequence[Update] = 200,
    *,
    capacity: int | None = None,
    inferences: int = 1,
    seed: int = 0,
    toolchain: Settings = (),
    **how: Unpack[How],
) -> Followed:
    """Follow a data graph that changes: recompile each time, or pad and mask.

    Parameters
    ----------
    network, soc, **how
        As for `estimate`; the network is a workload of kind gnn, or a factory that takes `structure`.
    updates : int, str, Path or sequence of Update
        Length of a generated stream, a CSV file of events, or the updates themselves.
    capacity : int, optional
        Nodes that pad and mask is compiled for.
    inferences : int
        Inferences after each update.
    seed : int
        Seed of a generated stream.
    toolchain : settings
        Settings of the compiler's data sheet, such as "compile_fixed=5s".

    Examples
    --------
    >>> import npusim
    >>> npusim.stream("gcn-cora", updates=5).strategies[0].name
    'recompile'
    """
    from npusim.arch.toolchain import load_toolchain
    from npusim.studies.stream import follow, generated, read_events

    scenario, drawn = _scenario(network, soc, how), isinstance(updates, int)
    if isinstance(updates, int):
        updates = generated(updates, seed)
    elif isinstance(updates, str | Path):
        updates = read_events(Path(updates))
    return follow(
        scenario, updates, load_toolchain(overrides=toolchain),
        capacity=capacity, inferences=inferences, seed=seed if drawn else None,
    )  # fmt: skip


def measure(
    network: Network | Scenario | Sequence[Network | Scenario] | None = None,
    device: str = "NPU",
    *,
    suite: str | Path = "default",
    hint: str = "both",
    requests: int | None = None,
    tiles: int | None = None,
    precision: str | None = None,
    seconds: float = 2.0,
    progress: Callable[[float, int, str], None] | None = None,
    **what: Unpack[What],
) -> Measurement:
    """Measure a network, or a suite of operators, on a device of this machine with OpenVINO.

    Parameters
    ----------
    network : Graph, str, Path, torch.nn.Module, callable or Scenario, or a sequence of them, optional
        As for `estimate`; several run in turn. None: the suite. A module runs as it is, with the values of
        `inputs`.
    device : str
        NPU, GPU or CPU; GPU.1 for the second of several.
    suite : str or Path
        Name or file of a suite of measurements.
    hint : {"latency", "throughput", "both"}
        One inference at a time, several in flight, or a row of each.
    requests, tiles : int, optional
        Inferences in flight; tiles of the NPU to compile for. None: the device's choice.
    precision : str, optional
        Format to compute in: f32, bf16, f16; None: f32 on a CPU, f16 elsewhere.
    seconds : float
        Time for a row (s).
    progress : callable, optional
        Told how many rows are done, how many there are, and what runs.
    **what
        techniques, settings, shapes, inputs: as for `npusim.Scenario`.

    Raises
    ------
    NpusimError
        Where OpenVINO or the device is missing, or nothing could be measured.

    Examples
    --------
    >>> import npusim
    >>> run = npusim.measure("gcn-cora", "CPU", techniques="stagr", hint="latency", seconds=0.05)
    >>> run.rows[0].id
    'gcn-cora:stagr'
    """
    from npusim.measure.items import items_of
    from npusim.measure.running import measure as run
    from npusim.measure.suites import load_suite

    files: dict[str, Path | Scenario] = {}
    items: list[Item] = []
    if network is None:
        if what:
            raise ConfigError(", ".join(what), allowed="with a network; the rows of a suite say their own")
        items += load_suite(suite).items
    else:
        several = isinstance(network, Sequence) and not isinstance(network, str)
        for one in network if several else [network]:
            asked = one if isinstance(one, Scenario) else Scenario(one, **what)
            rows, sources = items_of(asked, hint, requests)
            items += rows
            files |= sources
    return run(
        items, device, precision=precision, budget_s=seconds, tiles=tiles, files=files, progress=progress
    )


def calibrate(
    soc: str | Path,
    measurements: Measurement | str | Path | Sequence[Measurement | str | Path],
    *,
    free: Sequence[str] = (),
    hold: Sequence[str] = (),
    networks: Mapping[str, Network | Scenario] | None = None,
    name: str | None = None,
    force_soc: bool = False,
    fit_networks: bool = False,
    unsteady: bool = False,
) -> Calibrated:
    """Fit a SoC to measurements of one of its devices, as `npusim calibrate` does.

    Parameters
    ----------
    soc : str or Path
        Name or file of the SoC to fit.
    measurements : Measurement, str, Path, or a sequence of them
        What `measure` returned or `npusim measure` wrote, all of one device.
    free, hold : sequence of str
        Paths of numbers or sections to fit (and no others), and to leave alone.
    networks : mapping of str to network or Scenario, optional
        Networks and model files that rows name, by the name in the row.
    name : str, optional
        Short name of the fitted SoC.
    force_soc, fit_networks, unsteady : bool
        Take a measurement of another chip; fit to whole networks too; fit to rows too that other programs
        disturbed.

    Returns
    -------
    Calibrated
        `report`, the fitted `soc` for `estimate`, and `write(path)` for a file of it.

    Raises
    ------
    NpusimError
        Where a file is wrong, or too few rows can be used.
    """
    from npusim.calibrate.device import calibrate as fit
    from npusim.measure.document import Measurement

    given = [measurements] if isinstance(measurements, str | Path | Measurement) else measurements
    files = {name: _source(network) for name, network in (networks or {}).items()}
    return fit(
        soc, given, free=free, hold=hold, files=files, name=name,
        force_soc=force_soc, fit_networks=fit_networks, unsteady=unsteady,
    )  # fmt: skip


def _source(network: Network | Scenario) -> Path | Scenario:
    if isinstance(network, Scenario):
        return network
    return Path(network) if isinstance(network, str | Path) else Scenario(network)


def _scenario(network: Network | Scenario, soc: Soc | str | Path, how: How) -> Scenario:
    return network if isinstance(network, Scenario) else Scenario(network, soc, **how)
