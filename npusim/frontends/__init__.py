"""Graphs from OpenVINO IR, ONNX and PyTorch modules, and graphs written as OpenVINO models."""
