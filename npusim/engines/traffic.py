"""What each byte of DRAM traffic is: compulsory, refetched, or spilled.

No mapping does with less traffic than the *compulsory* bytes: each constant and each input read once, each
output written once. An intermediate result that is written to DRAM is *spilled*, and so is its first read
back. Every other read fetches bytes a second time.
"""

from __future__ import annotations

from typing import Any

from npusim.cost import Transfer, Unit, roots
from npusim.engines.estimate import DramByKind
from npusim.mapping import Mapped
from npusim.ops import TensorKind


def dram_by_kind(mapped: Mapped) -> list[DramByKind]:
    """Return the DRAM bytes of each group by kind, over all its repeats."""
    ledger, lowered = _Ledger(mapped), mapped.lowered
    rows = zip(lowered.transfers(), lowered.ops, mapped.results, strict=True)
    return [_kinds(ledger, read, written, op, result) for (read, written), op, result in rows]


def summed_kinds(kinds: list[DramByKind]) -> DramByKind:
    """Return the sum of bytes by kind."""
    return DramByKind(
        **{name: sum(getattr(each, name) for each in kinds) for name in DramByKind.model_fields}
    )


class _Ledger:
    """Which shares of stored tensors are still to be read for the first time."""

    def __init__(self, mapped: Mapped) -> None:
        graph, root = mapped.graph, roots(mapped.graph, mapped.decisions.groups)
        residency = mapped.decisions.residency
        self._tensors, self._in_sram = graph.tensors, residency.whole | residency.row_fused
        self._unread = {
            name: 1.0 for name, tensor in graph.tensors.items() if tensor.kind is not TensorKind.ACTIVATION
        }
        """Share of each input, constant and state; of results, how often they lie in DRAM unread."""
        self._returned: dict[str, float] = {}
        for name in (*graph.outputs, *graph.state_results):
            for stored, share in root[name].items():
                part = graph.tensors[name].bytes * share / max(1.0, graph.tensors[stored].bytes)
                self._returned[stored] = min(1.0, self._returned.get(stored, 0.0) + part)

    def first_read(self, transfer: Transfer, repeats: float) -> tuple[TensorKind, float]:
        """Return the kind of a tensor and the bytes that are read for the first time."""
        kind, unread = self._tensors[transfer.name].kind, self._unread.get(transfer.name, 0.0)
        if transfer.share <= 0.0:
            return kind, 0.0
        share = min(unread, transfer.share * repeats)
        self._unread[transfer.name] = unread - share
        return kind, transfer.bytes * share / transfer.share

    def returned(self, transfer: Transfer, repeats: float) -> float:
        """Enter a result; return its bytes that the network returns."""
        if transfer.name not in self._in_sram:
            self._unread[transfer.name] = repeats
        return transfer.bytes * self._returned.get(transfer.name, 0.0)


def _kinds(
    ledger: _Ledger, read: tuple[Transfer, ...], written: tuple[Transfer, ...], op: Any, result: Any
) -> DramByKind:
    """Return the DRAM bytes of a group by kind."""
    repeats, read_bytes = float(op["repeats"]), float(result["dram_read_bytes"])
    written_bytes = max(0.0, float(result["dram_bytes"]) - read_bytes)
    first = dict.fromkeys(TensorKind, 0.0)
    for transfer in read:
        kind, size = ledger.first_read(transfer, repeats)
        first[kind] += size
    outputs = min(written_bytes, sum(ledger.returned(transfer, repeats) for transfer in written))
    inputs = min(read_bytes, first[TensorKind.INPUT] + first[TensorKind.STATE])
    weights = min(read_bytes - inputs, first[TensorKind.CONSTANT])
    rest = read_bytes - inputs - weights
    served = 0.0
    if op["unit"] != Unit.HOST:
        not_written = max(0.0, repeats * float(op["c_dram_bytes"]) - written_bytes)
        served = max(0.0, float(result["level_bytes"]) - not_written)
    back = first[TensorKind.ACTIVATION] * rest / (rest + served) if rest > 0.0 else 0.0
    back = min(rest, back)
    return DramByKind(
        compulsory_weights_bytes=weights,
        compulsory_activations_bytes=inputs + outputs,
        refetched_bytes=rest - back,
        spilled_bytes=written_bytes - outputs + back,
    )
