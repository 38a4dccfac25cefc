"""The rewritten network with its own numbers: a model file that runs today, and its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import ConfigError
from npusim.frontends.openvino_ir import SUFFIXES as MODEL_ENDINGS
from npusim.frontends.openvino_nodes import UnwritableError
from npusim.frontends.openvino_write import save_model
from npusim.frontends.pyg import MODULE, named_inputs
from npusim.frontends.valued import ValuedNetwork, load_valued, valued_module
from npusim.scenario import Scenario, is_module, name_of
from npusim.studies.advice import Agreement
from npusim.techniques import NONE, Stack, apply, parse

_CLOSE = 0.01
"""Share of the largest output within which two answers of a single number are the same."""


@dataclass
class NumericalRewriting:
    """A network with its own numbers, rewritten and compared with the original."""

    network: ValuedNetwork
    _models: dict[str, Any] = field(default_factory=dict)
    _original: npt.NDArray[Any] | None = None
    """Answers of the original, once they were computed."""

    @classmethod
    def of(
        cls, scenario: Scenario, values: str | Path | None, *, required: bool
    ) -> NumericalRewriting | None:
        """Load a network with its numbers.

        Parameters
        ----------
        values : str or Path, optional
            An `.npz` file with values of a model file's inputs.
        required : bool
            Refuse a network whose numbers are not known, instead of returning None.

        Raises
        ------
        ConfigError
            Where it is refused.
        """
        network = scenario.network
        if is_module(network) and scenario.inputs is not None:
            return cls(valued_module(network, named_inputs(network, scenario.inputs), name_of(network)))
        path = str(network) if isinstance(network, str | Path) else ""
        if MODULE.fullmatch(path) or (path.endswith(MODEL_ENDINGS) and (values is not None or required)):
            return cls(load_valued(path, values, scenario.shapes))
        if required or values is not None:
            raise ConfigError(
                f"the numbers of {name_of(network)}",
                allowed="a module (model.py:net) or a model file (.xml, .onnx): the weights of a workload "
                "are made up; `npusim export` trains one",
            )
        return None

    def model(self, stack: str) -> Any:
        """Return the network under a stack as an `openvino.Model`; 8 bits scaled on the example inputs."""
        if stack not in self._models:
            entries, floating = parse(stack), _floating(stack)
            before = apply(self.network.graph, floating) if len(floating) < len(entries) else None
            self._models[stack] = self.network.rewritten(apply(self.network.graph, entries), before)
        return self._models[stack]

    def judge(self, stack: str) -> Agreement:
        """Compare the file of the network under a stack with the original, as a user would run it.

        The file holds weights in fp16, and runs on OpenVINO's CPU device under its default settings.

        Raises
        ------
        UnwritableError
            Where the network cannot be written so that it computes what the original computes.
        """
        answers, original = self._answers(stack), self._answers_of_original()
        same = _share_of_same(answers, original)
        floating = str(_floating(stack))
        half = None if floating == stack else _share_of_same(self._answers(floating), original)
        return Agreement(
            stack=stack,
            largest_difference=float(np.abs(answers - original).max()),
            largest_output=float(np.abs(original).max()),
            same_answers=same,
            same_answers_fp16=half,
        )

    def _answers(self, stack: str) -> npt.NDArray[Any]:
        """Return the answers of the model file of the network under a stack."""
        return self.network.outputs_of_file(apply(self.network.graph, stack), self.model(stack))[0]

    def _answers_of_original(self) -> npt.NDArray[Any]:
        """Return the original's answers, after checking that the written network gives the same."""
        if self._original is None:
            original = self.network.answers()
            written = self.network.outputs(self.network.graph, self.model(NONE))[0]
            difference, largest = float(np.abs(written - original).max()), float(np.abs(original).max())
            if not difference <= _CLOSE * largest:
                raise UnwritableError(
                    f"{self.network.graph.name} cannot be exported: the network as npusim writes it differs "
                    f"from the original by {difference:.3g} of {largest:.3g}; convert it with "
                    "openvino.convert_model instead"
                )
            self._original = original
        return self._original

    def save(self, stack: str, file: Path) -> None:
        """Write the network under a stack as OpenVINO IR, weights in fp16."""
        save_model(self.model(stack), file, half=True)


def _floating(stack: str) -> Stack:
    """Return a stack without its techniques of 8 bits."""
    return Stack(tuple(entry for entry in parse(stack) if entry.technique.precision is None))


def _share_of_same(answers: npt.NDArray[Any], original: npt.NDArray[Any]) -> float:
    """Return the share of rows whose answer is unchanged; see `Agreement.same_answers`."""
    if original.ndim > 0 and original.shape[-1] > 1:
        return float(np.mean(answers.argmax(-1) == original.argmax(-1)))
    return float(np.mean(np.abs(answers - original) < _CLOSE * np.abs(original).max()))
