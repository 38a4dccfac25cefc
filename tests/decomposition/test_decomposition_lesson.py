"""The lesson on chunks says what the model says."""

import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

from lesson_positions import sampled, shown

from npusim.decomposition import lesson as chunks

pytestmark = pytest.mark.usefixtures("own_main")


@pytest.mark.laws
def test_chunks_are_said_to_be_quicker_where_they_are() -> None:
    seen = set()
    for values in sampled(chunks.LESSON.pictures[0]):
        _, text = shown(chunks.LESSON.pictures[0], values)
        by_count = chunks._by_chunks(values["nodes"], values["degree"])
        ratio = by_count[values["chunks"]].latency_s / by_count[1].latency_s
        assert ("caches help" in text) == (ratio <= 0.995)
        assert ("read again for each chunk" in text) == (ratio >= 1.005)
        seen.add(ratio < 1)
    assert seen == {True, False}
    whole, eighth = (chunks._by_chunks(100_000, 50)[count] for count in (1, 8))
    elements = 100_000 * 51 * chunks.FEATURES * (chunks.ITEM_BYTES + chunks.INDEX_BYTES)
    assert elements < whole.memory.dram_peak_bytes < 1.4 * elements
    assert eighth.memory.results_peak_bytes < whole.memory.results_peak_bytes / 4
