"""The event engine: a mapped graph as discrete events."""

from npusim.engines.event.engine import EventRun, estimate_with_timeline, event_estimate, run_events

__all__ = ["EventRun", "estimate_with_timeline", "event_estimate", "run_events"]
