"""Scores architectures on several cores: a process each, with a scorer of its own."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from typing import Any

from npusim.errors import NpusimError

Score = Callable[[Sequence[str]], list[float]]
"""Returns the accuracy of architectures, given as texts."""

_PORTION = 8
"""Architectures that a process scores at once: those that begin alike share work."""
_scorer: list[Any] = []


@contextmanager
def processes(cores: int, remedy: str, score: Score | None = None) -> Iterator[ProcessPoolExecutor]:
    """Context with processes that ignore Ctrl-C and keep a scorer; NpusimError where one is ended."""
    try:
        with ProcessPoolExecutor(cores, get_context("spawn"), _begin, (pickle.dumps(score),)) as pool:
            yield pool
    except BrokenProcessPool:
        problem = "a process was ended from outside, perhaps for want of memory"
        raise NpusimError(f"{problem}; {remedy}") from None


@contextmanager
def on_processes(score: Score, cores: int) -> Iterator[Score]:
    """Context with a scorer that runs on `cores` processes; on one core, `score` itself.

    Parameters
    ----------
    score : callable
        Picklable; the score of an architecture must not depend on earlier calls.
    """
    if cores < 2:
        yield score
        return
    with processes(cores, "go on with --resume, on fewer cores (--cores 1)", score) as pool:

        def run(portions: list[list[str]]) -> Iterator[list[float]]:
            with _interrupts_later():  # asking starts processes
                return pool.map(_scored, portions)

        yield lambda texts: in_portions(texts, run)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold back Ctrl-C while processes start: it would end one that does not ignore it yet."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # it lets Ctrl-C in again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_portions(texts: Sequence[str], run: Callable[[list[list[str]]], Iterator[list[float]]]) -> list[float]:
    """Return the scores of `texts`, in their order; `run` scores sorted portions of them."""
    order = sorted(range(len(texts)), key=lambda i: texts[i])
    portions = [order[first : first + _PORTION] for first in range(0, len(order), _PORTION)]
    scores = [0.0] * len(texts)
    answers = run([[texts[i] for i in portion] for portion in portions])
    for portion, portion_scores in zip(portions, answers, strict=True):
        for i, score in zip(portion, portion_scores, strict=True):
            scores[i] = score
    return scores


def _begin(content: bytes) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks, which ends these
    _scorer[:] = [pickle.loads(content)]


def _scored(texts: list[str]) -> list[float]:
    scores: list[float] = _scorer[0](texts)
    return scores
