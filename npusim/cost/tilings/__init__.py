"""Mapping candidates of an operator: which tilings can be the fastest, and the search for them."""
