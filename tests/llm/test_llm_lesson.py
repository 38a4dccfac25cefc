"""The lesson on decoding says what the model says."""

import re

import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

from npusim.llm import lesson as decoding

pytestmark = pytest.mark.usefixtures("own_main")


@pytest.mark.laws
def test_a_token_reads_all_weights_at_the_bandwidth_of_its_device() -> None:
    assert decoding._token("fp16", 128, "gpu").memory.constants_bytes == pytest.approx(
        decoding.WEIGHT_BYTES, rel=0.02
    )
    token = decoding._token("fp16", 128, "gpu").latency_s
    assert 1 / token < decoding.MOST_TOKENS, "no device writes more tokens than its bandwidth allows"
    for weights, device in (("fp16", "gpu"), ("int8", "cpu"), ("int4", "npu")):
        _, text = decoding._decoding.show(weights, device, 1024)
        exact_s = decoding._token(weights, 1024, device).latency_s
        assert rf"\mathbf{{{1e3 * exact_s:.1f}\;" in text
        rest_ms = float(re.search(r"\+ (-?[\d.]+)\\;\\text\{ms\}", text)[1])
        assert rest_ms > 0
    assert "unpacks" in text
