"""Aggregations with PyTorch Geometric, measured on this CPU in turns, each in its own process."""

from __future__ import annotations

import datetime
import multiprocessing
import platform
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import psutil
import torch
import torch_geometric

from npusim import __version__
from npusim.errors import NpusimError
from npusim.measure import aggregation_process
from npusim.measure.document import Benchmark, Device, Measurement, Row, Spread
from npusim.measure.environment import cache_bytes, highest_clock_hz, processor_name
from npusim.measure.message_passing import MessagePassing, aggregation_bytes
from npusim.measure.running import NothingMeasuredError, noise_warnings

if TYPE_CHECKING:
    from npusim.measure.suites import Item

_TURNS = 3
_SHARE_OF_MEMORY = 0.8
"""Part of the free memory that an aggregation may take."""
_PATIENCE_S = 600.0
"""Longest time of one turn (s)."""

Progress = Callable[[float, int, str], None]


def counted_bytes(item: Item) -> float:
    """Return the memory of a row as npusim counts it (B)."""
    assert isinstance(item.model, Benchmark)
    return aggregation_bytes(*_work(item.model))


def _work(model: Benchmark) -> tuple[MessagePassing, bool]:
    sizes, compressed = model.sizes, model.operator == "CsrProduct"
    chunks = sizes.get("chunks", 1)
    scaled = model.operator == "MessagePassing"
    return MessagePassing(sizes["nodes"], sizes["edges"], sizes["hidden"], chunks, scaled), compressed


def refuse_too_large(items: Sequence[Item], free_bytes: float | None = None) -> None:
    """Refuse aggregations that memory does not hold, with the fewest chunks that it would.

    Raises
    ------
    NpusimError
        Before anything runs.
    """
    free = free_bytes if free_bytes is not None else _SHARE_OF_MEMORY * psutil.virtual_memory().available
    for item in items:
        needed = counted_bytes(item)
        if needed <= free:
            continue
        assert isinstance(item.model, Benchmark)
        work, compressed = _work(item.model)
        fitting = fewest_chunks(work, free) if not compressed else None
        allowed = f"chunks of at least {fitting}" if fitting else "fewer nodes or edges"
        raise NpusimError(
            f"{item.id}: found {needed / 1e9:.3g} GB of memory needed and {free / 1e9:.3g} GB free; "
            f"allowed: {allowed}"
        )


def fewest_chunks(work: MessagePassing, free_bytes: float) -> int | None:
    """Return the fewest chunks whose aggregation fits a memory; None where none does."""
    counts = (p for p in range(1, work.width + 1) if work.width % p == 0)
    cut = (MessagePassing(work.nodes, work.edges, work.width, p, work.scaled) for p in counts)
    return next((one.chunks for one in cut if aggregation_bytes(one) <= free_bytes), None)


def measure_aggregations(
    items: Sequence[Item],
    *,
    budget_s: float = 2.0,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Measurement:
    """Measure aggregations with PyTorch Geometric on one thread of this machine's CPU.

    Parameters
    ----------
    items : sequence of Item
        Rows whose operator is one of `npusim.measure.benchmarks.AGGREGATIONS`.
    budget_s : float
        Time for a row (s), split among its turns; at least one reading each.
    stop : callable, optional
        Asked between processes; once it answers True, what is measured is returned, with ``complete=False``.

    Raises
    ------
    NpusimError
        Where an aggregation would exceed the free memory; nothing has run then.
    NothingMeasuredError
        Where no row could be measured.
    """
    refuse_too_large(items)
    progress, stop = progress or (lambda done, total, what: None), stop or (lambda: False)
    start = _processes()
    turns: dict[str, list[list[float]]] = {item.id: [] for item in items}
    peaks: dict[str, float | None] = {}
    failures: dict[str, str] = {}
    steps = [(turn, item) for turn in range(_TURNS + 1) for item in items]
    for number, (turn, item) in enumerate(steps):
        if stop():
            break
        if item.id in failures:
            continue
        progress(number / (_TURNS + 1), len(items), f"running {item.id}")
        found = _turn(start, item, budget_s / _TURNS, memory=turn == 0)
        if "error" in found:
            failures[item.id] = str(found["error"])
        elif turn == 0:
            peaks[item.id] = found["peak_bytes"]
        else:
            turns[item.id].append(found["latencies_s"])
    rows = [_row(item, turns[item.id], peaks.get(item.id)) for item in items if turns[item.id]]
    if not rows:
        raise NothingMeasuredError("CPU", failures)
    return Measurement(
        npusim=__version__,
        date=datetime.date.today().isoformat(),
        complete=not stop(),
        device=_device(),
        rows=tuple(rows),
        warnings=(*(f"{name}: {why}" for name, why in failures.items()), *noise_warnings(rows)),
    )


def _processes() -> Any:
    """Return what starts processes: copies of one that has PyTorch loaded, where the system can copy."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([aggregation_process.__name__])
    return context


def _turn(context: Any, item: Item, seconds: float, memory: bool) -> dict[str, Any]:
    assert isinstance(item.model, Benchmark)
    ours, theirs = context.Pipe()
    arguments = (theirs, item.model.operator, dict(item.model.sizes), seconds, memory)
    process = context.Process(target=aggregation_process.run, args=arguments)
    process.start()
    theirs.close()
    try:
        answered = ours.poll(_PATIENCE_S)
        return dict(ours.recv()) if answered else {"error": f"no answer within {_PATIENCE_S:.0f} s"}
    except EOFError:
        return {"error": "the process ended without an answer: it may have run out of memory"}
    finally:
        process.join(1.0)
        if process.is_alive():
            process.kill()
            process.join()


def _row(item: Item, turns: list[list[float]], peak: float | None) -> Row:
    return Row(
        id=item.id,
        model=item.model,
        precision="f32",
        latency_s=Spread.of(turns),
        peak_memory_bytes=peak,
        counted_memory_bytes=counted_bytes(item),
        note="PyTorch Geometric, one thread, processor time",
    )


def _device() -> Device:
    return Device(
        kind="cpu",
        name=processor_name(),
        os=platform.system() or None,
        cores=1,
        clock_hz=highest_clock_hz("cpu"),
        cache_bytes=cache_bytes(1),
        settings={"torch": torch.__version__, "torch_geometric": torch_geometric.__version__},
    )
