"""Decisions that need costs: what runs where, what is fused, what stays in SRAM."""

from npusim.lazy import lazy_names

_NAMES = {
    "npusim.mapping.fusion": ("DeviceChoice", "wished"),
    "npusim.mapping.graphsplit.device_costs": ("placement_problem",),
    "npusim.mapping.graphsplit.problem": ("Problem",),
    "npusim.mapping.graphsplit.splitting": ("Objective", "Terms", "best_placement", "objective_of", "placed"),
    "npusim.mapping.mapped": ("Mapped", "Run", "map_graph", "map_placed"),
    "npusim.mapping.memory": ("MemoryUse",),
    "npusim.mapping.order": ("entries",),
    "npusim.mapping.tables": ("READ_BY_LOWERING", "plan_tables"),
}
"""Public names by the module they live in; other packages import them from here."""

__getattr__, __dir__, __all__ = lazy_names("npusim.mapping", _NAMES)
