"""The rewritten network with its own numbers: a model file that runs today, and its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npusim.errors import ConfigError
from npusim.frontends.openvino_ir import SUFFIXES as MODEL_ENDINGS
from npusim.frontends.openvino_run import save_model
from npusim.frontends.pyg import MODULE, named_inputs
from npusim.frontends.valued import ValuedNetwork, load_valued, valued_module
from npusim.scenario import Scenario, is_module, name_of
from npusim.studies.advice import Agreement
from npusim.techniques import Stack, apply, parse

_CLOSE = 0.01
"""Share of the largest output within which two answers of a single number are the same."""


@dataclass
class NumericalRewriting:
    """A network that is rewritten with its own numbers, beside the original."""

    network: ValuedNetwork
    _models: dict[str, Any] = field(default_factory=dict)
    _original: npt.NDArray[Any] | None = None
    """Answers of the original, once asked for."""

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
            entries = parse(stack)
            floating = Stack(tuple(entry for entry in entries if entry.technique.precision is None))
            before = apply(self.network.graph, floating) if len(floating) < len(entries) else None
            self._models[stack] = self.network.rewritten(apply(self.network.graph, entries), before)
        return self._models[stack]

    def judge(self, stack: str) -> Agreement:
        """Run the network under a stack beside the original, both on OpenVINO's CPU device in fp32."""
        if self._original is None:
            self._original = self.network.answers()
        before = self._original
        after = self.network.outputs(apply(self.network.graph, stack), self.model(stack))[0]
        difference, largest = np.abs(after - before), float(np.abs(before).max())
        several = before.ndim > 0 and before.shape[-1] > 1
        same = after.argmax(-1) == before.argmax(-1) if several else difference < _CLOSE * largest
        return Agreement(
            stack=stack,
            largest_difference=float(difference.max()),
            largest_output=largest,
            same_answers=float(np.mean(same)),
        )

    def save(self, stack: str, file: Path) -> None:
        """Write the network under a stack as OpenVINO IR, weights in fp16."""
        save_model(self.model(stack), file, half=True)
