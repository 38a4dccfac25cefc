"""A technique, a workload family and a mapping search for npusim, which `pyproject.toml` announces."""
