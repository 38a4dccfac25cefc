"""The real models on the real data: trained with PyTorch, exported with OpenVINO.

Nothing else in npusim needs PyTorch.
"""

from importlib.util import find_spec

from npusim.errors import FileError

for _library in ("torch", "torch_geometric"):
    if find_spec(_library) is None:
        raise FileError(
            _library,
            "is not installed, and models are trained with it",
            'install it: pip install "npusim[gnn]"',
        )
