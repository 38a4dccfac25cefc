"""Llama in PyTorch, converted with OpenVINO part by part.

Only conversion and execution need PyTorch; a model is estimated without it.
"""
