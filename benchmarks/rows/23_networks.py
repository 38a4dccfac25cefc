from pathlib import Path

import onnx

WHAT = "estimate of a network of others (the files without weights that onnx brings)"
WANTED = "densenet121 4 s and 0.3 GB, resnet-50 1.5 s"
_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
COMMANDS = {
    name: ["-m", "npusim", "estimate", str(_FOLDER / f"light_{name}.onnx")]
    for name in ("densenet121", "resnet50")
}
