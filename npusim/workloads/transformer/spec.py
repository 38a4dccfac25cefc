"""Keys of a workload file of kind `transformer`: which encoder, how deep, how wide, on what input."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from npusim.units import refuse
from npusim.workloads.spec import WorkloadSpec, default_of_model

TransformerModel = Literal["bert-base", "bert-large", "vit"]


class _Sizes(NamedTuple):
    """Defaults of a model."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    outputs: int


_SIZES: dict[str, _Sizes] = {
    "bert-base": _Sizes(12, 768, 12, 128, 28996, 2),
    "bert-large": _Sizes(24, 1024, 16, 384, 30522, 2),
    "vit": _Sizes(12, 768, 12, 197, 0, 1000),
}
_POSITIONS = 512
"""Longest sequence that BERT has position embeddings for."""


def _of_model(key: str) -> Any:
    return default_of_model({model: getattr(sizes, key) for model, sizes in _SIZES.items()})


def _tokens(data: dict[str, Any]) -> int:
    """Return the default of `sequence`: of vit, its patches and one token of the class."""
    if data["model"] != "vit":
        return _SIZES[data["model"]].sequence
    return int((data["image"] // data["patch"]) ** 2 + 1)


class TransformerSpec(WorkloadSpec):
    """An encoder of transformer layers."""

    kind: Literal["transformer"]
    """Transformers."""
    model: TransformerModel
    """The network: bert-base and bert-large answer questions about a text (two scores a token); vit
    (ViT-B/16) classifies images."""
    precision: Literal["fp16", "bf16", "fp32", "int8"] = "fp16"
    """Format of its tensors; `int8` is a network quantised before it is compiled: matrix products multiply
    bytes, softmax, GELU and normalisations stay fp16."""
    batch: Annotated[int, Field(ge=1, le=1024)] = 1
    """Texts or images of one inference."""
    layers: Annotated[int, Field(ge=1, le=200)] = _of_model("layers")
    """Layers. Default: 12, bert-large 24."""
    hidden: Annotated[int, Field(ge=1, le=65536)] = _of_model("hidden")
    """Features of a token; the feed-forward network is four times as wide. Default: 768, bert-large 1024."""
    heads: Annotated[int, Field(ge=1, le=1024)] = _of_model("heads")
    """Attention heads. Default: 12, bert-large 16."""
    image: Annotated[int, Field(ge=1, le=8192)] = 224
    """Height and width of vit's images."""
    patch: Annotated[int, Field(ge=1, le=1024)] = 16
    """Height and width of vit's patches."""
    sequence: Annotated[int, Field(ge=1, le=65536, validate_default=True, default_factory=_tokens)]
    """Tokens of a text. Default: 128, bert-large 384; of vit its patches and one token of the class, 197."""
    vocabulary: Annotated[int, Field(ge=0, le=10_000_000)] = _of_model("vocabulary")
    """Rows of the table of word embeddings. Default: 28996 (bert-base-cased), 30522 (bert-large-uncased); vit
    has none."""
    outputs: Annotated[int, Field(ge=1, le=100_000)] = _of_model("outputs")
    """Scores of a token (bert, default 2: start and end of the answer) or of an image (vit, 1000 classes)."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> TransformerSpec:
        if self.hidden % self.heads:
            refuse(f"`{self.hidden}`", f"a multiple of heads, which is {self.heads}", at="hidden")
        images = self.model_fields_set & {"image", "patch"}
        if self.model != "vit" and images:
            key = min(images)
            refuse(
                f"`{getattr(self, key)}`", f"no {key}: {self.model} reads no images, only vit does", at=key
            )
        if self.model == "vit":
            if self.image % self.patch:
                refuse(f"`{self.image}`", f"a multiple of patch, which is {self.patch}", at="image")
            tokens = (self.image // self.patch) ** 2 + 1
            if self.sequence != tokens:
                refuse(f"`{self.sequence}`", f"{tokens}, which image and patch make", at="sequence")
        elif self.sequence > _POSITIONS:
            refuse(f"`{self.sequence}`", f"at most the {_POSITIONS} positions of {self.model}", at="sequence")
        elif not self.vocabulary:
            refuse(f"`{self.vocabulary}`", f"at least 1 for {self.model}", at="vocabulary")
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """Shape of the input."""
        if self.model == "vit":
            return {"input": f"{self.batch}x3x{self.image}x{self.image}"}
        return {"input": f"{self.batch}x{self.sequence}"}
