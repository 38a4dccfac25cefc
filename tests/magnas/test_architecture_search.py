"""Architecture search: laws of its fronts, archives that go on, baselines, bad input."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from npusim.arch import load_soc
from npusim.cli.program import run
from npusim.errors import ConfigError, InfeasibleError, NpusimError, UnknownNameError
from npusim.explore.scoring_pool import in_portions, on_processes
from npusim.explore.sweep import Interrupted
from npusim.magnas.block_costs import MappedSpace
from npusim.magnas.search import Plan, SuperblockEvolution, read_architectures, search_architectures
from npusim.magnas.space import ArchitectureSpace, parse_architecture
from npusim.studies.evolution import UNRANKED, ranked
from npusim.studies.map_front import Limits
from npusim.workloads import load_spec

pytest.importorskip("pymoo")
pytest.importorskip("moocore")

PLAN = Plan(population=12, generations=4)
SIZES = ["workload.image=64", "workload.channels=64", "workload.knn=4"]


def score(texts):
    """Return accuracies that grow with depth, and differ a little from architecture to architecture."""
    found = []
    for text in texts:
        depth = sum(one.depth for one in parse_architecture(text).superblocks)
        noise = int(hashlib.sha256(text.encode()).hexdigest()[:4], 16) / 65536
        found.append(0.8 + 0.01 * depth + 0.02 * noise)
    return found


@pytest.fixture(scope="module")
def mapped() -> MappedSpace:
    backbone = load_spec("magnas-vig", SIZES)
    soc = load_soc("core-ultra-series2")
    space = ArchitectureSpace(depths=(1, 2), operators=("max_relative", "gin"))
    return MappedSpace(backbone, space, soc, ("npu", "gpu"))


def searched(mapped, directory, plan=PLAN, **options):
    return search_architectures(mapped, score, "a test", directory, plan, workload="magnas-vig", **options)


@pytest.fixture(scope="module")
def archive(mapped, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("archive") / "found"
    searched(mapped, directory)
    return directory


@pytest.fixture(scope="module")
def found(archive):
    return read_architectures(archive)


def values(points):
    return np.array([(1.0 - one.accuracy, one.latency_s, one.energy_j) for one in points])


def test_no_point_of_a_front_beats_another(found):
    for points in (found.front, found.single_unit_front, found.chance_front):
        each = values(points)
        for one in each:
            assert not ((each <= one).all(1) & (each < one).any(1)).any()


def test_hypervolumes_never_fall_and_mappings_of_single_units_are_single(found):
    for name in ("nested", "single_unit", "chance"):
        assert (np.diff([getattr(step, name) for step in found.steps]) >= -1e-12).all()
    assert all(len(set(one.mapping) - {"/"}) == 1 for one in found.single_unit_front)
    assert 0.0 <= found.distributed_share <= 1.0
    first = found.steps[0]
    assert first.nested == first.chance >= first.single_unit  # of the same architectures
    assert found.steps[-1].evaluated == PLAN.population * PLAN.generations


def test_points_cost_what_their_mapping_costs(mapped, found):
    for one in (found.front[0], found.front[-1]):
        spec = parse_architecture(one.architecture).spec(mapped.backbone)
        stem, graphers, *ffns, head = one.mapping.split("/")
        in_order, left = stem, list(ffns[0]) if ffns else []
        stages = iter(spec.stages)
        letters = iter(graphers)
        for stage in stages:
            for _ in range(stage.depth):
                in_order += next(letters) + (left.pop(0) if stage.ffn_hidden else "")
        unit_of = {letter: mapped.table.units.index(unit) for unit, letter in mapped.letters.items()}
        placement = np.array([[unit_of[letter] for letter in in_order + head]])
        costs = mapped.table.problem(mapped.table.rows(spec)).evaluate(placement)[0]
        assert costs == pytest.approx([one.latency_s, one.energy_j])


def test_baselines_are_homogeneous_and_what_is_said_to_dominate_them_does(found):
    assert len(found.baselines) == 4
    for one in found.baselines:
        superblocks = parse_architecture(one.architecture).superblocks
        assert len({superblock.operator for superblock in superblocks}) == 1
        if one.dominated_by is not None:
            better = found.front[one.dominated_by]
            assert (values([better]) <= values([one])).all()
    reference = found.baselines[found.reference]
    assert reference.operator == "max_relative"
    gain = next(one for one in found.gains if one.unit == reference.unit)
    assert {one.unit for one in found.gains} == set(found.units)
    assert gain.speedup == pytest.approx(np.mean([one.speedup for one in found.chosen]))
    enough = reference.accuracy - 1e-12
    if any(one.accuracy >= enough for one in found.front):
        assert all(one.accuracy >= enough for one in found.chosen)


@pytest.mark.laws
def test_a_search_that_is_stopped_and_resumed_writes_the_same_bytes(mapped, archive, tmp_path):
    with pytest.raises(Interrupted, match="1 of 4 generations"):
        searched(mapped, tmp_path / "found", stop=lambda: True)
    searched(mapped, tmp_path / "found", resume=True)
    for path in [one for one in archive.rglob("*") if one.is_file()]:
        other = tmp_path / "found" / path.relative_to(archive)
        assert other.read_bytes() == path.read_bytes(), path.name


@pytest.mark.laws
def test_a_longer_search_goes_on_where_a_shorter_one_ended(mapped, archive, tmp_path):
    longer = Plan(population=12, generations=5)
    searched(mapped, tmp_path / "whole", longer)
    asked = []

    def asking(texts):
        asked.extend(texts)
        return score(texts)

    searched(mapped, tmp_path / "grown")
    search_architectures(
        mapped, asking, "a test", tmp_path / "grown", longer, workload="magnas-vig", resume=True
    )
    assert 0 < len(asked) <= 3 * PLAN.population + 4  # and the baselines
    for name in ("search.json", "chunks/00000004.parquet"):
        assert (tmp_path / "grown" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_limits_hold_in_every_point_and_what_nothing_keeps_is_refused(mapped, archive, tmp_path):
    limits = Limits(transitions=1, latency_s=2e-3)
    found = searched(mapped, tmp_path / "found", Plan(population=12, generations=2), limits=limits)
    assert all(one.latency_s <= 2e-3 * (1 + 1e-9) for one in found.front)
    letters = [one.mapping for one in found.front]
    assert all(len(set(text) - {"/"}) <= 2 for text in letters)
    never = Limits(latency_s=1e-9)
    with pytest.raises(InfeasibleError, match="has a mapping that keeps the limits"):
        searched(mapped, tmp_path / "never", Plan(population=12, generations=1), limits=never)


@pytest.mark.parametrize(
    ("plan", "scores", "named"),
    [
        (dataclasses.replace(PLAN, seed=1), "a test", "another seed"),
        (dataclasses.replace(PLAN, population=13), "a test", "another population"),
        (dataclasses.replace(PLAN, mutation=0.8), "a test", "another mutation"),
        (PLAN, "other weights", "another scores"),
    ],
)
def test_an_archive_of_something_else_is_not_gone_on_with(mapped, archive, plan, scores, named):
    before = (archive / "search.json").read_bytes()
    with pytest.raises(NpusimError, match=named):
        search_architectures(mapped, score, scores, archive, plan, workload="magnas-vig", resume=True)
    with pytest.raises(NpusimError, match="is not empty; add --resume"):
        searched(mapped, archive)
    assert (archive / "search.json").read_bytes() == before


def test_what_a_directory_holds_is_looked_at_before_blocks_are_costed(mapped, archive):
    again = dataclasses.replace(mapped)
    with pytest.raises(NpusimError, match="is not empty; add --resume"):
        searched(again, archive)
    assert "table" not in vars(again)


def test_an_archive_of_another_space_is_not_gone_on_with(mapped, archive):
    other = dataclasses.replace(mapped, space=ArchitectureSpace(depths=(1, 3)))
    with pytest.raises(NpusimError, match="another space"):
        searched(other, archive, resume=True)


def test_what_cannot_be_searched_is_refused_before_anything_is_scored(mapped, tmp_path):
    with pytest.raises(UnknownNameError, match="unknown device to limit `dla`"):
        searched(mapped, tmp_path / "found", limits=Limits(shares={"dla": 0.5}))
    backbone = mapped.backbone.model_copy(update={"knn": [4] * 16})
    with pytest.raises(ConfigError, match="depths are a choice"):
        searched(dataclasses.replace(mapped, backbone=backbone), tmp_path / "found")
    assert not (tmp_path / "found").exists()


def test_a_chosen_architecture_is_mapped_on_the_machine_of_its_search(mapped, tmp_path, capsys):
    told = {"soc_named": "core-ultra-series2", "changed": SIZES}
    found = searched(mapped, tmp_path / "found", Plan(population=12, generations=1), **told)
    command = ["magnas", "map", "--search", str(tmp_path / "found")]
    assert run([*command, "a0", "--format", "json", "--mapping", found.chosen[0].mapping]) == 0
    front = json.loads(capsys.readouterr().out)
    assert front["devices"] == found.units
    assert front["given"]["latency_s"] == pytest.approx(found.chosen[0].latency_s, rel=0.02)
    assert run([*command, "a9"]) == 2
    assert "unknown chosen architecture `a9`" in capsys.readouterr().err


def test_the_report_is_a_page_and_a_document(archive, capsys, tmp_path):
    assert run(["magnas", "report", str(archive), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "npusim.magnas-search/1"
    assert run(["magnas", "report", str(archive)]) == 0
    assert "The front dominates" in capsys.readouterr().out
    assert run(["magnas", "report", str(archive), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    for heading in ("Architectures and mappings", "Hypervolume", "Chosen architectures"):
        assert heading in page
    assert run(["magnas", "report", str(tmp_path)]) == 2
    assert "search.json" in capsys.readouterr().err


def test_a_rank_is_that_of_the_best_point_and_whole_members_leave_with_a_front():
    best, mixed, worst = [[0, 5, 5]], [[1, 1, 1], [9, 9, 9]], [[2, 2, 2]]
    values, owners = np.array([*worst, *mixed, *best], float), np.array([0, 1, 1, 2])
    assert ranked(values, owners, 3, 2)[0].tolist() == [UNRANKED, 0, 0]
    assert ranked(values, owners, 4, 4)[0].tolist() == [1, 0, 0, UNRANKED]


@pytest.mark.parametrize(("mutation", "crossover"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_children_take_whole_superblocks_of_the_elite(mutation, crossover):
    evolution = SuperblockEvolution([50] * 8, 2, Plan(0, 10, 1, mutation, crossover, 0.3))
    first = evolution.ask(str)
    evolution.tell(first, [np.array([[i, i, i]], float) for i in range(10)])
    elite = {tuple(one[k : k + 2]) for one in first[:3] for k in range(0, 8, 2)}
    children = evolution._children()
    taken = [tuple(one[k : k + 2]) in elite for one in children for k in range(0, 8, 2)]
    assert all(taken) if mutation == 0.0 else np.mean(taken) < 0.2


def test_scores_in_portions_stand_in_the_order_that_was_asked():
    texts = [f"{i * 7 % 30:02d}" for i in range(30)]
    found = in_portions(texts, lambda portions: ([float(one) for one in each] for each in portions))
    assert found == [float(text) for text in texts]


def test_processes_answer_in_the_order_that_was_asked():
    texts = [f"{i * 7 % 30:02d}" for i in range(30)]
    with on_processes(sorted, 2) as score:  # a portion is in order, so each text comes back for itself
        assert score(texts) == texts
        assert score(texts[:2]) == texts[:2]


def ended(texts):
    """End the process that scores."""
    os._exit(1)


def test_a_process_that_is_ended_is_told_and_not_waited_for():
    with pytest.raises(NpusimError, match="was ended from outside"), on_processes(ended, 2) as score:
        score(["a"])
