"""``npusim prune`` and `npusim.prune`: channels of a trained GNN pruned for real, and what that gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npusim.api import as_numbers
from npusim.cli.options import DATA, GNN, WRITTEN, Command, option
from npusim.errors import ConfigError, as_list

if TYPE_CHECKING:
    from npusim.api.asking import Progress
    from npusim.config.overrides import Settings
    from npusim.pruning.document import PruningReport


def prune(
    network: str | Path,
    budget: str | float | Sequence[float],
    *,
    scheme: str = "full",
    multiple: str | int = "1",
    data: str | Path | None = None,
    seeds: str | Sequence[int] = "0",
    soc: str | Sequence[str] | None = None,
    models: str | Path | None = None,
    settings: Settings = (),
    progress: Progress | None = None,
) -> PruningReport:
    """Prune the channels of a trained GNN (GCNP): LASSO beside random and largest-weight choices.

    Trains on Planetoid's public split, prunes on the training nodes and their graph, refits, trains again.
    `npusim estimate DIR/NAME-4x.yaml` costs what was written. Needs the extra `gnn`.

    Parameters
    ----------
    network : str or Path
        Name or file of a GNN, or a trained module of GCNConv (model.py:net) whose example inputs are a data
        object with y, train_mask, val_mask and test_mask.
    budget : float, sequence of float, or str with commas
        Times fewer channels, such as 4 or 2,4,8; above 1.
    scheme : {"full", "batched"}
        full: all layers, attributes kept; batched: layer 2 and what the neighbours' branch of layer 1 reads.
    multiple : int, or "auto"
        Channels of a branch are kept in multiples of N; auto: of what the machines of --soc work on side by
        side, 16 on a MAC grid.
    data : str or Path, optional
        Folder with the raw data sets, as cora/raw/ind.cora.x and so on. None: the environment variable
        NPUSIM_DATA
    seeds : sequence of int, or str
        Trainings, such as 0-2 or 0,3,7.
    soc : sequence of str, or str with commas, optional
        Machines to cost the pruned networks on, parted by commas.
    models : str or Path, optional
        Folder for parameters (.pt), workloads (.yaml) and OpenVINO models (.xml); NAME-1x is whole.
    settings : settings
        Of the workload; paths begin with `workload`.
    progress : callable, optional
        Called with the share that is done, 1.0 and the present step.

    Command lines
    -------------
        npusim prune sage-concat-cora --budget 4 --scheme full --data planetoid --models pruned
        npusim prune model.py:net --budget 4 --models pruned
        npusim prune gcn-cora --budget 2,4,8 --seeds 0-2 --data planetoid -o pruned.json
        npusim prune sage-concat-cora --budget 2,4,8 --multiple 16 --soc core-ultra-series2 --data planetoid
    """
    from npusim.api.asking import of_workload, telling
    from npusim.api.trusting import parse_seeds

    own_settings = of_workload(settings, "")
    budgets, trainings, socs = parse_budgets(budget), parse_seeds(seeds), as_list(soc)
    lanes = parse_multiple(str(multiple), socs)

    from npusim.pruning.pruned_networks import Plan, run_pruning

    plan = Plan(budgets, scheme, lanes, seeds=trainings, socs=socs)
    raw, target = (None if folder is None else Path(folder) for folder in (data, models))
    return run_pruning(str(network), plan, raw, target, own_settings, telling(progress))


def parse_multiple(text: str, socs: Sequence[str]) -> int:
    """Return the multiple in which channels are kept; refuse a misspelt machine before minutes of work.

    Raises
    ------
    ConfigError
        For anything but a whole number of at least 1, or ``auto`` without a machine.
    UnknownNameError
        For an unknown machine.
    """
    from npusim.arch import Npu, load_soc

    machines = [load_soc(name) for name in socs]
    if text == "auto" and machines:
        devices = [list(machine.devices.values()) for machine in machines]
        grids = [[one.dpu.channel_lanes for one in each if isinstance(one, Npu)] for each in devices]
        lanes = [[getattr(one, "product_lanes", None) or 1.0 for one in each] for each in devices]
        return max(int(max(own or other)) for own, other in zip(grids, lanes, strict=True))
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 4096:
        allowed = "a whole number from 1 to 4096, or auto with --soc"
        raise ConfigError(f"`{text}`", file="--multiple", allowed=allowed)
    return int(text)


def parse_budgets(budget: str | float | Sequence[float]) -> list[float]:
    """Return the budgets of a number, a list, or a text such as ``2,4,8``.

    Raises
    ------
    ConfigError
        Where a part is no number above 1.

    Examples
    --------
    >>> parse_budgets("2,4")
    [2.0, 4.0]
    """
    allowed = "numbers above 1, such as 4 or 2,4,8; 4 keeps a quarter"
    texts = str(budget) if isinstance(budget, int | float) else budget
    budgets = as_numbers(texts, float, "--budget", allowed, 1e6)
    if not min(budgets, default=2.0) > 1.0:
        raise ConfigError(f"`{budget}`", file="--budget", allowed=allowed)
    return list(dict.fromkeys(budgets))


COMMAND = Command(
    "npusim.pruning.command:prune",
    {
        "network": GNN,
        "budget": option("LIST", show_default=False),
        "scheme": option(),
        "multiple": option("N|auto"),
        **DATA,
        "seeds": option("LIST"),
        "soc": option("LIST", show_default=False),
        "models": option("DIR", Path, show_default=False),
        **WRITTEN,
    },
    fields=("settings",),
    page="npusim.pruning.page:pruning_page",
    counted="",
)
