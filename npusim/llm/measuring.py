"""Times of the tokens that an exported folder makes on a device of OpenVINO, by NITRO's pipeline.

The host makes the mask and looks up rotary embeddings, hands features from part to part, and takes the token
with the highest score.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from npusim.config.overrides import as_overrides
from npusim.errors import ConfigError, FileError
from npusim.files import read_text
from npusim.llm.spec import LlmSpec, rotary_angles
from npusim.measuring.devices import load_openvino
from npusim.measuring.document import Workload
from npusim.measuring.suites import Item, MeasuredFolder, row_name
from npusim.measuring.timing import Batch, TimedNetwork
from npusim.scenario import Scenario

Scores = npt.NDArray[np.float32]


class Generator:
    """A compiled model with its caches.

    Parameters
    ----------
    folder : Path
        As `npusim export` writes it, of any of its forms.
    device : str
        As OpenVINO names it: CPU, GPU, NPU.
    settings : mapping of str to str, optional
        Properties that OpenVINO compiles with. Default: fp32 on a CPU.

    Raises
    ------
    FileError
        Where the folder holds no such model.
    """

    def __init__(self, folder: Path, device: str = "CPU", settings: Mapping[str, str] | None = None) -> None:
        self.spec = exported_spec(folder)
        core, files = load_openvino().Core(), exported_parts(folder)
        if settings is None:
            settings = {"INFERENCE_PRECISION_HINT": "f32"} if device == "CPU" else {}
        self.compiled = [core.compile_model(file, device, dict(settings)) for file in files]
        self.requests = [one.create_infer_request() for one in self.compiled]
        self.names = [{name for port in one.inputs for name in port.get_names()} for one in self.compiled]
        self.angles = rotary_angles(self.spec, 2 * self.spec.max_sequence).astype(np.float32)
        self.mask, self.position = np.empty(0, np.float32), 0
        self.caches: dict[str, npt.NDArray[np.float32]] = {}
        """Keys and values, where they are inputs and outputs."""
        self.device_s = 0.0
        """Time of the last step that the parts took (s), as OpenVINO measures it around each."""
        self.reset()

    def reset(self) -> None:
        """Forget all tokens."""
        spec, self.position = self.spec, 0
        self.mask = np.full((1, spec.heads, spec.new_tokens, spec.max_sequence), -np.inf, np.float32)
        for request in self.requests:
            request.reset_state()
        shape = (1, spec.max_sequence, spec.kv_heads, spec.head_width)
        held = [name for names in self.names for name in names if name.startswith("cache_")]
        self.caches = {name: np.zeros(shape, np.float32) for name in held}

    def step(self, token: int | Sequence[int]) -> Scores:
        """Take in the tokens of an inference and return the score of each that may follow.

        Raises
        ------
        ConfigError
            For another number of tokens, or where the cache has no place left.
        """
        spec, tokens = self.spec, np.atleast_1d(np.asarray(token))
        if len(tokens) != spec.new_tokens:
            raise ConfigError(f"{len(tokens)} tokens", allowed=f"{spec.new_tokens} at a time")
        if self.position + len(tokens) > spec.max_sequence:
            allowed = f"positions below max_sequence, which is {spec.max_sequence}"
            raise ConfigError(f"position {self.position}", allowed=allowed)
        fed = {"token": tokens[None], **self._around(len(tokens))}
        self.device_s = 0.0
        for request, names in zip(self.requests, self.names, strict=True):
            results = request.infer({name: value for name, value in fed.items() if name in names})
            self.device_s += request.latency * 1e-3
            fed["x"] = self._features_of(results)
        self.position += len(tokens)
        return np.array(fed["x"][0, -1], np.float32)

    def _around(self, count: int) -> dict[str, Any]:
        """Return mask, rotary embeddings or positions, and caches that are inputs."""
        places, first = self.spec.max_sequence, self.spec.max_sequence - self.position - count
        for i in range(count):
            self.mask[..., i, first : places - count + i + 1] = 0.0
        positions = np.arange(self.position, self.position + count)
        turns = positions if self.spec.rope == "graph" else self.angles[positions]
        return {"mask": self.mask, "freqs_cis": turns, **self.caches}

    def _features_of(self, results: Any) -> Any:
        """Return what a part gives to the next; keep the caches that it returns for the next step."""
        features = None
        for port, value in results.items():
            caches = [name for name in port.get_names() if name.startswith("cache_")]
            self.caches |= {name.removesuffix("_out"): np.array(value) for name in caches}
            features = features if caches else value
        return features

    def timed(self, token: int | Sequence[int]) -> tuple[Scores, float]:
        """Return the scores of a step, and its time with the host's work (s)."""
        begin = time.perf_counter()
        scores = self.step(token)
        return scores, time.perf_counter() - begin


@dataclass
class TimedTokens(TimedNetwork):
    """An exported model with its readings: each is the time of an inference of all its parts."""

    with_host: bool = True
    """Whether the host's work between the parts counts."""

    def __post_init__(self) -> None:
        """Choose what a turn runs."""
        self._run, self._random = self._made_up, np.random.default_rng(0)

    def _made_up(self, count: int) -> Batch:
        """Take in made-up tokens one after the other; empty the cache whenever it is full."""
        generator, spec = self.compiled, self.compiled.spec
        latencies, begun = [], time.perf_counter()
        for _ in range(count):
            if generator.position + spec.new_tokens > spec.max_sequence:
                generator.reset()
            tokens = self._random.integers(0, spec.vocabulary, spec.new_tokens).tolist()
            _, seconds = generator.timed(tokens)
            latencies.append(seconds if self.with_host else generator.device_s)
        return Batch(latencies, time.perf_counter() - begun)


def exported_spec(folder: Path) -> LlmSpec:
    """Return what an exported folder says of its model; a `FileError` where it is none."""
    try:
        return LlmSpec.model_validate_json(read_text(folder / "config.json"))
    except (FileError, ValidationError):
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


def exported_settings(spec: LlmSpec) -> dict[str, str]:
    """Return what `--set workload.KEY=VALUE` changes in the workload of its name to get this model."""
    of_form = {"kind": "llm", "model": spec.model, "form": spec.form}
    usual = LlmSpec.model_validate(of_form).model_dump() | {"form": ""}
    changed = {key: value for key, value in spec.model_dump().items() if value != usual[key]}
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in changed.items()
        if key not in ("devices", "description")
    }


def _rows(asked: Scenario, folder: Path, hint: str, requests: int | None) -> tuple[Item, ...]:
    """Return two rows of an exported language model: an inference, and its parts without the host's work."""
    spec = exported_spec(folder)
    refused = {
        "--techniques": str(asked.techniques) != "none",
        "--set": bool(as_overrides(asked.settings)),
        "--shape": bool(asked.shapes),
        "--hint throughput": hint == "throughput",
        "--requests": (requests or 1) > 1,
    }
    if any(refused.values()):
        option = next(option for option, is_given in refused.items() if is_given)
        found = f"{option} with the exported language model `{folder.name}`"
        raise ConfigError(found, allowed="the model as it was exported, one inference at a time")
    exported_parts(folder)
    own = exported_settings(spec)
    whole = own | ({"host_work": "true"} if "host_work" in own else {})
    workloads = (Workload(workload=spec.model, settings=one) for one in (whole, own | {"host_work": "false"}))
    return tuple(Item(row_name(one, "latency"), one, "latency", 1, folder) for one in workloads)


def _holds(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _load(folder: Path, device: str, properties: Mapping[str, str]) -> tuple[Generator, int]:
    size = sum(file.with_suffix(".bin").stat().st_size for file in exported_parts(folder))
    return Generator(folder, device, properties), size


def _timed(item: Item, generator: Generator) -> TimedNetwork:
    alone = isinstance(item.model, Workload) and item.model.settings.get("host_work") == "false"
    return TimedTokens(generator, [], 1, with_host=not alone)


EXPORTED = MeasuredFolder(
    "exported language model",
    "npusim export llama-tiny -o DIR",
    _holds,
    _rows,
    _load,
    lambda generator: generator.compiled[0],
    _timed,
)
