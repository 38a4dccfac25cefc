"""Time lines: what happened when on which unit, and why not earlier."""

from npusim.engines.timeline.counters import Staircase, dram_bandwidth, power, sram_in_use
from npusim.engines.timeline.critical import Link, Summary, critical_path, summary
from npusim.engines.timeline.kinds import Kind, Unit
from npusim.engines.timeline.stalls import CAUSES, idle_causes, queueing_s
from npusim.engines.timeline.timeline import Timeline

__all__ = [
    "CAUSES",
    "Kind",
    "Link",
    "Staircase",
    "Summary",
    "Timeline",
    "Unit",
    "critical_path",
    "dram_bandwidth",
    "idle_causes",
    "power",
    "queueing_s",
    "sram_in_use",
    "summary",
]
