"""The slow, obvious twin of memory levels: what passes between uses, counted use by use, and what is held."""

from typing import Any

from npusim.cost.lowering.tables import Order


def touched(use: Any) -> dict[str, float]:
    """Return the tensors that a group touches, with their bytes."""
    found: dict[str, float] = {}
    for operand in (use.a, use.b, *use.extra, use.made):
        for name, size in (operand or {}).items():
            found[name] = max(size, found.get(name, 0.0))
    return found


def between(uses: list[Any], i: int, names: set[str], pinned: set[str]) -> float:
    """Return the bytes that pass since the last uses of some tensors, and one more; 0: never used."""
    begins = []
    for name in names:
        before = [j for j in range(i) if uses[j] is not None and name in touched(uses[j])]
        if not before or uses[before[-1]].device != uses[i].device:
            return 0.0
        begins.append(before[-1])
    if not begins:
        return 0.0
    latest: dict[str, float] = {}
    for j in range(min(begins), i):
        latest |= touched(uses[j]) if uses[j] is not None else {}
    return 1.0 + sum(size for name, size in latest.items() if name not in names | pinned)


def held(capacity: float, passed: float, size: float, is_cache: bool) -> float:
    """Return the bytes of an operand that are still there."""
    if passed == 0.0:
        return 0.0
    room = capacity - (passed - 1.0)
    if is_cache:
        return size if size <= room else 0.0
    return max(0.0, min(size, room))


def transfer_s(bytes_from: list[float], bytes_per_s: list[float], engines_bytes_per_s: float) -> float:
    """Return the time of bytes from DRAM (first) and from levels (the outermost first, then inwards).

    A level that is slower than a memory outside it hands its bytes to that one. Each memory moves its own
    bytes and those of all memories outside it, at most as fast as the DMA engines.
    """
    loads, rates = [0.0], [bytes_per_s[0]]
    for moved, rate in zip(bytes_from, bytes_per_s, strict=True):
        if rate > rates[-1]:
            loads.append(0.0)
            rates.append(rate)
        loads[-1] += moved
    return max(sum(loads[: i + 1]) / min(rate, engines_bytes_per_s) for i, rate in enumerate(rates))


def accesses(order: Order, rows: int, columns: int, chunks: int) -> list[tuple[str, int, int]]:
    """Return the blocks that a tiling reads and writes, in their order: (operand, block, chunk)."""
    found: list[tuple[str, int, int]] = []
    if order is Order.WEIGHTS_HELD:
        for j in range(columns):
            found.append(("b", j, 0))
            for i in range(rows):
                found += [("a", i, 0), ("c", i * columns + j, 0)]
        return found
    for i in range(rows):
        if order is Order.ACTIVATIONS_HELD:
            found.append(("a", i, 0))
        for j in range(columns):
            for k in range(chunks):
                found += [("a", i, k)] if order is Order.OUTPUTS_HELD else []
                found.append(("b", j, k))
            found.append(("c", i * columns + j, 0))
    return found


def reuse_bytes(sequence: list[tuple[str, int, int]], operand: str, sizes: dict[str, float]) -> float:
    """Return the most bytes of different blocks from one access to an operand's block to the next one."""
    longest = 0.0
    for at, block in enumerate(sequence):
        if block[0] == operand and block in sequence[:at]:
            before = max(i for i in range(at) if sequence[i] == block)
            longest = max(longest, sum(sizes[name] for name, *_ in set(sequence[before:at])))
    return longest
