"""A design space as a file: axes, constraints, objectives, and which points are evaluated and kept.

Nothing is an expression to be evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import (
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from npusim.config import Section, load_model, validate_data
from npusim.errors import UnknownNameError
from npusim.graph import Graph
from npusim.locate import DEFAULT_SOC, resource, resource_names
from npusim.metrics import METRICS, MetricName
from npusim.scenario import Network, name_of
from npusim.units import refuse

Scalar = bool | int | float | str
"""What a file writes for one value of an axis: a number, a text with a unit, a name, true or false."""

_YAML = (".yaml", ".yml")
_WORKLOAD = "workload"


def _network(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Take a graph or a factory as it is."""
    return value if isinstance(value, Graph) or callable(value) else validate(value)


def _written_network(value: Any, info: SerializationInfo) -> Any:
    is_given = isinstance(value, Graph) or callable(value)
    return name_of(value) if info.mode == "json" and is_given else value


if TYPE_CHECKING:
    NetworkField = Network
    AxisValue = Scalar | Network
else:
    NetworkField = Annotated[str, WrapValidator(_network), PlainSerializer(_written_network)]
    AxisValue = Annotated[Scalar, WrapValidator(_network), PlainSerializer(_written_network)]


MOST_VALUES = 100_000
"""Values of an axis in steps."""


class AxisSpec(Section):
    """Values of an axis: a list (plain, or as `values`), a range in steps, or a range to draw from."""

    values: list[AxisValue] | None = Field(None, min_length=1, max_length=10_000)
    """The values themselves, each as `--set` takes it; in Python also graphs and factories on `workload`."""
    start: Scalar | None = Field(None, alias="from")
    """First value of a range."""
    stop: Scalar | None = Field(None, alias="to")
    """Last value of a range; it belongs to the range."""
    step: Scalar | None = None
    """Distance of two values of a range."""
    count: Annotated[int, Field(ge=2, le=MOST_VALUES)] | None = None
    """How many values a range has; neither `count` nor `step`: a sampled design draws from all of it."""
    scale: Literal["linear", "log"] = "linear"
    """`log`: neighbours have the same ratio instead of the same distance; for `count` and for sampling."""

    @model_validator(mode="before")
    @classmethod
    def _plain_list(cls, axis: Any) -> Any:
        return {"values": axis} if isinstance(axis, list | tuple) else axis

    @model_validator(mode="after")
    def _one_form(self) -> AxisSpec:
        written: list[tuple[type, object]] = [
            (type(one), one) if isinstance(one, Scalar) else (str, name_of(one)) for one in self.values or ()
        ]
        if len(set(written)) < len(written):
            raise ValueError("a value stands there twice (networks go by their names); give each once")
        ranged = [self.start, self.stop, self.step, self.count]
        if self.values is not None and any(part is not None for part in ranged):
            raise ValueError("give either `values` or a range `from`, `to`")
        if self.values is None and (self.start is None or self.stop is None):
            raise ValueError("give `values: [...]`, or a range with `from` and `to`")
        if self.step is not None and self.count is not None:
            raise ValueError("give either `step` or `count`")
        if self.scale == "log" and (self.values is not None or self.step is not None):
            raise ValueError(
                "`scale: log` goes with `count`, or with a range that a sampled design draws from"
            )
        return self


_Limit = Annotated[float, Field(ge=0)]


class Bound(Section):
    """Least and greatest allowed value of a metric, in SI units (area in mm2)."""

    min: _Limit | None = None
    """Points below are left out."""
    max: _Limit | None = None
    """Points above are left out."""

    @model_validator(mode="after")
    def _says_something(self) -> Bound:
        if self.min is None and self.max is None:
            raise ValueError("give `min`, `max` or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} lies above max {self.max:g}: no point would remain")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """Least and greatest allowed value; infinite where there is none."""
        return -np.inf if self.min is None else self.min, np.inf if self.max is None else self.max


_MOST_LHS = 1_000_000
"""A Latin hypercube permutes all its points along each axis, so they must fit into memory together."""


class DesignSpec(Section):
    """Which points of the space are evaluated."""

    method: Literal["full", "latin-hypercube", "sobol"] = "full"
    """`full`: every combination; `latin-hypercube` and `sobol` draw `points` of them, spread evenly."""
    points: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """How many points a sampled design draws."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Seed of a sampled design: the same seed gives the same points."""

    @model_validator(mode="after")
    def _points_belong_to_samples(self) -> DesignSpec:
        if (self.method == "full") != (self.points is None):
            raise ValueError("`points` goes with latin-hypercube and sobol, and they need it; full has all")
        if self.method == "latin-hypercube" and (self.points or 0) > _MOST_LHS:
            raise ValueError(f"latin-hypercube draws at most {_MOST_LHS:,} points; sobol draws more")
        return self


class RunSpec(Section):
    """How the network is run at every point; as the options of `npusim estimate`."""

    hint: Literal["latency", "throughput"] = "latency"
    """One inference at a time, or several in flight."""
    requests: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Inferences in flight; default: the machine's for the hint."""
    tiles: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["all"] | None = None
    """Tiles an inference uses, never more than a point's machine has; `all` of them; default: the machine's
    for the hint."""
    device: str = "auto"
    """Device that runs the operators: its name, or npu, cpu, gpu for the first of a kind."""
    swap_operands: bool | Literal["search"] = False
    """Lay the right operand of each product on the pixels, so that the left one is the weight; `search`: of
    those that are faster so, which maps each point alone."""


class Space(Section):
    """A design space: machines, networks and technique stacks, by axes."""

    schema_name: Literal["npusim.space/1"] = Field(alias="schema")
    """Version of this file format: npusim.space/1."""
    title: str = ""
    """What the space is about."""
    workload: NetworkField
    """Name of a workload, or the path of its file; in Python also a graph, or a factory of graphs."""
    soc: str = DEFAULT_SOC
    """Machine that the axes vary: a name or the path of a YAML file."""
    techniques: str = "none"
    """Technique stack, unless an axis `techniques` varies it."""
    settings: dict[str, Scalar] = Field(default_factory=dict, alias="set")
    """Settings that hold at every point, as `--set` takes them."""
    run: RunSpec = RunSpec()
    """How the network is run."""
    axes: dict[str, AxisSpec] = Field(min_length=1)
    """Axes by path: any number of the SoC as `--set` names it, `workload.KEY`, `techniques`, `workload` or
    `soc`."""
    constraints: dict[MetricName, Bound] = Field(default_factory=dict)
    """What a point must keep to, by metric."""
    design: DesignSpec = DesignSpec()
    """Which points are evaluated."""
    minimise: list[MetricName] = Field(default=["latency_s", "energy_j", "area_mm2"])
    """Objectives of which less is better. Absent where `maximise` is given: none. Result files hold the
    metrics that are named here, under `maximise` or under `constraints` in addition to the usual ones."""
    maximise: list[MetricName] = Field(default=[])
    """Objectives of which more is better, such as throughput_per_s."""
    keep: str = "pareto"
    """Which points are written: `all`, `pareto` (those that no other point dominates in the objectives) or
    `top:N` (the N best in the first objective, those of `minimise` first)."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json(by_alias=True))

    @property
    def objectives(self) -> list[str]:
        """Metrics that are optimised: those of `minimise`, then those of `maximise`."""
        return [*self.minimise, *self.maximise]

    @property
    def metrics(self) -> frozenset[str]:
        """Metrics that it names."""
        return frozenset([*self.objectives, *self.constraints])

    @field_validator("keep")
    @classmethod
    def _keep_is_known(cls, value: str) -> str:
        parse_keep(value)
        return value

    @field_validator("minimise", "maximise")
    @classmethod
    def _objectives_have_that_sense(cls, value: list[str], info: ValidationInfo) -> list[str]:
        if len(set(value)) < len(value):
            raise ValueError("a metric stands there twice")
        wrong = wrong_sense(value, str(info.field_name))
        if wrong is not None:
            refuse(*wrong)
        return value

    @model_validator(mode="before")
    @classmethod
    def _default_objectives(cls, data: Any) -> Any:
        maximises = isinstance(data, dict) and data.get("maximise") and "minimise" not in data
        return data | {"minimise": []} if maximises else data

    @model_validator(mode="after")
    def _has_an_objective(self) -> Space:
        if not self.objectives:
            raise ValueError("no objective; `minimise` or `maximise` names at least one metric")
        return self


def wrong_sense(names: Sequence[str], key: str) -> tuple[str, str] | None:
    """Return (problem, allowed) for metrics of the other sense under `minimise` or `maximise`."""
    sense, better, other = ("min", "more", "maximise") if key == "minimise" else ("max", "less", "minimise")
    wrong = next((name for name in names if METRICS[name].sense != sense), None)
    if wrong is None:
        return None
    allowed = [name for name, metric in METRICS.items() if metric.sense == sense]
    return f"`{wrong}`, of which {better} is better: name it under `{other}`", ", ".join(allowed)


def networks_of(space: Space) -> tuple[Network, ...]:
    """Return the network of a space, then those of its axis `workload`."""
    spec = space.axes.get(_WORKLOAD)
    return (space.workload, *(spec.values or () if spec is not None else ()))


def parse_keep(text: str) -> tuple[str, int]:
    """Return (rule, number) of `keep`: ("top", 100) for ``top:100``, ("pareto", 0) for ``pareto``.

    Raises
    ------
    ValueError
        For anything but ``all``, ``pareto`` and ``top:N`` with N from 1 to ten million.
    """
    if text in ("all", "pareto"):
        return text, 0
    word, _, number = text.partition(":")
    if word == "top" and number.isascii() and number.isdigit() and 1 <= int(number) <= 10_000_000:
        return "top", int(number)
    raise ValueError(f"`{text}` is no way to keep points; there are all, pareto and top:N such as top:100")


def space_names() -> list[str]:
    """Return the names of the design spaces that npusim ships, sorted."""
    return resource_names("configs/spaces", ".yaml")


def load_space(space: str | Path | Space | Mapping[str, Any]) -> Space:
    """Return a design space by its name, the path of its file, or as data.

    Parameters
    ----------
    space : str, Path, mapping or Space
        A shipped name (`space_names`), a YAML file, what such a file holds, or a space that is loaded. A
        mapping needs no `schema`.

    Raises
    ------
    UnknownNameError
        Where no space has that name.
    FileError, ConfigError
        Where the file cannot be read or does not describe a space.

    Examples
    --------
    >>> len(load_space("gcn-cora").axes) >= 7
    True
    """
    if isinstance(space, Space):
        return space
    if isinstance(space, Mapping):
        return validate_data({"schema": "npusim.space/1", **space}, Space)
    text = str(space)
    if isinstance(space, Path) or text.endswith(_YAML) or "/" in text or "\\" in text:
        return load_model(text, Space)
    if text not in space_names():
        raise UnknownNameError("design space", text, space_names(), "or give the path of a YAML file")
    return load_model(resource("configs", "spaces", f"{text}.yaml"), Space)
