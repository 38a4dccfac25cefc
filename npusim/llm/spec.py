"""Decoders of language as a kind of workload: keys of the file, and the kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from npusim.config.reading import read_yaml
from npusim.graph import Graph
from npusim.ops import DType
from npusim.units import refuse
from npusim.workloads import WorkloadKind
from npusim.workloads.spec import WorkloadSpec, default_of_model

_Llama = Literal["llama2-7b", "llama3-8b", "llama3.2-1b", "llama3.2-3b", "llama-tiny"]
LlmModel = Literal[_Llama, "phi-3.5-mini", "qwen2.5-7b", "qwen3-0.6b", "qwen3-8b", "mistral-7b"]
PartDevice = Literal["npu", "cpu", "gpu"]


_SIZES: dict[str, dict[str, int]] = read_yaml(Path(__file__).with_name("models.yaml")).data
_PACKED = {"int8": 8, "int4": 4}
_SCALE_BYTES = 2.0
"""A scale, in fp16."""
EMBEDDING, OUTPUT, HOST_BEFORE, HOST_AFTER = "embedding", "output", "inputs", "choice"
"""Names of parts; those of decoder layers are `layers0`, `layers1`, ..."""


def _of_model(key: str) -> Any:
    return default_of_model({model: sizes[key] for model, sizes in _SIZES.items()})


def _of_form(runtime: Any, other: Any) -> Any:
    return Field(default_factory=lambda data: runtime if data["form"] == "runtime" else other)


class LlmSpec(WorkloadSpec):
    """A decoder of language, as a runtime runs it or as NITRO rewrites it (arXiv 2412.11053, section 3)."""

    kind: Literal["llm"]
    """Large language models."""
    model: LlmModel
    """The network: a published decoder, or llama-tiny, a quick one of their form. Biases and the norms of
    queries and keys (Qwen) are left out: less than 0.01 % of the weights."""
    form: Literal["runtime", "nitro", "paper"] = "runtime"
    """`runtime`: as OpenVINO GenAI runs it today, with a cache in place and grouped-query attention; `nitro`:
    as NITRO's code has it, which drops the oldest token and appends the new ones; `paper`: as its section 3.3
    says, which writes tokens to the first free places."""
    precision: Literal["fp16", "bf16", "fp32"] = "fp16"
    """Format of its tensors; weights may be narrower (`weights`)."""
    phase: Literal["decode", "prefill"] = "decode"
    """`decode` makes the next token; `prefill` takes in the prompt at once, by a model compiled for its
    length."""
    shapes: Literal["static", "dynamic"] = "static"
    """`static`: the cache has `max_sequence` places, attention runs over all of them, and a mask leaves out
    the unused ones; `dynamic`: it has as many as there are tokens (`position`), which no NPU runs."""
    max_sequence: Annotated[int, Field(ge=1, le=131_072)] = _of_form(1152, 128)
    """Places of the cache: tokens that the model can look back to. Default: 1152, NPUW's prompt of 1024 and
    answer of 128; of the other forms 128, NITRO's."""
    prompt: Annotated[int, Field(ge=1, le=131_072)] = 32
    """Tokens of the prompt."""
    position: Annotated[int, Field(ge=0, le=131_072)] = Field(default_factory=lambda data: data["prompt"])
    """Tokens that are in the cache already, for `shapes: dynamic` in the phase decode. Default: the prompt's.
    """
    prefill_chunk: Annotated[int, Field(ge=1, le=131_072)] = 1024
    """Most tokens of a prompt that one inference of `form: runtime` takes in. Default: 1024, NPUW's."""
    tokens: Annotated[int, Field(ge=1, le=4096)] = 1
    """Tokens that a decoding inference takes in: more than one where a draft's guesses are checked."""
    cache: Literal["state", "input"] = "state"
    """Where keys and values of earlier tokens are kept: in states of the model, or in inputs and outputs."""
    cache_precision: Literal["fp16", "int8"] = "fp16"
    """Format of keys and values in `form: runtime`: `fp16` as `precision` has it, or 8 bits with a scale for
    each token and head."""
    rope: Literal["input", "graph"] = "input"
    """Who looks up the rotary embeddings of a position: the host, or a table in the graph."""
    chunks: Annotated[int, Field(ge=0, le=1024)] = Field(
        default_factory=lambda data: 0 if data["form"] == "runtime" else _SIZES[data["model"]]["chunks"]
    )
    """Parts of equal size that the decoder layers are cut into; embedding and last layer are parts of their
    own. 0: everything in one piece. Default: 0; of the other forms NITRO's, 1 for llama3.2-1b, else 2."""
    weights: Literal["fp16", "int8", "int4"] = "fp16"
    """Format in which weights are stored: `fp16` as `precision` has it, or packed with scales. In `form:
    runtime` the table of embeddings and the last layer have 8 bits where others have 4 (NNCF's default)."""
    symmetric: bool = _of_form(True, False)
    """Whether packed weights have scales alone; otherwise scales and zero points."""
    group: Annotated[int, Field(ge=0, le=65536)] = Field(
        default_factory=lambda data: _GROUP if data["weights"] == "int4" and data["form"] != "runtime" else 0
    )
    """Weights of a row that share a scale; 0: all of the row, a scale by output channel. Default: 0; 64 for
    int4 of the other forms."""
    attention: Literal["fused", "separate"] = Field(
        default_factory=lambda data: (
            "separate" if data["form"] != "runtime" and data["weights"] != "fp16" else "fused"
        )
    )
    """`fused`: OpenVINO recognises attention, as since 2025, and multiplies keys as they lie; `separate`: its
    operators stay apart, and keys are transposed to columns, as in the converted model and under OpenVINO
    2024. Default: fused; of packed weights separate in NITRO's forms: their models are not recognised."""
    host_work: bool = True
    """Whether what the host does for a token counts: it makes the mask and looks up rotary embeddings, and
    chooses the next token."""
    devices: dict[str, PartDevice] = Field(default_factory=dict)
    """Device of a part, by the part's name: embedding, layers0, layers1, ..., output. A part that is not
    listed runs where the network does."""
    layers: Annotated[int, Field(ge=1, le=256)] = _of_model("layers")
    """Decoder layers."""
    hidden: Annotated[int, Field(ge=1, le=65536)] = _of_model("hidden")
    """Features of a token."""
    heads: Annotated[int, Field(ge=1, le=1024)] = _of_model("heads")
    """Attention heads."""
    head_width: Annotated[int, Field(ge=2, le=65536)] = Field(
        default_factory=lambda data: _SIZES[data["model"]].get(
            "head_width", max(2, data["hidden"] // data["heads"])
        )
    )
    """Features of a head. Default: hidden / heads, of qwen3-0.6b 128."""
    kv_heads: Annotated[int, Field(ge=1, le=1024)] = _of_model("kv_heads")
    """Heads of keys and values, each shared by `heads / kv_heads` heads."""
    intermediate: Annotated[int, Field(ge=1, le=262_144)] = _of_model("intermediate")
    """Features within the feed-forward network."""
    vocabulary: Annotated[int, Field(ge=2, le=10_000_000)] = _of_model("vocabulary")
    """Tokens that the model knows."""
    tied: bool = _of_model("tied")
    """Whether the last layer multiplies by the table of embeddings."""

    @model_validator(mode="after")
    def _cut_evenly(self) -> LlmSpec:
        own_width = "head_width" in _SIZES[self.model] or "head_width" in self.model_fields_set
        for key, whole in (*(() if own_width else (("heads", "hidden"),)), ("kv_heads", "heads")):
            if getattr(self, whole) % getattr(self, key):
                total = getattr(self, whole)
                refuse(f"`{getattr(self, key)}`", f"a divisor of {whole}, which is {total}", at=key)
        if self.head_width % 2:
            refuse(f"`{self.heads}`", "heads of an even width: rotary embeddings turn pairs", at="heads")
        if self.chunks and self.layers % self.chunks:
            even = ", ".join(str(n) for n in range(1, self.layers + 1) if self.layers % n == 0)
            refuse(f"`{self.chunks}`", f"a divisor of layers, which is {self.layers}: 0, {even}", at="chunks")
        for name in self.devices:
            if name not in self.part_names:
                refuse(f"the part `{name}`", ", ".join(self.part_names), at="devices")
        return self

    @model_validator(mode="after")
    def _keys_of_the_form(self) -> LlmSpec:
        usual: dict[str, Any] = {"cache": "state", "rope": "input", "attention": "fused"}
        if self.form != "runtime":
            usual = {"cache_precision": "fp16", "prefill_chunk": 1024}
        for key, value in usual.items():
            if getattr(self, key) != value:
                refuse(f"`{key}` with `form: {self.form}`", "this key with another form alone", at=key)
        return self

    @model_validator(mode="after")
    def _places_suffice(self) -> LlmSpec:
        length = f"max_sequence, which is {self.max_sequence}"
        if self.prompt > self.max_sequence:
            refuse(f"`{self.prompt}`", f"at most {length}: the cache must hold the prompt", at="prompt")
        most = self.max_sequence - (self.new_tokens if self.looks_back else 0)
        if self.position > most:
            refuse(
                f"`{self.position}`", f"at most {most}: {length}, is to hold new tokens, too", at="position"
            )
        if self.new_tokens > self.max_sequence:
            refuse(f"`{self.tokens}`", f"at most {length}", at="tokens")
        return self

    @model_validator(mode="after")
    def _groups_fill_rows(self) -> LlmSpec:
        if not self.group:
            return self
        if self.weights == "fp16":
            refuse(f"`{self.group}`", "no group where weights are fp16: they have no scales", at="group")
        for row, what in ((self.hidden, "hidden"), (self.intermediate, "intermediate")):
            if row % self.group:
                refuse(f"`{self.group}`", f"a divisor of every row; {what} is {row}", at="group")
        return self

    @property
    def dtype(self) -> DType:
        """Format of the tensors."""
        return DType(self.precision)

    @property
    def new_tokens(self) -> int:
        """Tokens that an inference takes in."""
        if self.phase == "prefill":
            return min(self.prompt, self.prefill_chunk) if self.form == "runtime" else self.prompt
        return self.tokens

    @property
    def looks_back(self) -> bool:
        """Whether the cache holds earlier tokens, and no more places than these."""
        return self.shapes == "dynamic" and self.phase == "decode"

    @property
    def attended(self) -> int:
        """Places that attention runs over."""
        if self.shapes == "static":
            return self.max_sequence
        return self.new_tokens + (self.position if self.looks_back else 0)

    @property
    def part_names(self) -> tuple[str, ...]:
        """Parts that devices run, in order; one without a name where the network is in one piece."""
        if not self.chunks:
            return ("",)
        return (EMBEDDING, *(f"layers{i}" for i in range(self.chunks)), OUTPUT)

    @property
    def parameters(self) -> int:
        """Weights of the model, the table of embeddings once where it is tied."""
        width, attended, narrow = (self.hidden, *(n * self.head_width for n in (self.heads, self.kv_heads)))
        layer = 2 * width * (attended + narrow) + 3 * width * self.intermediate + 2 * width
        tables = (1 if self.tied else 2) * self.vocabulary * width
        return self.layers * layer + tables + width

    @property
    def cache_storage(self) -> tuple[DType, float]:
        """Format of keys and values, and the bytes of a scale and zero point of each token and head."""
        return (self.dtype, 0.0) if self.cache_precision == "fp16" else (DType.INT8, 2 * _SCALE_BYTES)

    @property
    def cache_bytes(self) -> float:
        """Keys and values of all places that attention reads, with their scales."""
        dtype, scale_bytes = self.cache_storage
        each = self.head_width * dtype.bytes + scale_bytes
        return 2.0 * self.layers * self.kv_heads * self.attended * each

    def packing(self, rows: int, columns: int, inner: bool = True) -> tuple[DType, float]:
        """Return the format in which a matrix of weights is stored, and the bytes of its scales.

        Parameters
        ----------
        inner : bool
            Whether it belongs to a decoder layer, and not to the table of embeddings or the last layer.
        """
        if self.weights not in _PACKED:
            return self.dtype, 0.0
        bits = _PACKED[self.weights if inner or self.form != "runtime" else "int8"]
        signed, unsigned = {8: (DType.INT8, DType.UINT8), 4: (DType.INT4, DType.UINT4)}[bits]
        scales = rows * (columns // self.group if self.group else 1)
        if self.symmetric:
            return signed, scales * _SCALE_BYTES
        return unsigned, scales * (_SCALE_BYTES + bits / 8)

    @property
    def facts(self) -> dict[str, Any]:
        """Phase, length of the cache, and format of the weights."""
        return {"phase": self.phase, "max_sequence": self.max_sequence, "weights": self.weights}


_GROUP = 64
_BASE = 500_000.0
"""Base of the rotary embeddings' wavelengths, of Llama 3."""


def rotary_angles(spec: LlmSpec, positions: int) -> npt.NDArray[np.float64]:
    """Return cosine and sine by position and pair of features, shape (positions, pairs, 2)."""
    turns = _BASE ** -(np.arange(0, spec.head_width, 2) / spec.head_width)
    angles = np.outer(np.arange(positions), turns)
    return np.stack((np.cos(angles), np.sin(angles)), axis=-1)


def _build(spec: LlmSpec, name: str, _: Path) -> Graph:
    from npusim.llm.decoder import build_decoder  # loaded when a decoder is built

    return build_decoder(spec, name)


def _export(spec: LlmSpec, folder: Path, weights: Path | None, tell: Callable[[str], None]) -> None:
    from npusim.llm.converting import export_llm  # loads PyTorch

    export_llm(spec, folder, weights, tell)


LLM = WorkloadKind(
    "llm",
    "decoders of language: a token at a time, or a prompt",
    LlmSpec,
    _build,
    folder=Path(__file__).with_name("workloads"),
    export=_export,
    is_large=True,
)
