"""Feature decomposition: aggregation in chunks of features, its technique, memory model, suite and lesson."""
