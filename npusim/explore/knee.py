"""The knee of a front: where giving up a little of one thing stops buying much of another.

Like the price at which the next better seat costs far more than it is better: on each objective, scaled to
the range it has on the front, the knee is the point nearest to having the best of everything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["knee"]


def knee(objectives: Any) -> int:
    """Return the position of the knee.

    Parameters
    ----------
    objectives : array of float, shape (objectives, points)
        The front; less is better. Where all are positive, ratios count instead of differences.
    """
    values = np.log(objectives) if np.all(objectives > 0.0) else np.asarray(objectives, float)
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    return int(np.argmin(np.sum(scaled**2, axis=0)))
