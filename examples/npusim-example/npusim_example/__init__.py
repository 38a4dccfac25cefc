"""A technique, a workload family and a mapping search for npusim; see `pyproject.toml` for how npusim finds them."""
