"""Functions that numba compiles once per machine, their records, and how they are kept on disk."""
