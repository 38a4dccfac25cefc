"""The event engine: a mapped graph as discrete events."""

from npusim.engines.event.engine import event_estimate, run_events

__all__ = ["event_estimate", "run_events"]
