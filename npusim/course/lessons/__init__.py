"""Lessons, a module each; the first line of its docstring is its number and title."""
