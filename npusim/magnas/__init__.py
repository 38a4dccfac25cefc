"""Vision GNNs in PyTorch, and the search for their architectures and mappings (MaGNAS)."""
