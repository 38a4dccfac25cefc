"""``npusim prune``: channels of a trained GNN pruned for real, and what that gives."""

from pathlib import Path

from npusim.cli.options import DATA, GNN, WRITTEN, Command, option

COMMAND = Command(
    "npusim.pruning.pruned_networks:prune",
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
