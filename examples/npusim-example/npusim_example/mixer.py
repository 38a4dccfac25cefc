"""MLP-Mixer as a workload family: layers that mix patches, then channels (Tolstikhin et al., 2021)."""

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from npusim.graph import Editor, Graph
from npusim.ops import DType, Role
from npusim.workloads import WorkloadKind, WorkloadSpec


class MixerSpec(WorkloadSpec):
    """A classifier of images without convolutions or attention."""

    kind: Literal["mixer"]
    model: Literal["mixer"] = "mixer"
    """The network."""
    precision: Literal["fp16", "bf16", "fp32"] = "fp16"
    """Format of every tensor."""
    patches: PositiveInt = 196
    """Patches of the image."""
    channels: PositiveInt = 512
    """Features of a patch."""
    layers: PositiveInt = 8
    """Number of layers."""
    token_hidden: PositiveInt = 256
    """Width inside the perceptron over patches."""
    channel_hidden: PositiveInt = 2048
    """Width inside the perceptron over channels."""


def _perceptron(editor: Editor, x: str, size: int, hidden: int, name: str, dtype: DType) -> str:
    first = editor.constant(f"{name}/w0", (size, hidden), dtype, role=Role.WEIGHT)
    second = editor.constant(f"{name}/w1", (hidden, size), dtype, role=Role.WEIGHT)
    x = editor.unary("Gelu", editor.matmul(x, first, f"{name}/up"), f"{name}/gelu")
    return editor.matmul(x, second, f"{name}/down")


def _turned(editor: Editor, x: str, name: str) -> str:
    tensor = editor.tensors[x]
    return editor.op("Transpose", (x,), tensor.shape[::-1], tensor.dtype, name, order=(1, 0))


def build(spec: MixerSpec, name: str, folder: Path) -> Graph:
    """Return the graph of a mixer for one image, patches already embedded."""
    editor, dtype = Editor(name), DType(spec.precision)
    x = editor.input("patches", (spec.patches, spec.channels), dtype)
    for i in range(spec.layers):
        editor.region = at = f"layer{i}"
        turned = _turned(editor, x, f"{at}/turn")
        mixed = _perceptron(editor, turned, spec.patches, spec.token_hidden, f"{at}/tokens", dtype)
        x = editor.eltwise("Add", x, _turned(editor, mixed, f"{at}/back"), f"{at}/add_tokens")
        mixed = _perceptron(editor, x, spec.channels, spec.channel_hidden, f"{at}/channels", dtype)
        x = editor.eltwise("Add", x, mixed, f"{at}/add_channels")
    editor.outputs = [x]
    return editor.finish()


MIXER = WorkloadKind("mixer", "MLP-Mixer", MixerSpec, build, Path(__file__).parent / "workloads")
