"""Many design points at once: evaluation, reuse between points, lower bounds, totals."""
