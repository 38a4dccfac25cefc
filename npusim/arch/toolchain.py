"""A compiler for NPUs: time to compile a network, and size of the result."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from npusim.config import Section, Settings, load_model
from npusim.errors import UnknownNameError
from npusim.locate import resource, resource_names
from npusim.units import Bandwidth, BytesOrZero, Duration, Quantity, Ratio


class Toolchain(Section):
    """A compiler for NPUs, as seen from outside."""

    schema_name: Literal["npusim.toolchain/1"] = Field(alias="schema")
    """Version of this file format: npusim.toolchain/1."""
    name: Annotated[str, Field(min_length=1)]
    """Short name."""
    title: str
    """What it is."""
    compile_fixed: Duration
    """Time to compile the smallest network: reading, passes over the graph, loading the result."""
    compile_per_operator: Duration
    """Time that each operator adds: tiling, scheduling."""
    compile_bandwidth: Bandwidth
    """Bytes of constants that are laid out again and written in a second."""
    version_fixed: BytesOrZero
    """Size of a compiled version without constants: tables, headers."""
    version_per_operator: BytesOrZero
    """Size that each operator adds: its descriptors."""
    memory_fixed: BytesOrZero = Quantity(0.0, "B", source="absent")
    """Memory that compiling the smallest network takes at its peak."""
    memory_per_constant_byte: Ratio = Quantity(0.0, "", source="absent")
    """Memory at that peak for each byte of constants: the model as it was read, and copies laid out anew. 0:
    not known."""

    def compile_s(self, operators: int, constant_bytes: float) -> float:
        """Return the time to compile a network (s)."""
        layout_s = constant_bytes / self.compile_bandwidth
        return float(self.compile_fixed + operators * self.compile_per_operator + layout_s)

    def memory_bytes(self, constant_bytes: float) -> float:
        """Return the memory that compiling a network takes at its peak (B)."""
        return float(self.memory_fixed + self.memory_per_constant_byte * constant_bytes)

    def version_bytes(self, operators: int, constant_bytes: float) -> float:
        """Return the memory that a compiled network takes (B)."""
        return float(self.version_fixed + operators * self.version_per_operator + constant_bytes)


def load_toolchain(name: str = "openvino-npu", overrides: Settings = ()) -> Toolchain:
    """Return a toolchain by the name of a shipped file or the path of a YAML file.

    Examples
    --------
    >>> load_toolchain().compile_s(operators=0, constant_bytes=0.0) > 0.0
    True
    """
    if name.endswith((".yaml", ".yml")):
        return load_model(name, Toolchain, overrides)
    if name not in resource_names("configs/toolchains", ".yaml"):
        raise UnknownNameError("toolchain", name, resource_names("configs/toolchains", ".yaml"))
    return load_model(resource("configs", "toolchains", f"{name}.yaml"), Toolchain, overrides)
