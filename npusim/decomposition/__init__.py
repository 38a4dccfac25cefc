"""Feature decomposition: aggregation in chunks of features; technique, suite and lesson."""
