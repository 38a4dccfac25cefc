"""Which of an NPU's numbers no measured row constrains: the list of what to measure next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, Field

from npusim.arch import Soc, load_soc, soc_names
from npusim.documents import Document, Part
from npusim.units import Count, Quantity

_MEASURED = ("[SILICON]", "] measured cycles")
"""What the source of a number says where measured rows bear on it."""
_FACTS = ("[VPUNN]", "[NPUC]", "[ITT]")
"""Sources of numbers that are published facts, not fitted."""
_MODELS = (("npu", "dpu", "model"), ("npu", "dma", "model"), ("npu", "dsp", "kernels"))
"""Where a data sheet keeps the numbers of the units' equations."""


class UnmeasuredParameter(Part):
    """A number of a unit's equations that no measured row constrains."""

    soc: str
    """SoC whose data sheet holds it."""
    path: str
    """Where it stands, as in `--set`."""
    value: str
    """Its value with unit."""
    uncertainty: float | None
    """Relative standard deviation; None where nobody stated one."""
    source: str
    """Where it comes from."""


class Unmeasured(Document):
    """The numbers that rest on no measured row, as a document."""

    schema_: Literal["npusim.parameters/1"] = Field("npusim.parameters/1", alias="schema")
    """Version of this document."""
    parameters: list[UnmeasuredParameter]
    """The numbers, SoC by SoC."""


def unmeasured() -> Unmeasured:
    """Return the numbers of the units' equations that rest on no measured row, for every SoC with an NPU.

    Examples
    --------
    >>> [p.path for p in unmeasured().parameters if p.path.endswith("ddr2cmx_row_cycles")]
    ['npu.dma.model.ddr2cmx_row_cycles', 'npu.dma.model.ddr2cmx_row_cycles']
    """
    socs = [load_soc(name) for name in soc_names(variants=False)]
    return Unmeasured(parameters=[found for soc in socs if soc.has("npu") for found in _of(soc)])


def _of(soc: Soc) -> Iterator[UnmeasuredParameter]:
    for keys in _MODELS:
        part: Any = soc.npu
        for key in keys[1:]:
            part = getattr(part, key)
        for path, number in _numbers(part, ".".join(keys)):
            if not number.source.startswith(_FACTS) and not any(word in number.source for word in _MEASURED):
                yield UnmeasuredParameter(
                    soc=soc.name,
                    path=path,
                    value=number.text,
                    uncertainty=number.uncertainty,
                    source=number.source,
                )


def _numbers(part: Any, path: str) -> Iterator[tuple[str, Quantity | Count]]:
    """Yield the numbers below a part of a data sheet that the file states."""
    if isinstance(part, Quantity | Count):
        yield path, part
    elif isinstance(part, dict):
        for name, value in part.items():
            yield from _numbers(value, f"{path}.{name}")
    elif isinstance(part, BaseModel):
        for name in type(part).model_fields:
            if name in part.model_fields_set:
                yield from _numbers(getattr(part, name), f"{path}.{name}")
