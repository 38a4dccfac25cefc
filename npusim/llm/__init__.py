"""Llama in PyTorch, converted with OpenVINO part by part; `npusim.measure.generating` runs what is converted.

This package, `npusim.accuracy` and `npusim.magnas` need PyTorch; what a model costs is estimated without it.
"""
