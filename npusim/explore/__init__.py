"""Exploring: design spaces, sweeps, fronts, search and what matters most."""
