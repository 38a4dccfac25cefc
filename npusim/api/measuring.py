"""Calls that run a network for real: measure it, fit a machine to measurements, judge its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from npusim.api.estimating import What
from npusim.config.overrides import Settings
from npusim.errors import ConfigError
from npusim.scenario import Network, Scenario, is_module

if TYPE_CHECKING:
    from npusim.accuracy.document import AccuracyReport
    from npusim.arch import Soc
    from npusim.calibrate.device import Calibrated
    from npusim.measure.document import Measurement
    from npusim.measure.suites import Item


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
    processor_time: bool = False,
    soc: str | Path | Soc | None = None,
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
        Name or file of a suite; `aggregation` runs PyTorch Geometric on the CPU.
    hint : {"latency", "throughput", "both"}
        One inference at a time, several in flight, or a row of each.
    requests, tiles : int, optional
        Inferences in flight; tiles of the NPU to compile for. None: the device's choice.
    precision : str, optional
        Format to compute in: f32, bf16, f16; None: f32 on a CPU, f16 elsewhere.
    seconds : float
        Time for a row (s).
    processor_time : bool
        Whether the processor's time of one thread is read, not the clock: on a CPU that is kept busy.
    soc : str, Path or Soc, optional
        Machine whose estimate stands beside each row.
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
    from npusim.measure.predicting import predicted
    from npusim.measure.running import measure as run

    items, files = _rows(network, suite, hint, requests, what)
    if any(item.of_pytorch for item in items):
        found = _aggregations(items, seconds, progress)
    else:
        how: dict[str, Any] = {"precision": precision, "tiles": tiles, "files": files}
        how |= {"processor_time": processor_time, "progress": progress}
        found = run(items, device, budget_s=seconds, **how)
    return found if soc is None else predicted(found, soc, files)


def _rows(
    network: Any, suite: str | Path, hint: str, requests: int | None, what: Mapping[str, Any]
) -> tuple[list[Item], dict[str, Path | Scenario]]:
    """Return the rows of networks or of a suite, and where their networks come from."""
    from npusim.measure.suites import items_of, load_suite

    if network is None:
        if what:
            raise ConfigError(", ".join(what), allowed="with a network; the rows of a suite say their own")
        return list(load_suite(suite).items), {}
    files: dict[str, Path | Scenario] = {}
    items: list[Item] = []
    for one in network if isinstance(network, list | tuple) else [network]:
        asked = one if isinstance(one, Scenario) else Scenario(one, **what)
        rows, sources = items_of(asked, hint, requests)
        items += rows
        files |= sources
    return items, files


def _aggregations(
    items: Sequence[Item], seconds: float, progress: Callable[[float, int, str], None] | None
) -> Measurement:
    from npusim.measure.aggregation import measure_aggregations

    return measure_aggregations(items, budget_s=seconds, progress=progress)


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
    keep_unsteady: bool = False,
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
    force_soc, fit_networks, keep_unsteady : bool
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
    from npusim.calibrate.device import FitOptions
    from npusim.calibrate.device import calibrate as fit
    from npusim.measure.document import Measurement

    given = [measurements] if isinstance(measurements, str | Path | Measurement) else measurements
    files = {name: _source(network) for name, network in (networks or {}).items()}
    options = FitOptions(
        free=free,
        hold=hold,
        force_soc=force_soc,
        fit_networks=fit_networks,
        keep_unsteady=keep_unsteady,
        name=name,
    )
    return fit(soc, given, options, files=files)


def accuracy(
    network: str | Path | Sequence[str] | Any,
    techniques: str = "accuracy",
    *,
    data: Any = None,
    inputs: Any = None,
    mask: Any = None,
    seeds: Sequence[int] = (0,),
    settings: Settings = (),
    retrain: bool = False,
) -> AccuracyReport:
    """Judge technique stacks by the answers of a trained model.

    Parameters
    ----------
    network : str, Path, sequence of str, or torch.nn.Module
        Workloads of kind gnn, which are trained; or a trained module of one's own.
    techniques : str
        A stack, stacks parted by commas, or a named list.
    data : Path, or data object
        Of workloads the folder with the raw data sets; of a module its data: `x`, `edge_index`, `y` and
        `test_mask`, as `torch_geometric.data.Data` has them.
    inputs : mapping of str to tensor, optional
        Values for a module's `forward`; default: the attributes of `data` that it names.
    mask : tensor of bool, optional
        Nodes of a module that count; default: `data.test_mask`, or all.
    seeds, settings, retrain
        Of workloads: trainings, settings, and whether to train where parameters are kept.

    Returns
    -------
    AccuracyReport
        A result per stack and number format, and the stacks left out with the reason.

    Raises
    ------
    NpusimError
        Where PyTorch or data are missing, or a module's result is no score per node.
    """
    from npusim.techniques.stack import listed

    stacks = [str(stack) for stack in listed(techniques)]
    if is_module(network):
        from npusim.accuracy.judging import judge_module

        return judge_module(network, data, stacks, inputs, mask)
    from npusim.accuracy.judging import judge

    names = [str(network)] if isinstance(network, str | Path) else list(network)
    folder = None if data is None else Path(data)
    return judge(names, stacks, folder, seeds, settings, retrain)


def _source(network: Network | Scenario) -> Path | Scenario:
    if isinstance(network, Scenario):
        return network
    return Path(network) if isinstance(network, str | Path) else Scenario(network)
