"""Channels of each layer and branch of a network by Eq. 1 of GCNP, as built and as pruned.

Eq. 1: h(i) = act(concat over k = K' ... K of A^k h(i-1) W_k). A branch is a power k of the normalised
adjacency with its weights; a dense layer is one of order 0. Pruning removes input channels of a layer in all
its branches, and with them outputs of the layer before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NoReturn

from pydantic import Field

from npusim.config import Section
from npusim.errors import ConfigError

Scheme = Literal["full", "batched"]
Channels = Annotated[int, Field(ge=1, le=1_000_000)]


class BranchChannels(Section):
    """A branch of a layer: A^order h W."""

    order: Annotated[int, Field(ge=0, le=64)]
    """Power of the normalised adjacency; 0: the node's own features."""
    inputs: Channels
    """Rows of the branch's weight: input channels that it reads."""
    outputs: Channels
    """Columns of the branch's weight: channels that it puts out."""


class Pruning(Section):
    """Channel pruning by budget (GCNP, section 3.3): how many channels each layer keeps."""

    budget: Annotated[float, Field(gt=1.0, le=1e6)]
    """How many times fewer channels: 4 keeps a quarter of them."""
    scheme: Scheme = "full"
    """`full`: input channels of every layer but the first, whose attributes stay; `batched`: those of layer 2
    in all branches, and of layer 1 in the neighbours' branch."""
    multiple: Annotated[int, Field(ge=1, le=4096)] = 1
    """Channels that a branch puts out are kept in multiples of this; 16 is the width of the MAC grid."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: branches side by side or averaged."""

    branches: tuple[BranchChannels, ...]
    inputs: int
    """Channels that the layer before hands on."""
    average: bool = False
    """Whether branches are averaged; else they lie side by side."""

    @property
    def outputs(self) -> int:
        """Channels that it hands on."""
        widths = [branch.outputs for branch in self.branches]
        return widths[0] if self.average else sum(widths)

    @property
    def parameters(self) -> int:
        """Elements of its weights."""
        return sum(branch.inputs * branch.outputs for branch in self.branches)


def layers_of(
    features: int,
    classes: int,
    hidden: int,
    layers: int,
    orders: Sequence[int],
    *,
    classifier: bool = True,
    jumping: bool = False,
) -> tuple[Layer, ...]:
    """Return the unpruned layers of a network by Eq. 1.

    Parameters
    ----------
    orders : sequence of int
        Powers of the adjacency, a branch each, `hidden` channels wide.
    classifier : bool
        Whether a dense layer gives the classes; otherwise the last layer does.
    jumping : bool
        Whether the classifier reads the results of all layers side by side (jumping knowledge).
    """
    found: list[Layer] = []
    width = features
    for i in range(layers):
        last = i + 1 == layers and not classifier
        outputs = classes if last else hidden
        branches = tuple(BranchChannels(order=k, inputs=width, outputs=outputs) for k in orders)
        found.append(Layer(branches, width, average=last and len(orders) > 1))
        width = found[-1].outputs
    if classifier:
        width = sum(layer.outputs for layer in found) if jumping else width
        found.append(Layer((BranchChannels(order=0, inputs=width, outputs=classes),), width))
    return tuple(found)


def attention_layers(widths: Sequence[tuple[int, int]], heads: int = 1) -> tuple[Layer, ...]:
    """Return (inputs, outputs) of each layer as layers with a branch a head; the last layer has one head."""
    found = []
    for i, (inputs, outputs) in enumerate(widths):
        count = heads if i + 1 < len(widths) else 1
        branch = BranchChannels(order=1, inputs=inputs, outputs=outputs // count)
        found.append(Layer((branch,) * count, inputs))
    return tuple(found)


def pruned(layers: Sequence[Layer], pruning: Pruning, jumping: bool = False) -> tuple[Layer, ...]:
    """Return the layers with the channels that a budget leaves, spread evenly over the branches.

    In scheme `batched` the neighbours' branch of layer 1 keeps at least as many attributes as it puts out:
    fewer would bound the rank of its result, and save less than they cost.
    """
    check_budget(layers, pruning)
    last = len(layers) - 1
    found = list(layers)
    for i in range(last if pruning.scheme == "full" else 1):
        found[i] = _with_outputs(found[i], pruning)
    for i in range(1, last + 1):
        before = found[:i] if jumping and i == last else found[i - 1 : i]
        found[i] = _with_inputs(found[i], sum(layer.outputs for layer in before))
    if pruning.scheme == "batched":
        found[0] = _fewer_attributes(found[0], pruning)
    return tuple(found)


def given(layers: Sequence[Layer], channels: Sequence[Sequence[BranchChannels]]) -> tuple[Layer, ...]:
    """Return the layers with the channels that a pruning wrote down, a `ConfigError` where they misfit."""
    key = "workload.channels"
    if len(channels) != len(layers):
        raise ConfigError(f"{len(channels)} layers", key=key, allowed=f"{len(layers)}, as the network has")
    found: list[Layer] = []
    for i, (layer, branches) in enumerate(zip(layers, channels, strict=True)):
        orders = [branch.order for branch in layer.branches]
        if [branch.order for branch in branches] != orders:
            raise ConfigError(f"layer {i + 1}", key=key, allowed=f"branches of orders {orders}")
        inputs = layer.inputs if i == 0 else max(branch.inputs for branch in branches)
        handed = inputs if i == 0 else _handed(found, layers, i)
        if any(branch.inputs > handed for branch in branches):
            allowed = f"at most the {handed} channels that reach it"
            raise ConfigError(f"layer {i + 1} with {inputs} inputs", key=key, allowed=allowed)
        found.append(replace(layer, branches=tuple(branches), inputs=handed))
    return tuple(found)


def _handed(found: Sequence[Layer], layers: Sequence[Layer], i: int) -> int:
    """Return the channels that reach layer `i`, of the layer before or of all of them side by side."""
    jumps = layers[i].inputs != layers[i - 1].outputs
    return sum(layer.outputs for layer in (found if jumps else found[-1:]))


def check_budget(layers: Sequence[Layer], pruning: Pruning) -> None:
    """Refuse a budget that leaves a branch no channel, or a scheme that the network has no branch for."""
    if len(layers) < 2:
        _refuse("budget", f"{pruning.budget:g}", "no pruning of a network of one layer: attributes are kept")
    if pruning.scheme == "batched" and not any(branch.order for branch in layers[0].branches):
        _refuse("scheme", pruning.scheme, "full: layer 1 has no neighbours' branch")
    if pruning.scheme == "batched" and len(layers) < 3:
        _refuse("scheme", pruning.scheme, "full: layers 1 and 2 of three or more, the classifier included")
    most = min(branch.outputs for layer in layers[:-1] for branch in layer.branches)
    if pruning.budget > most:
        allowed = f"at most {most}: a branch has {most} channels, and needs one"
        _refuse("budget", f"{pruning.budget:g}", allowed)


def _refuse(key: str, found: str, allowed: str) -> NoReturn:
    raise ConfigError(f"`{found}`", key=f"workload.pruning.{key}", allowed=allowed)


def kept_channels(channels: int, pruning: Pruning) -> int:
    """Return how many of a branch's channels a budget leaves, in multiples where they are asked for."""
    kept = max(1, round(channels / pruning.budget))
    return min(channels, -(-kept // pruning.multiple) * pruning.multiple)


def _with_outputs(layer: Layer, pruning: Pruning) -> Layer:
    branches = tuple(
        branch.model_copy(update={"outputs": kept_channels(branch.outputs, pruning)})
        for branch in layer.branches
    )
    return replace(layer, branches=branches)


def _with_inputs(layer: Layer, inputs: int) -> Layer:
    branches = tuple(branch.model_copy(update={"inputs": inputs}) for branch in layer.branches)
    return replace(layer, branches=branches, inputs=inputs)


def _fewer_attributes(layer: Layer, pruning: Pruning) -> Layer:
    branches = tuple(
        branch.model_copy(
            update={
                "inputs": min(
                    layer.inputs, max(kept_channels(layer.inputs, pruning), branch.outputs)
                )
            }
        )
        if branch.order
        else branch
        for branch in layer.branches
    )  # fmt: skip
    return replace(layer, branches=branches)
