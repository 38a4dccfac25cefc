"""Agreement of a network's file under a technique stack with the original, as a user would run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from npusim.documents import Part
from npusim.errors import ConfigError, NpusimError
from npusim.frontends import quantising
from npusim.frontends.apart import graph_of_file
from npusim.frontends.openvino_ir import SUFFIXES as MODEL_ENDINGS
from npusim.frontends.openvino_ir import input_name, openvino
from npusim.frontends.openvino_nodes import UnwritableError
from npusim.frontends.openvino_write import results_of, run_saved, save_model
from npusim.frontends.pyg import MODULE
from npusim.frontends.splicing import refuse_memory
from npusim.frontends.valued import Inputs, ValuedNetwork, load_valued, read_samples, valued_module
from npusim.graph import Graph
from npusim.scenario import Scenario, is_module, name_of, split_settings
from npusim.techniques import Stack, apply, parse
from npusim.workloads import import_settings

KEEP_ANSWERS = 0.95
"""Least share of answers that the stack to try keeps by default."""
CLOSE = 0.01
"""Share of the largest output within which two answers of a single number are the same, and within which an
exact stack must be everywhere when its file is computed in fp32."""
FINE = 1e-3
"""Share of the largest output that weights in fp16 may cost an exact stack; beyond it they are in fp32."""
FAR = 0.1
"""Share of the largest output within which 99 % of the outputs of any other stack must be."""
_OTHERS = 2  # inputs beside the example
MOST_COMPARED = 10_000_000
"""Numbers that follow from the edges up to which answers are compared without an export, and on others than
the example inputs."""
Array = npt.NDArray[Any]


class AnswersOn(Part):
    """Agreement on one set of inputs; errors are shares of the original's largest output."""

    inputs: str
    """`example`, or `other`: features of other nodes, and other edges where the file takes edges."""
    error: float
    """Largest error of an output."""
    error_p99: float
    """Error that 99 % of the outputs do not exceed."""
    error_median: float
    """Median error of the outputs."""
    same_answers: float
    """Share of rows whose largest output is in the same column; of one column or a list: is within 1 %."""


class Agreement(Part):
    """Agreement of the rewritten model's file with the original.

    The file runs on OpenVINO's CPU device, under its default settings unless said; the original runs in fp32,
    a module in PyTorch.
    """

    stack: str
    """Technique stack of the rewritten model."""
    precision: str
    """Format that OpenVINO computes in by default on this processor."""
    weights: Literal["fp16", "fp32"] = "fp16"
    """Format of weights in the file: fp32 where fp16 costs an exact stack more than 0.1 %."""
    error: float
    """Largest error on any of the inputs, as a share of the largest output."""
    error_fp32: float
    """The same where the file is computed in fp32: what its weights' format, and approximations, cost."""
    same_answers: float
    """Least share of the same answers on any of the inputs."""
    same_answers_fp16: float | None
    """The same share for the stack without its 8-bit techniques; null where it has none."""
    rounded_products: int | None
    """Products in 8 bits; others stayed floating point for their inputs or the answers. Null as above."""
    on: list[AnswersOn]
    """The figures by inputs."""
    kept: bool
    """Whether it answers as the original does: enough of the same answers, and errors within limits."""


@dataclass
class NumericalRewriting:
    """A network with its own numbers, rewritten and compared with the original."""

    network: ValuedNetwork
    keep_answers: float = KEEP_ANSWERS
    calibration: Sequence[Inputs] = ()
    """Inputs that the ranges of 8-bit numbers follow from; empty: the example, and others of its shapes."""
    _models: dict[str, Any] = field(default_factory=dict)
    _in_fp32: set[str] = field(default_factory=set)
    """Stacks whose files have weights in fp32."""

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        values: str | Path | None,
        *,
        required: bool,
        calibration: str | Path | None = None,
        keep_answers: float = KEEP_ANSWERS,
    ) -> NumericalRewriting | None:
        """Load a network with its numbers.

        Parameters
        ----------
        values : str or Path, optional
            An `.npz` file with values of a model file's inputs.
        required : bool
            Refuse a network whose numbers are not known, instead of returning None.
        calibration : str or Path, optional
            An `.npz` file with several values of the inputs.

        Raises
        ------
        ConfigError
            Where it is refused.
        """
        network, settings = scenario.network, split_settings(scenario.settings)[0]
        roles = import_settings(settings)[1] if is_module(network) or _comes_from_a_file(network) else {}
        path = str(network) if isinstance(network, str | Path) else ""
        known = values is not None or calibration is not None or required
        if values is not None and (is_module(network) or MODULE.fullmatch(path)):
            allowed = "only for a model file: a module brings its own example inputs"
            raise ConfigError(f"`{values}`", file="--values", allowed=allowed)
        if is_module(network) and scenario.inputs is not None:
            valued = valued_module(network, scenario.inputs, name_of(network), roles)
        elif MODULE.fullmatch(path) or (path.endswith(MODEL_ENDINGS) and known):
            valued = load_valued(path, values, scenario.shapes, roles)
        elif known:
            raise ConfigError(
                f"the numbers of {name_of(network)}",
                allowed="a module (model.py:net) or a model file (.xml, .onnx): the weights of a workload "
                "are made up; `npusim export` trains one",
            )
        else:
            return None
        scenario.learn(valued.graph)
        samples = () if calibration is None else read_samples(valued.graph, calibration)
        return cls(valued, keep_answers, [{**valued.inputs, **sample} for sample in samples])

    def model(self, stack: str) -> Any:
        """Return the network under a stack as an `openvino.Model`, in 8 bits where the stack has them."""
        if stack not in self._models:
            floating, graph = str(_floating(stack)), self.graph(stack)
            if floating == stack:
                self._models[stack] = self.network.rewritten(graph)
            else:
                model, samples = self.model(floating).clone(), self._samples(graph)
                ranges = quantising.whole_ranges()
                self._models[stack] = quantising.quantised(model, samples, parameters=ranges)
        return self._models[stack]

    def graph(self, stack: str) -> Graph:
        """Return the floating-point graph of a stack."""
        return apply(self.network.graph, _floating(stack))

    def _samples(self, graph: Graph) -> list[dict[str, Array]]:
        """Return what calibrates 8-bit numbers, by the inputs of a graph's model."""
        network = self.network
        samples = self.calibration or self._inputs(graph, seed=1)
        model = self.model(graph.techniques)
        return [network.fed(graph, model, sample) for sample in samples]

    def _inputs(self, graph: Graph, seed: int = 0) -> list[Inputs]:
        """Return the example inputs, and others where a run does not take minutes."""
        is_large = self.network.graph.meta.known.elements > MOST_COMPARED
        return [self.network.inputs, *self.network.other_inputs(graph, 0 if is_large else _OTHERS, seed)]

    def judge(self, stack: str) -> Agreement:
        """Compare the file of the network under a stack with the original, as a user would run it.

        Where rounding costs too many answers, NNCF leaves the products that cost most in floating point.

        Raises
        ------
        UnwritableError
            Where no file can hold the stack, or its file cannot be run, for whatever reason.
        """
        try:
            return self._judged_with_fallback(stack)
        except UnwritableError:
            raise
        except Exception as error:  # of a writer, NNCF, OpenVINO or memory: other stacks may still be written
            reason = reason_of(error)
            what = "" if isinstance(error, NpusimError) else f"{self.network.graph.name} with {stack}: "
            raise UnwritableError(f"{what}{reason}") from error

    def _judged_with_fallback(self, stack: str) -> Agreement:
        """Return the agreement of a stack, with products in floating point where 8 bits cost too much."""
        agreement = self._judged(stack)
        if agreement.kept or agreement.rounded_products is None or not agreement.same_answers_fp16:
            return agreement
        drop = agreement.same_answers_fp16 - self.keep_answers
        if drop < 0.0:
            return agreement
        graph, floating = self.graph(stack), str(_floating(stack))
        samples = self._inputs(graph)
        fed = [self.network.fed(graph, self.model(floating), each) for each in samples]
        originals = {id(one): self.network.answers(each) for one, each in zip(fed, samples, strict=True)}

        def score(compiled: Any, items: Sequence[quantising.Sample]) -> float:
            return min(_same(results_of(compiled, each)[0], originals[id(each)][0]) for each in items)

        model = self.model(floating).clone()
        self._models[stack] = quantising.quantised_where_accurate(model, fed, score, drop)
        return self._judged(stack)

    def _judged(self, stack: str) -> Agreement:
        graph, network = self.graph(stack), self.network
        _refuse_too_large(graph)
        _refuse_too_large(network.graph)
        floating = str(_floating(stack))
        inputs = self._inputs(graph)
        originals = [network.answers(each) for each in inputs]
        half, is_exact = stack not in self._in_fp32, all(e.technique.exact for e in parse(stack))
        try:
            model = self.model(stack)
            fed = [network.fed(graph, model, each) for each in inputs]
            format_, answers, in_fp32 = run_saved(model, fed, half=half)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise UnwritableError(f"{graph.name} with {stack} cannot be run by OpenVINO: {reason}") from error
        errors = [_errors(*pair) for pair in zip(answers, originals, strict=True)]
        errors_fp32 = [_errors(*pair) for pair in zip(in_fp32, originals, strict=True)]
        if not all(np.isfinite(each).all() for each in (*errors, *errors_fp32)):
            raise UnwritableError(
                f"{graph.name} with {stack}: OpenVINO's CPU device returns results of other sizes, or "
                "numbers that are not finite"
            )
        on = [
            AnswersOn(
                inputs="other" if i else "example",
                error=float(each.max()),
                error_p99=float(np.quantile(each, 0.99)),
                error_median=float(np.median(each)),
                same_answers=_same(answers[i][0], originals[i][0]),
            )
            for i, each in enumerate(errors)
        ]
        same, error_fp32 = min(one.same_answers for one in on), float(max(each.max() for each in errors_fp32))
        if half and is_exact and error_fp32 > FINE:
            self._in_fp32.add(stack)
            return self._judged(stack)
        is_close = error_fp32 <= CLOSE if is_exact else max(one.error_p99 for one in on) <= FAR
        return Agreement(
            stack=stack,
            precision=format_,
            weights="fp16" if half else "fp32",
            error=max(one.error for one in on),
            error_fp32=error_fp32,
            same_answers=same,
            same_answers_fp16=None if floating == stack else self._judged(floating).same_answers,
            rounded_products=None if floating == stack else quantising.rounded_products(model),
            on=on,
            kept=same >= self.keep_answers and is_close,
        )

    def refuse_wrong(self, agreement: Agreement) -> None:
        """Raise an `UnwritableError` where an exact stack's file computes something else in fp32."""
        is_exact = all(entry.technique.exact for entry in parse(agreement.stack))
        if is_exact and agreement.error_fp32 > CLOSE:
            raise UnwritableError(
                f"{self.network.graph.name} with {agreement.stack}: outputs of the file differ by "
                f"{agreement.error_fp32:.2g} of the largest on "
                + ("the example" if agreement.on[0].error > CLOSE else "other edges or features")
                + ", computed in fp32; nothing was exported"
            )

    def save(self, stack: str, file: Path) -> None:
        """Write the network under a stack as OpenVINO IR, with weights as it was judged with."""
        save_model(self.model(stack), file, half=stack not in self._in_fp32)

    def fixed_note(self, stack: str) -> list[str]:
        """Return which inputs of the network a stack's file holds as constants; nothing where it has none."""
        taken = {input_name(port) for port in self.model(stack).inputs}
        held = [name for name in self.network.fixed_inputs(self.graph(stack)) if name not in taken]
        if not held:
            return []
        return [
            f"{stack}: the file holds for the example's {', '.join(held)}, which it does not take as input"
        ]

    def benchmark_line(self, stack: str, file: Path) -> str:
        """Return the command that times a file with OpenVINO's own tool, and what its inputs need."""
        line = f"benchmark_app -m {file} -d NPU -hint latency -t 10"
        whole = [p.any_name for p in self.model(stack).inputs if not p.get_element_type().is_real()]
        if not whole:
            return line
        files = ",".join(f"{name}:{name}.npy" for name in whole)
        return f"{line} -i {files} (numpy.save the example's {', '.join(whole)}: random ones are 0 to 255)"


def answers_beside(file: Path, original: Scenario, device: str) -> tuple[float, float]:
    """Return the share of equal answers of a model file on a device, and the largest error.

    Both run on the example inputs. The error is a share of the largest output of the original, which runs in
    fp32 as it came.

    Raises
    ------
    NpusimError
        Where the original has no example inputs, or none for an input of the file.
    """
    graph_of_file(file, None, None)  # where the reader refuses it or dies, it does so there
    numbers = NumericalRewriting.of(original, None, required=True)
    assert numbers is not None, "it is required"
    network, core = numbers.network, openvino().Core()
    compiled = core.compile_model(core.read_model(str(file)), device)
    missing = [input_name(port) for port in compiled.inputs if not port.names & network.inputs.keys()]
    if missing:
        allowed = f"inputs of {network.graph.name}: {', '.join(network.inputs) or 'none has example values'}"
        raise ConfigError(f"the input `{missing[0]}` of {file.name}", file="--compare", allowed=allowed)
    answers, wanted = results_of(compiled, network.inputs), network.answers(network.inputs)
    error = float(_errors(answers, wanted).max())
    return _same(answers[0], wanted[0]) if np.isfinite(error) else 0.0, error


def _comes_from_a_file(network: object) -> bool:
    is_named = isinstance(network, str | Path)
    return is_named and bool(MODULE.fullmatch(str(network)) or str(network).endswith(MODEL_ENDINGS))


def reason_of(error: Exception) -> str:
    """Return why a stack failed, in one line; the type says it where an error of a library says nothing."""
    lines = str(error).strip().splitlines()
    if isinstance(error, NpusimError):
        return str(error)
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def rounding_notes(agreement: Sequence[Agreement]) -> list[str]:
    """Return what this processor does with 8-bit numbers, where stacks with them were compared."""
    if quantising.has_vnni() or all(one.rounded_products is None for one in agreement):
        return []
    return [
        "this processor has no 8-bit dot products (VNNI): OpenVINO adds pairs of products in 16 bits, which "
        "saturate; weights of the 8-bit file have 7 bits, so that they do not, and an NPU loses a bit, too"
    ]


def _refuse_too_large(graph: Graph) -> None:
    """Raise an `UnwritableError` where an operator's tensors, twice, do not fit into free memory."""
    largest = max(sum(t.elements for t in (*graph.inputs_of(op), *graph.outputs_of(op))) for op in graph)
    refuse_memory(graph, "a run for its answers", 2 * largest, "use a machine with more")


def _floating(stack: str) -> Stack:
    """Return a stack without its techniques of 8 bits."""
    return Stack(tuple(entry for entry in parse(stack) if entry.technique.precision is None))


def _errors(answers: Sequence[Array], original: Sequence[Array]) -> Array:
    """Return the errors of all results as shares of each one's largest output; infinite where one is not."""
    if [each.shape for each in answers] != [each.shape for each in original]:
        return np.full(1, np.inf)
    errors = [np.zeros(0)]
    for ours, theirs in zip(answers, original, strict=True):
        known = np.isfinite(theirs) | np.isfinite(ours)
        wanted = np.asarray(theirs[known], np.float64)
        errors.append(np.abs(ours[known] - wanted) / (np.abs(wanted).max(initial=0.0) or 1.0))
    every = np.concatenate(errors)
    return every if every.size else np.zeros(1)


def _same(answers: Array, original: Array) -> float:
    """Return the share of rows with the same answer; see `AnswersOn.same_answers`."""
    if original.ndim > 1 and original.shape[-1] > 1:
        return float(np.mean(answers.argmax(-1) == original.argmax(-1)))
    return float(np.mean(np.abs(answers - original) <= CLOSE * np.abs(original).max()))
