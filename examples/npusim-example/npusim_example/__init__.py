"""A technique and a workload family for npusim; see `pyproject.toml` for how npusim finds them."""
