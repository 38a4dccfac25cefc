"""Evaluates chunks of a sweep, or scores architectures, on a Dask cluster; this process writes them.

Workers need npusim and no common disk; chunks come back as the bytes of their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Any

from distributed import Client, as_completed, get_worker

from npusim.cost import start_threads
from npusim.errors import NpusimError
from npusim.explore.campaign import campaign_of
from npusim.explore.scoring_pool import Score, in_portions
from npusim.explore.spaces import Space
from npusim.explore.store import changed_inputs, inputs_of
from npusim.explore.sweep import Runner, chunk_bytes

_RETRIES = 10
"""Times that a chunk is tried again when its worker is lost."""
_CONNECT_S = 20
_ONE_AT_A_TIME = Lock()
"""A chunk uses all threads of its worker, and not every threading layer of numba takes two callers."""
_AHEAD = 2
"""Chunks in flight for each worker: one at work, one waiting."""


def on_cluster(address: str) -> Runner:
    """Return a runner that evaluates chunks on the workers of a Dask scheduler; NpusimError without one."""

    def run(space: Space, chunks: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, bytes]]:
        inputs, waiting = inputs_of(space), iter(chunks)
        with _client(address) as client:

            def submit(count: int) -> list[Any]:
                return [
                    client.submit(_compute, space, inputs, *chunk, pure=False, retries=_RETRIES)
                    for chunk in islice(waiting, count)
                ]

            workers = max(1, len(client.scheduler_info()["workers"]))
            running = as_completed(submit(_AHEAD * workers), loop=client.loop)
            for future in running:
                yield future.result()
                future.release()
                for further in submit(1):
                    running.add(further)

    return run


def _client(address: str) -> Any:
    try:
        return Client(address, timeout=f"{_CONNECT_S}s", set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise NpusimError(
            f"no Dask scheduler answers at {address} ({error}); start one: dask scheduler"
        ) from None


@contextmanager
def scored_on_cluster(score: Score, address: str) -> Iterator[Score]:
    """Context with a scorer of architectures that runs on the workers of a Dask scheduler.

    `score` must be picklable; each worker receives it once. NpusimError where no scheduler answers.
    """
    with _client(address) as client:
        held = client.scatter(score, broadcast=True, hash=False)

        def run(portions: list[list[str]]) -> Iterator[list[float]]:
            tasks = [client.submit(_scored, held, portion, retries=_RETRIES) for portion in portions]
            return iter(client.gather(tasks))

        yield lambda texts: in_portions(texts, run)


def _scored(score: Score, texts: list[str]) -> list[float]:
    with _ONE_AT_A_TIME:  # a scorer keeps what it computed last
        return score(texts)


_inputs = lru_cache(maxsize=8)(inputs_of)


def _compute(space: Space, wanted: dict[str, str], index: int, start: int, stop: int) -> tuple[int, bytes]:
    """Evaluate one chunk on a worker, on as many cores as it has threads."""
    import numba

    changed = changed_inputs(_inputs(space), wanted)
    if changed:
        raise NpusimError(
            f"the worker computes from something else than this process ({', '.join(changed)}); install the "
            "same npusim, and the same files, everywhere"
        )
    with _ONE_AT_A_TIME:
        start_threads()
        numba.set_num_threads(min(get_worker().state.nthreads, numba.config.NUMBA_NUM_THREADS))
        return index, chunk_bytes(campaign_of(space), start, stop)
