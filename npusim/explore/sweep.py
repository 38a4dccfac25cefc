"""Sweeping a space: chunk after chunk to disk, to be stopped and resumed."""

from __future__ import annotations

import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from npusim.cost import TOTAL_DTYPE
from npusim.errors import ConfigError, NpusimError, shown
from npusim.explore.campaign import Campaign, base_soc, campaign_of
from npusim.explore.fronts import best_of, keep_points, with_intervals
from npusim.explore.query import KeptPoints
from npusim.explore.spaces import Space, load_space, parse_keep
from npusim.explore.store import (
    MANIFEST,
    Manifest,
    Store,
    manifest_of,
    numbers_in,
    read_manifest,
    refuse_other,
    table_of,
    write_whole,
)
from npusim.files import parquet_bytes

CHUNK = {"all": 1 << 18, "pareto": 1 << 19, "top": 1 << 19}
"""Most points of a chunk by what is kept: enough for all cores to have work, few enough for memory."""
_CHUNKS, _SMALLEST_CHUNK = 16, 1 << 16
"""Chunks of a sweep, at least, so that several workers end together; fewer where they had fewer points."""
_MOST_POINTS, _MOST_CHUNKS = 10**10, 10**6
"""Points of a sweep, days of work, and its files."""
_MOST_INTERVALS = 1000
"""More kept points than these get no intervals: each takes some 128 evaluations."""
_ANSWER_S = 5.0
"""Time for a scheduler to answer."""
_ADDRESS = re.compile(r"(?:tcp|tls)://(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})/?")

Progress = Callable[[int, int], None]
"""Called with the points that are done, also by earlier runs, and all points."""
Runner = Callable[[Space, Iterable[tuple[int, int, int]]], Iterator[tuple[int, bytes]]]
"""Evaluates chunks (number, start, stop) and yields (number, content of its file) in any order."""


class Interrupted(NpusimError):
    """A sweep that was asked to stop; its finished chunks are on disk."""

    exit_status = 130


class SweepResult(KeptPoints):
    """Result of a sweep."""

    schema_: Literal["npusim.sweep/1"] = Field("npusim.sweep/1", alias="schema")
    """Version of this document."""
    points: int
    """Points of the space."""
    kept: int
    """Points that are written."""
    recomputed: int = 0
    """Chunks that were there, but not as they had been written, and were computed again."""


def sweep(
    space: str | Path | Space | Mapping[str, Any],
    directory: str | Path | None = None,
    *,
    keep: str | None = None,
    resume: bool = False,
    scheduler: str | None = None,
    chunk: int | None = None,
    intervals: bool | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> SweepResult:
    """Evaluate every point of a design space; results are Parquet files, one per chunk.

    Ctrl-C finishes the chunk; `--resume` goes on, also after a crash. Then: `npusim pareto DIR`,
    `npusim query DIR "SELECT ..."`.

    Parameters
    ----------
    space : str, Path, Space or mapping
        A design space: a shipped name such as gcn-cora, or a YAML file (`npusim schema space`).
    directory : str or Path, optional
        New directory for the results.
    keep : str, optional
        Points to write: all, those that are not dominated, or the N best in the first metric that the space
        minimises. None: as the space says
    resume : bool
        Continue the unfinished sweep in the directory.
    scheduler : str, optional
        Evaluate on the workers of a Dask scheduler.
    chunk : int, optional
        Points of a chunk, the unit of work on disk and of resuming.
    intervals : bool, optional
        Give kept points the 90 % intervals of their metrics, and points of a front the share of drawn
        machines on which they stay on it, where at most 1000 are kept. None: where the SoC was fitted to
        measurements
    progress : callable, optional
        Called after each chunk with the points done and the points in all.
    stop : callable, optional
        Called after each chunk; True stops the sweep.

    Returns
    -------
    SweepResult
        Its points by `records()` and `to_frame()`; `npusim.pareto` and `npusim.query` take it too. Without
        `directory` they live as long as the result.

    Raises
    ------
    NpusimError
        Where the space is wrong, or the directory holds results of something else.
    FileError
        Where the disk is full; what is written stays valid.
    Interrupted
        Where `stop` returned True.

    Notes
    -----
    A mapping needs no `schema`, and the values of an axis may stand as a plain list. Without a directory a
    mapping that does not say what to keep keeps all points.

    Examples
    --------
    >>> import npusim
    >>> swept = npusim.sweep({"workload": "gcn-cora", "axes": {"npu.tiles": [1, 2, 4]}})
    >>> [record["npu.tiles"] for record in swept.records()]
    [1, 2, 4]

    Command lines
    -------------
        npusim sweep gcn-cora -o results
        npusim sweep my_space.yaml -o results --keep top:100
        npusim sweep my_space.yaml -o results --resume
        npusim sweep my_space.yaml -o results --scheduler tcp://192.168.0.10:8786
    """
    began = time.perf_counter()
    if directory is None and isinstance(space, Mapping) and keep is None and "keep" not in space:
        keep = "all"
    design = load_space(space)
    if keep is not None:
        try:
            parse_keep(keep)
        except ValueError as error:
            raise NpusimError(f"--keep: {error}") from None
        design = Space.model_validate({**design.model_dump(by_alias=True), "keep": keep})
    runner = _runner(scheduler)

    def tick(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total)
        if stop is not None and done < total and stop():
            raise Interrupted(
                f"stopped after {done:,} of {total:,} points; the same command with --resume goes on"
            )

    with ExitStack() as until_end:
        if directory is None:  # whatever ends this, the folder goes; then it lives as long as the result
            temporary = TemporaryDirectory(prefix="npusim-sweep-", ignore_cleanup_errors=True)
            directory = Path(until_end.enter_context(temporary), "points")
        with _opened(Path(directory), design, resume, chunk) as (store, manifest):
            done, size = store.done(manifest.chunks), manifest.chunk
            damaged = store.damaged(done)
            spans = [(i, i * size, min((i + 1) * size, manifest.points)) for i in range(manifest.chunks)]
            finished = sum(end - start for index, start, end in spans if done[index])
            for index, content in runner(design, (span for span in spans if not done[span[0]])):
                store.write_chunk(index, content)
                finished += spans[index][2] - spans[index][1]
                tick(finished, manifest.points)
            wanted = base_soc(design).calibration is not None if intervals is None else intervals
            kept = _merge(store, manifest, design, tick if wanted else None)
        counts = {"points": manifest.points, "kept": kept, "recomputed": damaged}
        result = SweepResult(**counts, directory=str(directory), seconds=time.perf_counter() - began)
        weakref.finalize(result, until_end.pop_all().close)
    return result


def _runner(scheduler: str | None) -> Runner:
    """Return the evaluator of chunks: workers of a Dask scheduler, or this process on all cores."""
    if scheduler is None:
        return _local
    address = _ADDRESS.fullmatch(scheduler)
    if not address or not 0 < int(address[2]) < 1 << 16:
        allowed = "tcp://HOST:PORT, such as tcp://192.168.0.10:8786"
        raise ConfigError(shown(scheduler), file="--scheduler", allowed=allowed)
    from npusim.explore.cluster import on_cluster

    try:
        socket.create_connection((address[1].strip("[]"), int(address[2])), timeout=_ANSWER_S).close()
    except (OSError, UnicodeError) as error:
        problem = f"no Dask scheduler answers at {shown(scheduler)} ({error})"
        raise ConfigError(problem, file="--scheduler", allowed="one that runs: dask scheduler") from None
    return on_cluster(scheduler)


def chunk_bytes(campaign: Campaign, start: int, stop: int, scratch: Any = None) -> bytes:
    """Return the content of a chunk's Parquet file: the kept points among points `start` to `stop`.

    Parameters
    ----------
    scratch : array of TOTAL_DTYPE, optional
        Memory to reuse, for at least `stop - start` points.
    """
    totals = campaign.totals(start, stop, scratch, parse_keep(campaign.space.keep)[0] == "pareto")
    rows = keep_points(campaign.space, totals)
    numbers = start + rows
    if campaign.points.is_full:
        coordinates = campaign.points.coordinates(numbers)
    else:
        coordinates = campaign.points.coordinates(np.arange(start, stop))[rows]
    names = campaign.space.metrics
    return parquet_bytes(table_of(campaign.axes, numbers, coordinates, totals[rows], names))


def _local(space: Space, chunks: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, bytes]]:
    campaign, scratch = campaign_of(space), np.empty(0, TOTAL_DTYPE)
    for index, start, stop in chunks:
        scratch = scratch if len(scratch) >= stop - start else np.empty(stop - start, TOTAL_DTYPE)
        yield index, chunk_bytes(campaign, start, stop, scratch)


def chunk_points(space: Space, total: int) -> int:
    """Return how many points of a space make a chunk where nothing else is asked for."""
    return min(CHUNK[parse_keep(space.keep)[0]], max(_SMALLEST_CHUNK, -(-total // _CHUNKS)))


@contextmanager
def _opened(
    directory: Path, space: Space, resume: bool, chunk: int | None
) -> Iterator[tuple[Store, Manifest]]:
    """Context with the results directory, new or to be resumed, locked for this sweep."""
    campaign = campaign_of(space)
    size = chunk or chunk_points(space, campaign.total)
    manifest = manifest_of(space, campaign.axes, campaign.total, size)
    if manifest.points > _MOST_POINTS:
        allowed = f"at most {_MOST_POINTS:.0e}; search more"
        raise ConfigError(f"{manifest.points:.3g} points", key="axes", allowed=allowed)
    if manifest.chunks > _MOST_CHUNKS:
        allowed = f"at most {_MOST_CHUNKS:,}: larger ones"
        raise ConfigError(f"{manifest.chunks:,} chunks", file="--chunk", allowed=allowed)
    store = Store(directory)
    store.refuse_impossible()
    if resume and store.is_begun():
        with store.locked():
            stored = read_manifest(directory)
            refuse_other(stored, manifest, directory)
            if chunk is not None and chunk != stored.chunk:
                allowed = f"{stored.chunk}, as the sweep began; leave it out"
                raise ConfigError(str(chunk), file="--chunk", allowed=allowed)
            store.clear_drafts()
            yield store, stored
        return
    campaign.refuse_wrong_values()
    campaign.refuse_idle_axes()
    store.make()
    with store.locked():
        store.refuse_full()
        store.clear_drafts()
        manifest.write(directory / MANIFEST)
        store.finish(directory / MANIFEST)
        yield store, manifest


def _merge(store: Store, manifest: Manifest, space: Space, tick: Progress | None) -> int:
    """Write the kept points of all chunks as one file, unless all points are kept; return their number.

    If the points are few, they get the intervals of their metrics; `tick` is called after each, None: none.
    """
    paths = [store.directory / MANIFEST]
    if parse_keep(space.keep)[0] == "all":
        store.finish(*paths)
        return store.rows(manifest.chunks)
    points = pa.concat_tables(store.tables(manifest.chunks))
    scores = {name: numbers_in(points, name) for name in space.objectives}
    merged = points.take(pa.array(best_of(space, scores)))
    if tick is not None and merged.num_rows <= _MOST_INTERVALS:
        merged = with_intervals(merged, space, tick)
    write_whole(store.result, parquet_bytes(merged))
    store.finish(*paths, store.result)
    return int(merged.num_rows)
