"""Sparsity break-even: from which share of zeros a compressed weight pays on a machine."""

from picture import Study, main

import npusim

DENSITIES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
M, K, N = 64, 4096, 4096


def product(density: float, packed: bool) -> npusim.Graph:
    """Return a product whose weight has some non-zeros, stored dense or as bitmap and values."""
    editor = npusim.Editor("product")
    x = editor.input("x", (M, K))
    storage = npusim.Storage.ZVC if packed else npusim.Storage.DENSE
    weight = editor.constant("weight", (K, N), density=density, storage=storage)
    editor.outputs.append(editor.matmul(x, weight, "product"))
    return editor.finish()


def study() -> Study:
    """Vary the share of non-zeros of one product."""
    dense = npusim.estimate(product(1.0, False)).latency_s
    gains = {f"{d:.0%} non-zero": dense / npusim.estimate(product(d, True)).latency_s for d in DENSITIES}
    even = next(name for name, gain in gains.items() if gain > 1.0)
    sentence = (
        f"Compression of a {K} x {N} weight pays from {even} on ({gains[even]:.2f} times as fast), and gives "
        f"{gains['50% non-zero']:.2f} times at 50 %."
    )
    return Study(sentence, "Speed-up over the dense weight", gains, even)


if __name__ == "__main__":
    main(study, __file__)
