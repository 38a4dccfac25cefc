"""The threads of compiled loops over all cores."""

from __future__ import annotations

import os
from functools import cache

_POLICY = "OMP_WAIT_POLICY"


@cache
def start_threads() -> None:
    """Start the threads, once, so that they sleep where they have nothing to do.

    OpenMP's would wait busily for the next loop: of a search, thousands of short ones, that took half the
    processor time. It reads the policy when it is loaded; other users of OpenMP keep theirs.
    """
    import numba

    is_set = _POLICY in os.environ
    os.environ.setdefault(_POLICY, "PASSIVE")
    try:
        numba.get_num_threads()  # starts them
    finally:
        if not is_set:
            del os.environ[_POLICY]


def thread_count() -> int:
    """Return how many threads there are."""
    import numba

    start_threads()
    return int(numba.get_num_threads())
