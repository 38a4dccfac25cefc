from pathlib import Path

import onnx

WHAT = "estimate of a network of others (the files without weights that onnx brings)"
WANTED = "densenet121 4 s and 0.3 GB, resnet-50 1.5 s"
_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
COMMANDS = {
    name: ["-m", "npusim", "estimate", str(_FOLDER / f"light_{name}.onnx")]
    for name in ("densenet121", "resnet50")
}
WENT = "reading the file 0.3 s, onnx imported 0.2 s, the estimate itself 0.14 and 0.04 s"
