"""Times of a network's operators as a device's profiler told them, for placing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from npusim.errors import ConfigError, shown
from npusim.measure.document import Measurement, ModelFile, ModelRef, Network, Row, Workload
from npusim.measure.reading import read_measurement
from npusim.scenario import Network as AnyNetwork
from npusim.scenario import Scenario, name_of, split_settings
from npusim.studies.placement import OperatorTime, Profile
from npusim.techniques import parse


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a row must have run to say something of a scenario."""

    name: str
    techniques: str
    settings: Mapping[str, str]

    def __str__(self) -> str:
        return f"`{self.name}` with {self.techniques}"

    def is_run_by(self, model: ModelRef) -> bool:
        if isinstance(model, Workload):
            own = (Path(model.workload).stem, str(parse(model.techniques)), dict(model.settings))
            return own == (Path(self.name).stem, self.techniques, self.settings)
        if isinstance(model, ModelFile):
            return model.name == Path(self.name).name and self.techniques == "none"
        return isinstance(model, Network) and f"{model.network}" == self.name


def operator_profiles(files: Sequence[str | Path], scenario: Scenario) -> list[Profile]:
    """Read what devices took for the operators of a network.

    Parameters
    ----------
    files : sequence of str or Path
        Measurements (`npusim.measurement/1`), one for each device; each has a row of this network under these
        techniques with the times of its operators.

    Returns
    -------
    list of Profile
        One for each file.

    Raises
    ------
    ConfigError
        Where a file has no such row, or two are of one device; the message lists the rows there are.
    """
    asked = _asked(scenario)
    found: dict[str, Profile] = {}
    for file in files:
        measurement = read_measurement(file)
        kind = measurement.device.kind
        if kind in found:
            raise ConfigError(
                f"a second profile of the {kind}", file=str(file), allowed="one file for each device"
            )
        row = _row(measurement, asked, str(file))
        found[kind] = Profile(
            device=kind,
            chip=measurement.device.name,
            row=row.id,
            operators=tuple(OperatorTime((*one.originals, one.name), one.latency_s) for one in row.operators),
        )
    return list(found.values())


def _asked(scenario: Scenario) -> _Asked:
    network: AnyNetwork = scenario.network
    settings = {".".join(o.path[1:]): str(o.value) for o in split_settings(scenario.settings)[0]}
    return _Asked(name_of(network), str(parse(scenario.techniques)), settings)


def _row(measurement: Measurement, asked: _Asked, file: str) -> Row:
    fitting = [row for row in measurement.rows if row.operators and asked.is_run_by(row.model)]
    if fitting:
        return min(fitting, key=lambda row: (row.hint != "latency", row.requests))
    profiled = ", ".join(shown(row.id) for row in measurement.rows if row.operators) or "none"
    raise ConfigError(
        f"no operator times of {asked}", file=file,
        allowed=f"a row of this very network; rows with operator times: {profiled}",
    )  # fmt: skip
