"""Cost model: lowering to tables, equations of each unit, tiling search, compiled evaluation."""

from npusim.lazy import lazy_names

_NAMES = {
    "npusim.cost.architecture": ("PRIMITIVE_COLUMNS", "SEARCH_COLUMNS", "arch_row", "row_numbers"),
    "npusim.cost.breakdown": ("operator_costs",),
    "npusim.cost.channelwise": ("depthwise_cycles", "eltwise_cycles", "maxpool_cycles"),
    "npusim.cost.compilation_notice": ("COMPILING_S", "tell_once"),
    "npusim.cost.decisions": ("Decisions", "Group", "Plan", "Plans", "Residency"),
    "npusim.cost.dma": (
        "CMX2CMX",
        "CMX2DDR",
        "DDR2CMX",
        "DDR2DDR",
        "bytes_per_s",
        "copy_s",
        "latency_s",
        "transfer_s",
    ),
    "npusim.cost.dpu": ("conv_cycles", "matmul_cycles"),
    "npusim.cost.dsp": ("dsp_kernel_cycles",),
    "npusim.cost.dsp_table": ("fill_dsp", "fill_numbers", "kernel_of"),
    "npusim.cost.evaluation": ("evaluate", "evaluate_plans", "evaluate_points"),
    "npusim.cost.execution": ("execution_of", "listed_as"),
    "npusim.cost.granularity": ("halo_factor",),
    "npusim.cost.grid": ("DpuWorkload",),
    "npusim.cost.hosts": ("cost_host", "host_waits_s"),
    "npusim.cost.interval": ("interval_bounds_s", "interval_s"),
    "npusim.cost.jit": ("compiled", "compiled_parallel"),
    "npusim.cost.liveness": ("packing", "roots", "row_block_sizes"),
    "npusim.cost.lowering": ("Lowered", "lower", "lower_plans"),
    "npusim.cost.plan_table": ("PlanTable", "operators_of"),
    "npusim.cost.tables": (
        "Bound",
        "DSP_KERNEL_DTYPE",
        "DpuOperation",
        "Order",
        "RESULT_DTYPE",
        "Split",
        "TOTAL_DTYPE",
        "Unit",
        "empty_ops",
    ),
}
"""Public names by the module they live in; other packages import them from here."""

__getattr__, __dir__, __all__ = lazy_names("npusim.cost", _NAMES)
