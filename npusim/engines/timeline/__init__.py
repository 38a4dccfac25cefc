"""Time lines: what happened when on which unit, and why not earlier."""

from npusim.engines.timeline.counters import StepFunction, dram_bandwidth, power, sram_in_use
from npusim.engines.timeline.critical import CriticalTask, PathSummary, critical_path, path_summary
from npusim.engines.timeline.stalls import CAUSES, idle_causes, queueing_s
from npusim.engines.timeline.timeline import ExecutionUnit, TaskKind, Timeline

__all__ = [
    "CAUSES",
    "CriticalTask",
    "ExecutionUnit",
    "PathSummary",
    "StepFunction",
    "TaskKind",
    "Timeline",
    "critical_path",
    "dram_bandwidth",
    "idle_causes",
    "path_summary",
    "power",
    "queueing_s",
    "sram_in_use",
]
