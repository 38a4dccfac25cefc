"""Real models on real data, trained with PyTorch, exported with OpenVINO: accuracy of techniques.

Nothing else in npusim needs PyTorch; documents are read and shown without it.
"""
