"""GCNP: channel pruning of GNNs, its suite, command, page and lesson."""
