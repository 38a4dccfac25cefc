"""Lessons, a marimo notebook each; the first line of its docstring is its number and title."""
