"""The rewritten network with its own numbers: a model file that runs today, and its answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from npusim.errors import ConfigError
from npusim.files import refuse_unwritable
from npusim.frontends.openvino_ir import SUFFIXES as MODEL_ENDINGS
from npusim.frontends.openvino_ir import openvino
from npusim.frontends.pyg import MODULE, named_inputs
from npusim.frontends.valued import ValuedNetwork, load_valued, valued_module
from npusim.scenario import Scenario, is_module, name_of
from npusim.studies.advice import Agreement
from npusim.techniques import Stack, apply, parse


@dataclass
class NumericalRewriting:
    """A network that is rewritten with its own numbers, beside the original."""

    network: ValuedNetwork
    _models: dict[str, Any] = field(default_factory=dict)

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
        before = self.network.outputs(self.network.graph, self.model("none"))[0]
        after = self.network.outputs(apply(self.network.graph, stack), self.model(stack))[0]
        return Agreement(
            stack=stack,
            largest_difference=float(np.abs(after - before).max()),
            largest_output=float(np.abs(before).max()),
            same_answers=float(np.mean(after.argmax(-1) == before.argmax(-1))),
        )

    def save(self, stack: str, file: Path) -> None:
        """Write the network under a stack as OpenVINO IR, weights in fp16."""
        openvino().save_model(self.model(stack), str(file), compress_to_fp16=True)


def model_target(file: Path) -> Path:
    """Return the file for a model, or refuse one that cannot be written."""
    if file.suffix != ".xml":
        raise ConfigError(f"`{file}`", file="--export", allowed="a name that ends in .xml")
    refuse_unwritable(file)
    return file
