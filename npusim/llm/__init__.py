"""Language models that run: Llama in PyTorch, converted with OpenVINO part by part, generating tokens.

Only this package and `npusim.accuracy` need PyTorch; what a model costs is estimated without it.
"""
