"""Sweeping a space: chunk after chunk to disk, to be stopped and resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from npusim.cost import TOTAL_DTYPE
from npusim.documents import Document
from npusim.errors import ConfigError, NpusimError
from npusim.explore.campaign import Campaign, campaign_of
from npusim.explore.intervals import MOST_POINTS, has_calibration, with_intervals
from npusim.explore.kept import best_of, keep
from npusim.explore.query import points_table
from npusim.explore.spaces import Space, load_space, parse_keep
from npusim.explore.store import (
    MANIFEST,
    POINT,
    Manifest,
    Store,
    manifest_of,
    numbers_in,
    read_manifest,
    refuse_other,
    table_of,
    to_bytes,
    write_whole,
)

CHUNK = {"all": 1 << 18, "pareto": 1 << 19, "top": 1 << 19}
"""Points of a chunk by what is kept: enough for all cores to have work, few enough for memory."""

_MOST_POINTS, _MOST_CHUNKS = 10**10, 10**6
"""Points of a sweep, days of work, and its files."""

Progress = Callable[[int, int], None]
"""Called after each chunk with the points that are done, those of earlier runs included, and all points."""

Runner = Callable[[Space, Iterable[tuple[int, int, int]]], Iterator[tuple[int, bytes]]]
"""Evaluates chunks (number, start, stop) and yields (number, content of its file) in any order."""


class Interrupted(NpusimError):
    """A sweep that was asked to stop; its finished chunks are on disk."""

    exit_status = 130


class SweepResult(Document):
    """What a sweep did."""

    schema_: Literal["npusim.sweep/1"] = Field("npusim.sweep/1", alias="schema")
    """Version of this document."""
    points: int
    """Points of the space."""
    kept: int
    """Points that are written."""
    recomputed: int = 0
    """Chunks that were there, but not as they had been written, and were computed anew."""
    seconds: float
    """Time of this run, in s."""
    directory: str
    """Where the results are."""

    @classmethod
    def tables(cls) -> tuple[str, ...]:
        """Return the names of the tables: `kept`, the points that are written, stands on disk."""
        return ("kept",)

    def records(self, table: str | None = None) -> list[dict[str, Any]]:
        """Return the points that are written, with axes and metrics as columns."""
        return points_table(self.directory).to_pylist() if table in (None, "kept") else super().records(table)


def sweep(
    space: str | Path | Space | Mapping[str, Any],
    directory: str | Path,
    *,
    keep: str | None = None,
    resume: bool = False,
    chunk: int | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    intervals: bool | None = None,
) -> SweepResult:
    """Evaluate all points of a design space and write those worth keeping as Parquet.

    Parameters
    ----------
    space : str, Path, mapping or Space
        A shipped name, a YAML file, or the space itself.
    directory : str or Path
        Where results go; new or empty unless `resume`.
    keep : str, optional
        `all`, `pareto` or `top:N`; default: what the space says.
    resume : bool
        Go on with what an earlier run left; the end has the same bytes as an undisturbed run.
    chunk : int, optional
        Points of a chunk.
    runner : callable, optional
        Who evaluates chunks; default: this process, on all cores.
    progress : callable, optional
        Told after each chunk.
    stop : callable, optional
        Asked after each chunk whether to stop.
    intervals : bool, optional
        Whether kept points get the 90 % interval of their latency, as columns `latency_s_low` and
        `latency_s_high`, where at most 1000 are kept in a file of their own; None: where the SoC was fitted.

    Raises
    ------
    NpusimError
        Where the space is wrong, or the directory holds results of something else.
    FileError
        Where the disk is full; what is written stays valid.
    Interrupted
        Where `stop` said so.

    Examples
    --------
    >>> import npusim, tempfile
    >>> space = {
    ...     "schema": "npusim.space/1",
    ...     "workload": "gcn-cora",
    ...     "techniques": "stagr",
    ...     "axes": {"npu.tiles": {"from": 1, "to": 4, "step": 1}, "npu.dsp.per_tile": {"values": [1, 2]}},
    ...     "keep": "all",
    ... }
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     npusim.sweep(space, directory).kept
    8
    """
    began = time.perf_counter()
    loaded = load_space(space)
    if keep is not None:
        loaded = Space.model_validate({**loaded.model_dump(by_alias=True), "keep": keep})
    with _opened(Path(directory), loaded, resume, chunk) as (store, manifest):
        damaged = _evaluate(loaded, store, manifest, runner or _local, progress, stop)
        wanted = has_calibration(loaded) if intervals is None else intervals
        kept, points = _merge(store, manifest, loaded, wanted), manifest.points
    done = {"points": points, "kept": kept, "recomputed": damaged, "directory": str(directory)}
    return SweepResult(**done, seconds=time.perf_counter() - began)


def _evaluate(
    space: Space,
    store: Store,
    manifest: Manifest,
    runner: Runner,
    progress: Progress | None,
    stop: Callable[[], bool] | None,
) -> int:
    """Evaluate and write the chunks that are missing, until `stop` says so; return how many were damaged."""
    ranges = [(index, *_range(manifest, index)) for index in range(manifest.chunks)]
    done = store.done(manifest.chunks)
    damaged = store.damaged(done)
    finished = sum(end - start for index, start, end in ranges if done[index])
    for index, content in runner(space, (chunk for chunk in ranges if not done[chunk[0]])):
        store.write_chunk(index, content)
        _, start, end = ranges[index]
        finished += end - start
        if progress is not None:
            progress(finished, manifest.points)
        if stop is not None and finished < manifest.points and stop():
            raise Interrupted(
                f"stopped after {finished:,} of {manifest.points:,} points; "
                "the same command with --resume goes on"
            )
    return damaged


def chunk_bytes(campaign: Campaign, start: int, stop: int, room: Any = None) -> bytes:
    """Return the file of a chunk: the points `start` to `stop` that are kept.

    Parameters
    ----------
    room : array of TOTAL_DTYPE, optional
        Scratch for at least so many points.
    """
    totals = campaign.totals(start, stop, room, parse_keep(campaign.space.keep)[0] == "pareto")
    rows, admitted = keep(campaign.space, totals)
    numbers = start + rows
    if campaign.points.is_full:
        coordinates = campaign.points.coordinates(numbers)
    else:
        coordinates = campaign.points.coordinates(np.arange(start, stop))[rows]
    names = campaign.space.metrics
    return to_bytes(table_of(campaign.axes, numbers, coordinates, totals[rows], admitted, names))


def _local(space: Space, chunks: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, bytes]]:
    campaign, room = campaign_of(space), np.empty(0, TOTAL_DTYPE)
    for index, start, stop in chunks:
        room = room if len(room) >= stop - start else np.empty(stop - start, TOTAL_DTYPE)
        yield index, chunk_bytes(campaign, start, stop, room)


def _range(manifest: Manifest, index: int) -> tuple[int, int]:
    return index * manifest.chunk, min((index + 1) * manifest.chunk, manifest.points)


@contextmanager
def _opened(
    directory: Path, space: Space, resume: bool, chunk: int | None
) -> Iterator[tuple[Store, Manifest]]:
    """Prepare the directory of results, or check that it is this sweep's; no other may write to it."""
    campaign = campaign_of(space)
    size = chunk or CHUNK[parse_keep(space.keep)[0]]
    manifest = manifest_of(space, campaign.axes, campaign.total, size)
    _refuse_too_many(manifest)
    store = Store(directory)
    store.refuse_impossible()
    if resume and store.is_begun():
        with store.locked():
            found = read_manifest(directory)
            refuse_other(found, manifest, directory)
            if chunk is not None and chunk != found.chunk:
                allowed = f"{found.chunk}, as the sweep began; leave it out"
                raise ConfigError(str(chunk), file="--chunk", allowed=allowed)
            store.clear_drafts()
            yield store, found
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


def _refuse_too_many(manifest: Manifest) -> None:
    if manifest.points > _MOST_POINTS:
        raise ConfigError(
            f"{manifest.points:.3g} points", key="axes", allowed=f"at most {_MOST_POINTS:.0e}; search more"
        )
    if manifest.chunks > _MOST_CHUNKS:
        raise ConfigError(
            f"{manifest.chunks:,} chunks", file="--chunk", allowed=f"at most {_MOST_CHUNKS:,}: larger ones"
        )


def _merge(store: Store, manifest: Manifest, space: Space, intervals: bool) -> int:
    """Write the kept points of all chunks as one file; return how many.

    Only where chunks kept more than the whole needs, with intervals of the latencies where they are wanted
    and few.
    """
    import pyarrow as pa

    paths = [store.directory / MANIFEST]
    if parse_keep(space.keep)[0] == "all":
        store.finish(*paths)
        return store.admitted(manifest.chunks)
    names = list(dict.fromkeys([POINT, *space.objectives]))
    tables = list(store.tables(manifest.chunks, names))
    scores = {name: np.concatenate([numbers_in(t, name) for t in tables]) for name in names}
    best = best_of(space, scores)
    numbers = scores[POINT][best]
    rows = [t.filter(pa.array(np.isin(numbers_in(t, POINT), numbers))) for t in store.tables(manifest.chunks)]
    merged = pa.concat_tables(rows).replace_schema_metadata(None)
    if intervals and merged.num_rows <= MOST_POINTS:
        merged = with_intervals(merged, space)
    write_whole(store.result, to_bytes(merged))
    store.finish(*paths, store.result)
    return int(merged.num_rows)
