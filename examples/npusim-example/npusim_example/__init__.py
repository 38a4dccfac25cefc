"""A technique, a workload family, a mapping search, an engine and a cost equation for npusim."""
