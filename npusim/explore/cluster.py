"""Evaluates chunks of a sweep, or scores architectures, on a Dask cluster; this process writes them.

Workers need npusim and no common disk; chunks come back as the bytes of their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

from distributed import Client, as_completed, get_worker

from npusim.cost import start_threads
from npusim.errors import NpusimError
from npusim.explore.campaign import campaign_of
from npusim.explore.scoring_pool import Score, in_portions
from npusim.explore.spaces import Space, networks_of, space_of
from npusim.explore.store import changed_inputs, inputs_of
from npusim.explore.sweep import Runner, chunk_bytes
from npusim.scenario import Network

Networks = tuple[Network, ...]

_RETRIES = 10
"""Times that a chunk is tried again when its worker is lost."""
_CONNECT_S = 20
_ONE_AT_A_TIME = Lock()
"""A chunk uses all threads of its worker, and not every threading layer of numba takes two callers."""
_AHEAD = 2
"""Chunks in flight for each worker: one at work, one waiting."""


def on_cluster(address: str) -> Runner:
    """Return a runner that evaluates chunks on the workers of a Dask scheduler.

    Raises
    ------
    NpusimError
        Where nobody answers there.
    """

    def run(space: Space, chunks: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, bytes]]:
        text = space.model_dump_json(by_alias=True)
        with _client(address) as client:
            yield from _collect(client, text, networks_of(space), iter(chunks))

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
    """Lend a scorer of architectures that works on the workers of a Dask scheduler.

    Parameters
    ----------
    score : callable
        Can be pickled; it is sent to every worker once.

    Raises
    ------
    NpusimError
        Where nobody answers there.
    """
    with _client(address) as client:
        held = client.scatter(score, broadcast=True, hash=False)

        def spread(texts: Sequence[str]) -> list[float]:
            return in_portions(
                texts,
                lambda portions: iter(
                    client.gather([client.submit(_scored, held, one, retries=_RETRIES) for one in portions])
                ),
            )

        yield spread


def _scored(score: Score, texts: list[str]) -> list[float]:
    with _ONE_AT_A_TIME:  # a scorer keeps what it computed last
        return score(texts)


def _collect(
    client: Any, text: str, networks: Networks, chunks: Iterator[tuple[int, int, int]]
) -> Iterator[tuple[int, bytes]]:
    """Keep the workers busy and yield chunks as they are finished."""
    mine = inputs_of(space_of(text, networks))

    def submit(count: int) -> list[Any]:
        todo = [chunk for _, chunk in zip(range(count), chunks, strict=False)]
        return [
            client.submit(_compute, text, networks, mine, *chunk, pure=False, retries=_RETRIES)
            for chunk in todo
        ]

    workers = max(1, len(client.scheduler_info()["workers"]))
    running = as_completed(submit(_AHEAD * workers), loop=client.loop)
    for future in running:
        yield future.result()
        future.release()
        for further in submit(1):
            running.add(further)


@lru_cache(maxsize=8)
def _inputs(text: str, networks: Networks) -> dict[str, str]:
    return inputs_of(space_of(text, networks))


def _compute(
    text: str, networks: Networks, wanted: dict[str, str], index: int, start: int, stop: int
) -> tuple[int, bytes]:
    """Evaluate one chunk on a worker, on as many cores as it has threads."""
    import numba

    changed = changed_inputs(_inputs(text, networks), wanted)
    if changed:
        raise NpusimError(
            f"the worker computes from something else than this process ({', '.join(changed)}); install the "
            "same npusim, and the same files, everywhere"
        )
    space = space_of(text, networks)
    with _ONE_AT_A_TIME:
        start_threads()
        numba.set_num_threads(min(get_worker().state.nthreads, numba.config.NUMBA_NUM_THREADS))
        return index, chunk_bytes(campaign_of(space), start, stop)
