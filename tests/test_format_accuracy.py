"""Rounding to number formats: torch's own types, a slow twin by enumeration, and accuracy on real data."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("nncf")

from npusim.frontends.pyg import convert  # noqa: E402
from npusim.gnn_models.judging import judge  # noqa: E402
from npusim.gnn_models.number_formats import answers_of, in_formats, rounded  # noqa: E402
from npusim.ops.formats import FORMATS  # noqa: E402

TYPES = {
    "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2,
    "fp16": torch.float16, "bf16": torch.bfloat16,
}  # fmt: skip


def values(count: int = 20_000) -> torch.Tensor:
    """Return numbers of all sizes, zeros, powers of two and their neighbours."""
    random = torch.Generator().manual_seed(0)
    spread = torch.exp2(torch.randint(-24, 14, (count,), generator=random).float())
    powers = torch.exp2(torch.arange(-24.0, 16.0))
    near = [powers, torch.nextafter(powers, torch.tensor(0.0)), -powers, torch.zeros(3)]
    return torch.cat([torch.randn(count, generator=random) * spread, *near])


@pytest.mark.parametrize("name", sorted(TYPES))
def test_floating_point_is_torchs_own(name: str) -> None:
    """Every bit is that of torch's conversion, saturated at the largest value."""
    form = FORMATS[name]
    assert form.floating is not None
    largest = form.floating[1]
    assert torch.finfo(TYPES[name]).max == largest
    expected = values().clamp(-largest, largest).to(TYPES[name]).float()
    assert torch.equal(rounded(values(), form), expected)


def representable(name: str) -> list[float]:
    """Return the numbers of an element without its scale, from its bits."""
    form = FORMATS[name]
    if form.floating is None:  # a sign and a fraction
        return [n / 2 ** (form.bits - 2) for n in range(-(2 ** (form.bits - 1)) + 1, 2 ** (form.bits - 1))]
    exponent_bits, largest = form.floating
    mantissa = form.bits - 1 - exponent_bits
    bias = 2 ** (exponent_bits - 1) - 1
    numbers = set()
    for e in range(2**exponent_bits):
        for m in range(2**mantissa):
            lead, power = (1, e - bias) if e else (0, 1 - bias)
            numbers |= {sign * (lead + m / 2**mantissa) * 2.0**power for sign in (1, -1)}
    return sorted(number for number in numbers if abs(number) <= largest)


@pytest.mark.parametrize("name", ["mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxint8", "msfp12"])
def test_blocks_take_the_nearest_number_of_their_scale(name: str) -> None:
    """The largest value of a block sets a power of two; each element is the nearest number of its list."""
    form = FORMATS[name]
    block = np.asarray(values()[: 4 * form.block].reshape(-1, form.block), np.float64)
    found = rounded(torch.tensor(block, dtype=torch.float32), form).numpy()
    numbers = np.array(representable(name))
    for row, back in zip(block.astype(np.float32), found, strict=True):
        top = np.floor(np.log2(np.abs(row).max())) - (
            np.floor(np.log2(form.floating[1])) if form.floating else 0
        )
        distances = np.abs(row[:, None].astype(np.float64) - numbers[None, :] * 2.0**top)
        least = distances.min(axis=1)
        chosen = np.abs(row.astype(np.float64) - back)
        assert chosen == pytest.approx(least, rel=1e-6, abs=1e-30)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_integers_have_a_scale_by_channel(bits: int) -> None:
    """Weights: no more levels than the bits allow in each channel, the largest value exact, zeros kept."""
    matrix = values()[:960].reshape(64, 15)
    matrix[:, 3] = 0.0
    found = rounded(matrix, FORMATS[f"int{bits}"], axis=-2, by_channel=True)
    for before, after in zip(matrix.T, found.T, strict=True):
        assert len(torch.unique(after)) <= 2**bits - 1
        assert after.abs().max() == pytest.approx(before.abs().max().item(), rel=1e-6)
        assert (after - before).abs().max() <= 0.5001 * before.abs().max() / (2 ** (bits - 1) - 1)


def test_rounding_twice_is_rounding_once() -> None:
    """A number of a format stays."""
    for name, form in FORMATS.items():
        if form.computed_in and name not in ("uint8", "uint4"):
            once = rounded(values()[:640].reshape(20, 32), form)
            assert torch.allclose(rounded(once, form), once, rtol=1e-6, atol=0.0), name


def test_weights_and_activations_are_rounded_apart() -> None:
    """A linear layer by hand: each operand in its format, sum in fp32, the bias as it is."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(24, 5), torch.randn(7, 24)
    model = convert(layer, {"x": x})
    constants = {op.get_friendly_name() for op in model.get_ops() if op.get_type_name() == "Constant"}
    inputs = {"x": x.numpy()}
    found = torch.from_numpy(answers_of(in_formats(model, inputs, constants, "int4", "fp8_e4m3"), inputs))
    weight = rounded(layer.weight.detach().T, FORMATS["int4"], axis=-2, by_channel=True)
    expected = rounded(x, FORMATS["fp8_e4m3"]) @ weight + layer.bias.detach()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found, layer(x).detach(), rtol=1e-3)


@pytest.mark.laws
def test_accuracy_by_format_on_cora(planetoid_root: Path) -> None:
    """16 and 8 bits keep the accuracy, 2 bits do not; each result names both formats."""
    changes = {}
    for pair in ("int8 fp16", "int2 int4"):
        weights, activations = pair.split()
        settings = [f"workload.weights={weights}", f"workload.activations={activations}"]
        report = judge(["gcn-cora"], ["stagr"], planetoid_root, overrides=settings)
        result = next(each for each in report.results if each.numbers == f"{weights} x {activations}")
        changes[pair] = result
    assert abs(changes["int8 fp16"].change) <= 0.005
    assert changes["int8 fp16"].agreement > 0.99
    assert changes["int2 int4"].agreement < changes["int8 fp16"].agreement
