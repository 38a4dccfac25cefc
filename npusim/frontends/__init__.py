"""Graphs from files and from live models: OpenVINO IR, ONNX and PyTorch Geometric modules.

An interpreter's booth: whatever language comes in, the same operator graph goes out.
"""
