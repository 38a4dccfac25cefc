"""Llama in PyTorch, converted with OpenVINO part by part.

This package, `npusim.accuracy` and `npusim.magnas` need PyTorch; what a model costs is estimated without it.
"""
