"""The public names with their types; `__init__.py` imports each on first use."""

from npusim.studies.stream.document import BestAtRate as BestAtRate
from npusim.studies.stream.document import CapacityCost as CapacityCost
from npusim.studies.stream.document import Followed as Followed
from npusim.studies.stream.document import Strategy as Strategy
from npusim.studies.stream.following import BatchJudgement as BatchJudgement
from npusim.studies.stream.following import follow as follow
from npusim.studies.stream.stored import StorePlan as StorePlan
from npusim.studies.stream.stored import stored_features as stored_features
from npusim.studies.stream.updates import EVENTS as EVENTS
from npusim.studies.stream.updates import Update as Update
from npusim.studies.stream.updates import generated as generated
from npusim.studies.stream.updates import read_events as read_events
