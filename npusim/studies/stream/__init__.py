"""A graph that changes: a stream of updates, and ways to keep up with it."""

from npusim.studies.stream.document import CapacityCost, Followed, Strategy
from npusim.studies.stream.following import follow
from npusim.studies.stream.updates import EVENTS, Update, generated, read_events

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
