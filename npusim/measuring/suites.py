"""Rows to measure: suites in YAML, networks that a user names, and folders of exported models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, field_validator, model_validator

from npusim.config import Section, load_model
from npusim.errors import ConfigError, FileError, ModelFileError, NpusimError, UnknownNameError, nearest
from npusim.files import sha256_of
from npusim.frontends.pyg import MODULE, module_at
from npusim.locate import resource, resource_names
from npusim.measuring.benchmarks import AGGREGATIONS, OPERATORS, benchmark_id
from npusim.measuring.document import (
    Benchmark,
    Given,
    ModelFile,
    ModelRef,
    Operand,
    SingleOperator,
    Workload,
)
from npusim.measuring.models import Sources, graph_of
from npusim.ops import DType, Family, Tensor, TensorKind
from npusim.plugins import Registry
from npusim.scenario import Scenario, is_module, name_of, split_settings
from npusim.techniques import parse
from npusim.units import refuse
from npusim.workloads import workload_names

if TYPE_CHECKING:
    from npusim.measuring.timing import TimedNetwork

Hint = Literal["latency", "throughput"]
Size = Annotated[int, Field(ge=1, le=1_000_000_000)]
Sizes = Annotated[dict[str, Size], Field(min_length=1)]
_YAML = (".yaml", ".yml")
_KNOWN = OPERATORS | AGGREGATIONS
_MOST = 10_000  # most rows of a suite; more are a mistake in a grid, and would take hours


@dataclass(frozen=True, slots=True)
class Item:
    """One row to measure."""

    id: str  # name of the row in reports
    model: ModelRef
    hint: Hint = "latency"
    requests: int | None = None  # inferences in flight; None: the device's choice
    folder: Path | None = None  # folder of an exported language model, the workload of `model`

    @property
    def of_pytorch(self) -> bool:
        """Whether PyTorch Geometric runs the row instead of OpenVINO."""
        return isinstance(self.model, Benchmark) and self.model.operator in AGGREGATIONS


class BenchmarkGrid(Section):
    """Micro-benchmarks of one operator, in several sizes."""

    model_config = ConfigDict(strict=True)

    operator: str
    """The operator: an OpenVINO operation name, or Aggregate (a product with a constant on its left), Copy or
    Empty; or an aggregation of PyTorch Geometric: MessagePassing (weighted sums along edges), MeanPassing,
    CsrProduct (a product in compressed rows, sorted from the edges)."""
    dtype: list[Literal["fp32", "int8"]] = Field(["fp32"], min_length=1)
    """Number formats: fp32 stands for the device's floating-point format; int8 where the operator has it."""
    grid: dict[str, Annotated[list[Size], Field(min_length=1)]] = Field(default_factory=dict)
    """Values of each dimension by its name; every combination is a row."""
    cases: list[Sizes] = Field(default_factory=list)
    """Single rows, each with a value for every dimension."""
    hints: list[Hint] = Field(["latency"], min_length=1)
    """Performance hints, a row for each."""

    @field_validator("operator")
    @classmethod
    def _operator_is_known(cls, value: str) -> str:
        if value not in _KNOWN:
            refuse(f"`{value}`", ", ".join(_KNOWN), nearest(value, _KNOWN))
        return value

    @model_validator(mode="after")
    def _sizes_fit_the_operator(self) -> BenchmarkGrid:
        kind = _KNOWN[self.operator]
        if "int8" in self.dtype and not kind.int8:
            others = ", ".join(name for name, other in OPERATORS.items() if other.int8)
            refuse("`int8`", f"fp32 for {self.operator}; int8 for {others}", at="dtype")
        if kind.sizes and not self.grid and not self.cases:
            refuse("no sizes", f"`grid` or `cases` with {', '.join(kind.sizes)}")
        longest = max(map(len, self.grid.values()), default=0)
        # Some combinations that have every value of the grid.
        values = [{name: n[i % len(n)] for name, n in self.grid.items()} for i in range(longest)]
        places = ["grid"] * len(values) + [f"cases.{position}" for position in range(len(self.cases))]
        for at, sizes in zip(places, [*values, *self.cases], strict=True):
            if problem := kind.problem(sizes):
                refuse(*problem, at=at)
        for item in self.items() if self.operator in AGGREGATIONS else ():
            try:
                graph_of(item.model)
            except NpusimError as error:
                refuse(item.id, f"chunks that divide the hidden features ({error})", at="grid.chunks")
        return self

    def items(self) -> Iterator[Item]:
        """Return the rows: the grid first, then the cases, each in every format and under every hint."""
        combinations = (dict(zip(self.grid, values, strict=True)) for values in product(*self.grid.values()))
        for sizes in chain(combinations if self.grid or not self.cases else (), self.cases):
            for dtype, hint in product(self.dtype, self.hints):
                model = Benchmark(operator=self.operator, sizes=sizes, dtype=dtype)
                yield Item(row_name(model, hint), model, hint)


class Networks(Section):
    """A workload under several technique stacks."""

    model_config = ConfigDict(strict=True)

    workload: str
    """Name of a workload, or the path of its file."""
    techniques: list[str] = Field(["none"], min_length=1)
    """Technique stacks, a row for each. Only a compiler can apply grasp, symg and cacheg: they cannot be
    measured."""
    settings: dict[str, bool | int | float | str] = Field(default_factory=dict, alias="set")
    """Settings of the workload, such as `hidden: 128`."""
    hints: list[Hint] = Field(["latency"], min_length=1)
    """Performance hints, a row for each."""
    requests: Annotated[int, Field(ge=1)] | None = None
    """Inferences in flight under the hint `throughput`; default: the device's best number."""

    @field_validator("workload")
    @classmethod
    def _workload_is_known(cls, value: str) -> str:
        if not value.endswith(_YAML) and value not in workload_names():
            known = [*workload_names(), "the path of a YAML file"]
            refuse(f"`{value}`", ", ".join(known), nearest(value, workload_names()))
        return value

    @field_validator("techniques")
    @classmethod
    def _stacks_can_be_measured(cls, value: list[str]) -> list[str]:
        stacks = []
        for position, text in enumerate(value):
            at = str(position)
            try:
                stacks.append(parse(text))
            except NpusimError as error:
                refuse(f"`{text}`", f"technique stacks ({error})", at=at)
            compiled = [entry.technique.name for entry in stacks[-1] if entry.technique.compiler_only]
            if compiled:
                names = ", ".join(compiled)
                refuse(f"`{text}`", f"the stack without {names}: only a compiler can apply it", at=at)
        return [str(stack) for stack in stacks]

    def items(self) -> Iterator[Item]:
        """Return the rows: each stack under every hint."""
        settings = {key: str(value) for key, value in self.settings.items()}
        for stack, hint in product(self.techniques, self.hints):
            model = Workload(workload=self.workload, techniques=stack, settings=settings)
            requests = self.requests if hint == "throughput" else None
            yield Item(row_name(model, hint), model, hint, requests)


class MeasurementSuite(Section):
    """A suite of measurements: micro-benchmarks and networks."""

    schema_name: Literal["npusim.measurements/1"] = Field(alias="schema")
    """Version of this file format: npusim.measurements/1."""
    title: str = ""
    """Purpose of the suite."""
    benchmarks: list[BenchmarkGrid] = Field(default_factory=list)
    """Networks of one operator."""
    networks: list[Networks] = Field(default_factory=list)
    """Whole networks."""

    @model_validator(mode="after")
    def _rows_are_countable_and_differ(self) -> MeasurementSuite:
        seen: dict[str, bool] = {}
        for key, family in self._families():
            for item in family.items():
                if len(seen) == _MOST:
                    refuse(f"more than {_MOST:,} rows", f"up to {_MOST:,}", at=key)
                if item.id in seen:
                    refuse(f"{item.id} a second time", "each row once", at=key)
                seen[item.id] = item.of_pytorch
        if not seen:
            refuse("no row", "at least one of `benchmarks` and `networks`")
        if len(set(seen.values())) > 1:
            refuse("rows of OpenVINO and of PyTorch Geometric", "a suite of one of them", at="benchmarks")
        return self

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The rows, in the order in which the file has them."""
        return tuple(item for _, family in self._families() for item in family.items())

    def _families(self) -> Iterator[tuple[str, BenchmarkGrid | Networks]]:
        yield from ((f"benchmarks.{i}", grid) for i, grid in enumerate(self.benchmarks))
        yield from ((f"networks.{i}", networks) for i, networks in enumerate(self.networks))


def suite_names() -> list[str]:
    """Return the names of the measurement suites that npusim ships, sorted."""
    return resource_names("configs/measurements", ".yaml")


def load_suite(suite: str | Path) -> MeasurementSuite:
    """Return a measurement suite by its name or the path of its file.

    Raises
    ------
    UnknownNameError
        Where no suite has that name.
    FileError, ConfigError
        Where the file cannot be read or does not describe a suite.

    Examples
    --------
    >>> load_suite("default").items[0].id
    'Empty'
    """
    text = str(suite)
    if text in suite_names():
        return load_model(resource("configs", "measurements", f"{text}.yaml"), MeasurementSuite)
    if not text.endswith(_YAML):
        raise UnknownNameError("measurement suite", text, suite_names(), "or the path of a YAML file")
    return load_model(Path(text).expanduser(), MeasurementSuite)


HINTS: tuple[Hint, ...] = get_args(Hint)
_MODEL_FILES = (".xml", ".onnx")


def items_of(
    scenario: Scenario, hint: str = "both", requests: int | None = None
) -> tuple[tuple[Item, ...], Sources]:
    """Return a row for each hint, and the sources of its network.

    Parameters
    ----------
    scenario : Scenario
        Network, techniques, settings of the workload, shapes and inputs; other fields are ignored.
    hint : {"latency", "throughput", "both"}

    Raises
    ------
    NpusimError
        Where the network cannot be built, for techniques or settings on a model file or an exported language
        model, and for settings of a SoC.
    """
    if hint not in (*HINTS, "both"):
        raise UnknownNameError("performance hint", hint, (*HINTS, "both"))
    network, name = scenario.network, name_of(scenario.network)
    if isinstance(network, str | Path) and MODULE.fullmatch(name):
        found = module_at(name)
        network, name = found.module, found.name
        scenario = scenario.with_(network=network, inputs=found.inputs)
    ref: ModelRef
    files: Sources
    if not isinstance(network, str | Path):
        ref = Given(name=name, techniques=str(parse(str(scenario.techniques))))
        files = {ref.name: scenario}
    elif Path(network).expanduser().is_dir():
        folder = Path(network).expanduser()
        models = sorted(folder.glob("*.xml"), key=_by_number)
        if not models:
            return folder_kind(folder).rows(scenario, folder, hint, requests), {}
        # Model files such as the output of `npusim prune --models`.
        parts = [items_of(scenario.with_(network=model), hint, requests) for model in models]
        sources = {name: source for _, sources in parts for name, source in sources.items()}
        return tuple(item for items, _ in parts for item in items), sources
    elif Path(network).suffix in _MODEL_FILES:
        ref, files = _model_file(scenario, Path(network).expanduser())
    else:
        ref, files = _workload(scenario, str(network))
    if not isinstance(ref, ModelFile) and not is_module(network):
        graph_of(ref, files=files)  # refuses what cannot be built before anything runs
    hints = [each for each in HINTS if hint in (each, "both")]
    return tuple(Item(row_name(ref, each), ref, each, requests) for each in hints), files


_LAUNCHES = (
    Benchmark(operator="Empty", sizes={}),
    Benchmark(operator="Chain", sizes={"layers": 16, "size": 16}),
    Benchmark(operator="Chain", sizes={"layers": 64, "size": 16}),
)
"""What a launch costs, and an operator beside its work."""
_MOST_OPERATORS = 60  # two minutes at two seconds each
_LEAST_SHARE = 1e-3  # of the predicted time


def operator_items(scenario: Scenario, stacks: Sequence[str]) -> tuple[Item, ...]:
    """Return a row for each operator that a network rests on under some stacks, and rows for the launch.

    Operators that take less than a thousandth of the predicted time are left out, and all but the 60
    costliest ones.
    """
    shares: dict[str, tuple[float, SingleOperator]] = {}
    for stack in stacks:
        mapped = scenario.with_(techniques=stack).mapped
        graph, seconds = mapped.graph, mapped.results["latency_s"]
        for group, share in zip(mapped.decisions.groups, seconds / seconds.sum(), strict=True):
            op = graph.operators[group.main]
            operands, results = map(_operands, (graph.inputs_of(op), graph.outputs_of(op)))
            if all(operand.constant for operand in operands) or op.family is Family.VIEW:
                continue
            ref = SingleOperator(
                operator=op.type, operands=operands, results=results, settings=dict(op.attrs)
            )
            shares[ref.name] = shares.get(ref.name, (0.0, ref))[0] + float(share), ref
    ordered = sorted(shares.values(), key=lambda pair: -pair[0])
    costly = [ref for share, ref in ordered if share >= _LEAST_SHARE][:_MOST_OPERATORS]
    refs: list[Benchmark | SingleOperator] = [*_LAUNCHES, *costly]
    return tuple(Item(row_name(ref, "latency"), ref) for ref in refs)


def _operands(tensors: Iterable[Tensor]) -> tuple[Operand, ...]:
    return tuple(
        Operand(
            shape=t.shape,
            dtype=t.dtype.value,
            constant=t.kind is TensorKind.CONSTANT,
            role=t.role.value,
            density=t.density,
        )
        for t in tensors
    )


def _by_number(file: Path) -> list[tuple[float, str]]:
    """Return a sort key that orders names by their numbers: net-2x before net-16x."""
    parts = re.split(r"(\d+(?:\.\d+)?)", file.stem)
    return [(float(part), "") if i % 2 else (-1.0, part) for i, part in enumerate(parts)]


def _workload(scenario: Scenario, name: str) -> tuple[ModelRef, Sources]:
    of_workload, of_soc = split_settings(scenario.settings)
    if of_soc:
        found = f"`{'.'.join(of_soc[0].path)}`"
        raise ConfigError(found, file="--set", allowed="workload.KEY=VALUE: the device is what it is")
    if scenario.shapes:
        shapes = ", ".join(scenario.shapes)
        raise ConfigError(f"shapes for {shapes}", file="--shape", allowed="only for a model file")
    path = Path(name).expanduser()
    is_file = path.suffix in _YAML
    ref = Workload(
        workload=path.name if is_file else name,
        techniques=str(parse(str(scenario.techniques))),
        settings={".".join(one.path[1:]): str(one.value) for one in of_workload},
    )
    return ref, {path.name: path} if is_file else {}


def _model_file(scenario: Scenario, path: Path) -> tuple[ModelRef, Sources]:
    """Return a reference to a model file by name and content, without its folders."""
    is_changed = {"--techniques": str(scenario.techniques) != "none", "--set": bool(scenario.settings)}
    for option in (option for option, is_set in is_changed.items() if is_set):
        found = f"{option} with the model file `{path.name}`"
        raise ConfigError(found, allowed="a model file as it is; a workload takes techniques")
    try:
        digest = sha256_of(path)
    except OSError as error:
        raise ModelFileError(str(path), f"cannot be read ({error.strerror})", "check the path") from None
    shapes = {name: tuple(shape) for name, shape in (scenario.shapes or {}).items()}
    return ModelFile(name=path.name, sha256=digest, shapes=shapes), {path.name: path}


def row_name(ref: ModelRef, hint: str) -> str:
    """Return the name of a row, as in suites: gcn-cora,hidden=128:stagr@throughput."""
    name = str(getattr(ref, "name", "network"))
    if isinstance(ref, Benchmark):
        name = benchmark_id(ref.operator, ref.sizes, DType(ref.dtype))
    if isinstance(ref, Workload):
        name = ",".join([ref.workload, *(f"{key}={value}" for key, value in ref.settings.items())])
    if isinstance(ref, Workload | Given):
        name = f"{name}:{ref.techniques}"
    return name if hint == "latency" else f"{name}@{hint}"


@dataclass(frozen=True)
class MeasuredFolder:
    """A kind of folder that `npusim measure FOLDER` runs."""

    name: str  # name of such a folder in messages, such as "exported language model"
    make: str  # command that creates one
    holds: Callable[[Path], bool]  # returns whether a folder is of this kind
    rows: Callable[[Scenario, Path, str, int | None], tuple[Item, ...]]
    """Returns the rows of a scenario, folder, hint and number of requests."""
    load: Callable[[Path, str, Mapping[str, str]], tuple[Any, int]]
    """Returns the compiled network and its size (B) for a folder, device and properties."""
    compiled: Callable[[Any], Any]
    """Returns OpenVINO's compiled model, which describes the device, of a loaded network."""
    timed: Callable[[Item, Any], TimedNetwork]  # returns the network to time, for a row and a loaded network


FOLDERS = Registry("npusim.measured_folders", "kind of folder", MeasuredFolder)


def folder_kind(folder: Path) -> MeasuredFolder:
    """Return the kind of a folder; a `FileError` where no package knows it."""
    for kind in FOLDERS.values():
        if kind.holds(folder):
            return kind
    names = " or ".join(kind.name for kind in FOLDERS.values())
    commands = " or ".join(kind.make for kind in FOLDERS.values())
    raise FileError(
        str(folder), f"is no {names}" if names else "holds no .xml files", f"make one: {commands}"
    )
