"""GCNP's figures: counts that follow from the networks, files of other figures, keys."""

from pathlib import Path

import pytest

from npusim.pruning import suite
from npusim.pruning.suite import budget_of
from npusim.validation import load_suite, run_suite
from npusim.validation.figures import key_of


@pytest.mark.laws
def test_the_papers_counts_follow_from_the_networks() -> None:
    judged = run_suite("gcnp")
    assert judged.ok
    assert {"full", "batched", "simplified networks"} <= {g.group.split(",")[0] for g in judged.groups}


def test_networks_without_normalised_branches_and_gathered_rows_miss_the_limits_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suite, "timed_network", lambda *key: suite._network("sage-concat", *key, False))
    suite._time_s.cache_clear()
    missed = {group.group for group in run_suite("gcnp").groups if not group.ok}
    suite._time_s.cache_clear()
    assert missed == {"full, million nodes a second, GPU", "batched, ms, CPU", "batched at 4x, ms, GPU"}


def test_a_file_of_figures_brings_values_only_for_any_data_set_beside_other_suites(tmp_path: Path) -> None:
    file = tmp_path / "figures.yaml"
    file.write_text(
        "granite: {source: s, fig20: {gcn: 3.0}}\n"
        "gcnp:\n  source: s\n  full_inference_kmacs_per_node: {reddit: [300, 200], yelp: [1500]}\n"
        "  batched_kmacs_per_node_cpu_batch512: {products: {plain: [4000], stored: [1600]}}\n"
    )
    found = run_suite("gcnp", file).evidence
    assert list(found.ids)[-1] == "gcnp.batched_kmacs_per_node_cpu_batch512.products.stored.0"
    assert found.predicted[:3] == pytest.approx([315.64, 171.43, 1483.95], rel=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "full_inference_kmacs_per_node.yelp.3",
        "full_inference_memory_mb.reddit.0",
        "batched_kmacs_per_node_cpu_batch512.arxiv.stored.3",
        "simplified_kmacs_per_node.sgc.1",
    ],
)
def test_figures_are_known_by_their_ids(name: str) -> None:
    key = key_of(load_suite("gcnp"), f"gcnp.{name}")
    assert key is not None and key["place"] == name[-1]
    assert budget_of(key) == (1.0 if ".sgc." in name else 2.0 ** int(name[-1]))
