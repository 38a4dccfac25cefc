"""A graph that changes: a stream of updates, and ways to keep up with it."""

from npusim.engines.stream.document import CapacityCost, Followed, Strategy
from npusim.engines.stream.following import follow
from npusim.engines.stream.updates import EVENTS, Update, generated, read_events

__all__ = [
    "EVENTS",
    "CapacityCost",
    "Followed",
    "Strategy",
    "Update",
    "follow",
    "generated",
    "read_events",
]
