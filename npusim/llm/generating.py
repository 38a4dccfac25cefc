"""Generation of tokens with an exported folder on a device of OpenVINO, as NITRO's pipeline does it.

The host makes the mask and looks up rotary embeddings, hands features from part to part, and takes the token
with the highest score.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from npusim.errors import ConfigError, FileError
from npusim.frontends.openvino_ir import openvino
from npusim.workloads.llm import LlmSpec, rotary_angles

Scores = npt.NDArray[np.float32]


class Generated(NamedTuple):
    """Tokens, and how long each took."""

    tokens: list[int]
    """The new ones."""
    prompt_s: list[float]
    """Time of each token of the prompt."""
    token_s: list[float]
    """Time of each new token."""


class Generator:
    """A compiled model with its caches.

    Parameters
    ----------
    folder : Path
        As `npusim export` writes it, of a model that takes in one token at a time.
    device : str
        As OpenVINO names it: CPU, GPU, NPU.

    Raises
    ------
    FileError
        Where the folder holds no such model.
    """

    def __init__(self, folder: Path, device: str = "CPU") -> None:
        self.spec = exported_spec(folder)
        if self.spec.new_tokens != 1 or self.spec.cache != "state" or self.spec.rope != "input":
            allowed = "phase decode, tokens 1, cache state, rope input"
            raise ConfigError("another form of model", file=str(folder / "config.json"), allowed=allowed)
        core = openvino("language models run on it").Core()
        settings = {"INFERENCE_PRECISION_HINT": "f32"} if device == "CPU" else {}
        files = exported_parts(folder)
        self.requests = [core.compile_model(file, device, settings).create_infer_request() for file in files]
        self.angles = rotary_angles(self.spec, self.spec.max_sequence).astype(np.float32)
        self.mask = np.empty(0, np.float32)
        self.reset()

    def reset(self) -> None:
        """Forget all tokens."""
        spec = self.spec
        self.position = 0
        self.mask = np.full((1, spec.heads, 1, spec.max_sequence), -np.inf, np.float32)
        for request in self.requests:
            request.reset_state()

    def step(self, token: int) -> Scores:
        """Take in a token and return the score of each that may follow.

        Raises
        ------
        ConfigError
            Where the cache has no place left.
        """
        if self.position >= self.spec.max_sequence:
            allowed = f"positions below max_sequence, which is {self.spec.max_sequence}"
            raise ConfigError(f"position {self.position}", allowed=allowed)
        self.mask[..., self.spec.max_sequence - 1 - self.position :] = 0.0
        around: dict[str, Any] = {
            "mask": self.mask,
            "freqs_cis": self.angles[self.position : self.position + 1],
        }
        first, *layers, last = self.requests
        x = first.infer({"token": np.array([[token]])})[0]
        for request in layers:
            x = request.infer({"x": x, **around})[0]
        scores = last.infer({"x": x})[0]
        self.position += 1
        return np.array(scores[0, -1], np.float32)

    def generate(self, prompt: Sequence[int], count: int) -> Generated:
        """Take in a prompt token by token, and `count` times the token with the highest score."""
        prompt_s, token_s, tokens = list[float](), list[float](), list[int]()
        for token in prompt[:-1]:
            prompt_s.append(self._timed(token)[1])
        following = int(prompt[-1])
        for _ in range(count):
            scores, seconds = self._timed(following)
            following = int(np.argmax(scores))
            tokens.append(following)
            token_s.append(seconds)
        return Generated(tokens, prompt_s, token_s)

    def _timed(self, token: int) -> tuple[Scores, float]:
        begin = time.perf_counter()
        scores = self.step(token)
        return scores, time.perf_counter() - begin


def exported_spec(folder: Path) -> LlmSpec:
    """Return what an exported folder says of its model; a `FileError` where it is none."""
    try:
        return LlmSpec.model_validate_json((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError):
        raise FileError(
            str(folder), "is no exported language model", "make one: npusim export llama-tiny -o DIR"
        ) from None


def exported_parts(folder: Path) -> list[Path]:
    """Return the models of an exported folder in order of execution; a `FileError` where one is missing."""
    files = [folder / "model" / f"{i}.xml" for i in range(len(exported_spec(folder).part_names))]
    for file in files:
        if not file.is_file():
            raise FileError(str(file), "does not exist", "export the model again")
    return files
