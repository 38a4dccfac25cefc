"""Time and memory that compiling a network for an NPU takes, part by part, with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import exp, log1p, sqrt
from statistics import NormalDist

from npusim.arch import Soc
from npusim.arch.loading import Toolchain, load_toolchain
from npusim.cost import Unit
from npusim.engines.estimate import Compilation
from npusim.mapping import Mapped
from npusim.units import Quantity

_NINETY = NormalDist().inv_cdf(0.95)
_shipped = lru_cache(load_toolchain)


def compilation(mapped: Mapped, constants: Mapping[str, float]) -> Compilation | None:
    """Return what compiling takes; None where no device says by what it is compiled.

    Parts are compiled one after the other, and what is compiled stays loaded.

    Parameters
    ----------
    constants : mapping of str to float
        Bytes of the constants that each part reads.
    """
    found: list[tuple[Toolchain, str, int]] = []
    for name in mapped.graph.parts:
        groups = [
            group
            for group in mapped.decisions.groups
            if group.unit.is_array and mapped.graph.operators[group.main].part == name
        ]
        for device in dict.fromkeys(group.device for group in groups):
            toolchain = getattr(mapped.soc.array_devices[device], "toolchain", None)
            if toolchain is not None:
                count = sum(group.unit is not Unit.VIEW and group.device == device for group in groups)
                found.append((_toolchain(toolchain), name, count))
    if not found:
        return None
    seconds: list[tuple[float, Quantity]] = []
    for tool, part, operators in found:
        seconds += _compile_terms(tool, operators, constants[part])
    loaded, peak, largest = 0.0, list[tuple[float, Quantity]](), ""
    for tool, part, operators in found:
        per_byte = tool.memory_per_constant_byte
        terms = [(float(tool.memory_fixed), tool.memory_fixed), (per_byte * constants[part], per_byte)]
        terms.append((loaded, Quantity(0.0, "B", source="compiled before")))
        if _sum(terms) > _sum(peak):
            peak, largest = terms, part
        loaded += tool.version_bytes(operators, constants[part])
    tool = found[0][0]
    known = tool.memory_per_constant_byte > 0.0
    return Compilation(
        toolchain=tool.name,
        models=len(found),
        compile_s=_sum(seconds),
        compile_interval_s=_interval(seconds),
        memory_peak_bytes=_sum(peak) if known else None,
        memory_peak_interval_bytes=_interval(peak) if known else None,
        largest_part=largest,
        source=str(tool.memory_per_constant_byte.source),
    )


def _toolchain(name: str) -> Toolchain:
    return load_toolchain(name) if name.endswith((".yaml", ".yml")) else _shipped(name)


def memory_warnings(found: Compilation | None, soc: Soc) -> list[str]:
    """Return a warning where compiling may take more memory than the machine has."""
    if found is None or found.memory_peak_bytes is None or found.memory_peak_interval_bytes is None:
        return []
    if found.memory_peak_bytes <= soc.dram.capacity:
        return []
    low, high = (bound / 1e9 for bound in found.memory_peak_interval_bytes)
    part = f" {found.largest_part}" if found.largest_part else ""
    return [
        f"compiling{part} may take {low:.2g} to {high:.2g} GB of memory (90 %), and {soc.name} has "
        f"{soc.dram.capacity.text}: compile it in more parts (workload.chunks), or elsewhere"
    ]


def _compile_terms(tool: Toolchain, operators: int, constant_bytes: float) -> list[tuple[float, Quantity]]:
    """Return the terms of a model's compilation (s), each with the number it rests on."""
    each, rate = tool.compile_per_operator, tool.compile_bandwidth
    return [
        (float(tool.compile_fixed), tool.compile_fixed),
        (operators * each, each),
        (constant_bytes / rate, rate),
    ]


def _sum(terms: Iterable[tuple[float, Quantity]]) -> float:
    return float(sum(value for value, _ in terms))


def _interval(terms: list[tuple[float, Quantity]]) -> tuple[float, float]:
    """Return the 90 % interval of a sum whose terms rest on numbers that err log-normally."""
    total = _sum(terms)
    by_number: dict[tuple[float, str], float] = {}
    for value, number in terms:
        sigma = sqrt(log1p((number.uncertainty or 0.0) ** 2))
        key = (float(number), str(number.source))
        by_number[key] = by_number.get(key, 0.0) + value * sigma / total
    spread = exp(_NINETY * sqrt(sum(share**2 for share in by_number.values())))
    return total / spread, total * spread
