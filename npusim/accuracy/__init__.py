"""Real models on real data, trained with PyTorch, exported with OpenVINO: accuracy of techniques.

`npusim.accuracy(...)` judges shipped models and modules of one's own. Nothing else in npusim needs PyTorch;
documents are read and shown without it.
"""

from npusim.lazy import make_callable

make_callable(__name__, "npusim.api.trusting", "accuracy")
