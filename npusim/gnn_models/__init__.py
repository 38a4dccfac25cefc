"""Accuracy of techniques on real data: models trained with PyTorch and exported with OpenVINO.

`npusim.accuracy(...)` judges shipped models and a user's own modules. Documents are read and shown without
PyTorch.
"""
