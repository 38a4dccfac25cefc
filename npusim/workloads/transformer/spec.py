"""Keys of a workload file of kind `transformer`: which encoder, how deep, how wide, on what input."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from npusim.workloads.spec import WorkloadSpec

__all__ = ["TransformerModel", "TransformerSpec"]

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
    layers: Annotated[int, Field(ge=1, le=200)]
    """Layers. Default: 12, bert-large 24."""
    hidden: Annotated[int, Field(ge=1, le=65536)]
    """Features of a token; the feed-forward network is four times as wide. Default: 768, bert-large 1024."""
    heads: Annotated[int, Field(ge=1, le=1024)]
    """Attention heads. Default: 12, bert-large 16."""
    sequence: Annotated[int, Field(ge=1, le=65536)]
    """Tokens of a text. Default: 128, bert-large 384; of vit its patches and one token of the class, 197."""
    vocabulary: Annotated[int, Field(ge=0, le=10_000_000)]
    """Rows of the table of word embeddings. Default: 28996 (bert-base-cased), 30522 (bert-large-uncased); vit
    has none."""
    image: Annotated[int, Field(ge=1, le=8192)] = 224
    """Height and width of vit's images."""
    patch: Annotated[int, Field(ge=1, le=1024)] = 16
    """Height and width of vit's patches."""
    outputs: Annotated[int, Field(ge=1, le=100_000)]
    """Scores of a token (bert, default 2: start and end of the answer) or of an image (vit, 1000 classes)."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_model(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("model") not in _SIZES:
            return data
        defaults = _SIZES[data["model"]]._asdict()
        image, patch = data.get("image", 224), data.get("patch", 16)
        if data["model"] == "vit" and isinstance(image, int) and isinstance(patch, int) and patch > 0:
            defaults["sequence"] = (image // patch) ** 2 + 1
        return {**defaults, **data}

    @model_validator(mode="after")
    def _sizes_fit(self) -> TransformerSpec:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.model == "vit":
            if self.image % self.patch:
                raise ValueError(f"image {self.image} is not a multiple of patch {self.patch}")
            tokens = (self.image // self.patch) ** 2 + 1
            if self.sequence != tokens:
                raise ValueError(f"sequence {self.sequence} of vit: image and patch make it {tokens}")
        elif self.sequence > _POSITIONS:
            raise ValueError(
                f"sequence {self.sequence} is longer than the {_POSITIONS} positions of {self.model}"
            )
        elif not self.vocabulary:
            raise ValueError(f"vocabulary of {self.model} is at least 1")
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """Shape of the input."""
        if self.model == "vit":
            return {"input": f"{self.batch}x3x{self.image}x{self.image}"}
        return {"input": f"{self.batch}x{self.sequence}"}
