"""Real models on real data, trained with PyTorch and exported with OpenVINO: what techniques do to accuracy.

Nothing else in npusim needs PyTorch; documents are read and shown without it.
"""
