"""The real models on the real data: trained with PyTorch, exported with OpenVINO, so that npusim's graphs can
be checked.
"""
