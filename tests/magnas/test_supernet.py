"""The supernet: subnets are the workloads of their keys; training, scores, checkpoints, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest

from npusim.cli.program import run
from npusim.errors import ConfigError
from npusim.magnas.graph import build_vig
from npusim.magnas.space import LETTERS, Architecture, ArchitectureSpace, parse_architecture
from npusim.workloads import load_spec

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

SPACE = ArchitectureSpace(depths=(1, 2))
SMALL = ["image=32", "channels=16", "knn=2", "precision=fp32"]
OPTIONS = [*(f"--set=workload.{one}" for one in SMALL), "--depths=1,2", "--batch=8", "--quiet"]


def small():
    return load_spec("magnas-digits", [f"workload.{one}" for one in SMALL])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of two classes: bright above, bright below."""
    random, root = np.random.default_rng(0), tmp_path_factory.mktemp("images")
    for name, rows in (("above", slice(0, 4)), ("below", slice(4, 8))):
        (root / name).mkdir()
        for i in range(20):
            pixels = random.integers(0, 90, (8, 8), np.uint8)
            pixels[rows] += 150
            Image.fromarray(pixels).save(root / name / f"{i:02d}.png")
    return root


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny training."""
    target = tmp_path_factory.mktemp("trained") / "net"
    command = ["magnas", "train", str(folder), "-o", str(target), *OPTIONS]
    assert run([*command, "--epochs=2", "--scored=2", "--alone=2"]) == 0
    return target


def test_the_space_is_that_of_table_1():
    space = ArchitectureSpace()
    assert space.points == 144.0**4
    assert len(space.sizes) == 20
    largest = space.homogeneous("gin", largest=True).keys(load_spec("magnas-vig"))
    assert largest["ffn_hidden"] == [320] * 4
    widths = {
        space.architecture([0, 0, 0, 1, width] * 4).keys(load_spec("magnas-vig"))["ffn_hidden"][0]
        for width in range(3)
    }
    assert widths == {96, 192, 320}


def test_an_architecture_is_read_as_it_is_written():
    random, space = np.random.default_rng(1), ArchitectureSpace()
    for _ in range(20):
        drawn = space.drawn(random)
        assert parse_architecture(str(drawn)) == drawn


@pytest.mark.parametrize(
    "text",
    [
        "",
        "S2",
        "S2-G2-S2-X2",
        "S2pf-G2-S2-G2",
        "S2fp60-G2-S2-G2",
        "S2pf0-G2-S2-G2",
        "S0-G2-S2-G2",
        "S2pf0-G2f60-S3-G4p",
        "S0-G2f60-S3-G4p",
        "S99999999999999999999-G2f60-S3-G4p",
    ],
)
def test_what_is_no_architecture_is_refused(text):
    with pytest.raises(ConfigError, match="4 superblocks such as"):
        parse_architecture(text)


@pytest.mark.few(1)
@pytest.mark.parametrize("operator", LETTERS)
def test_a_subnet_answers_as_the_supernet_does_with_its_choices(operator):
    from npusim.magnas.vig import Supernet

    net, random = Supernet(small(), SPACE), np.random.default_rng(2)
    images = torch.rand(2, 3, 32, 32)
    for architecture in (SPACE.homogeneous(operator, True), SPACE.drawn(random)):
        net.train()
        net(images, architecture)  # other means and variances than the initial ones
        net.eval()
        with torch.no_grad():
            assert torch.allclose(net(images, architecture), net.subnet(architecture)(images), atol=1e-5)


@pytest.mark.laws
def test_a_pyramid_has_subnets_too():
    from npusim.magnas.vig import Supernet

    sizes = ["image=64", "channels=[8,16,16,32]", "knn=2", "precision=fp32"]
    backbone = load_spec("pyramid-vig-m", [f"workload.{one}" for one in sizes])
    net, images = Supernet(backbone, SPACE).eval(), torch.rand(1, 3, 64, 64)
    architecture = parse_architecture("S2pf100-G1f60-M1-E2p")
    with torch.no_grad():
        assert torch.allclose(net(images, architecture), net.subnet(architecture)(images), atol=1e-5)


@pytest.mark.laws
def test_a_subnet_is_the_network_that_is_costed():
    from graph_agreement import assert_agreement

    pytest.importorskip("openvino")
    from npusim import from_pyg
    from npusim.magnas.vig import Supernet

    architecture = parse_architecture("S2pf100-G1f60-M1-E2p")
    net = Supernet(small(), SPACE).eval().subnet(architecture)
    for name, parameter in net.named_parameters():
        if name.endswith("epsilon"):  # a factor of 1 would be folded
            parameter.data.fill_(0.1)
    built = build_vig(architecture.spec(small()), "x")
    assert_agreement(built, from_pyg(net, {"image": torch.rand(1, 3, 32, 32)}, "x", precision=None))


def one_operator(architecture: Architecture) -> bool:
    return len({one.operator for one in architecture.superblocks}) == 1


def test_largest_and_smallest_subnets_of_a_step_have_one_operator_each_drawn_anew():
    from npusim.magnas.training import sampled

    random = np.random.default_rng(3)
    steps = [sampled(SPACE, random, 3) for _ in range(40)]
    for largest, *between, smallest in steps:
        assert one_operator(largest) and largest.superblocks[0].ffn_percent == 100
        assert one_operator(smallest) and smallest.superblocks[0].depth == 1
        assert len(between) == 3
    assert len({step[0] for step in steps}) == len({step[-1] for step in steps}) == 4


@pytest.mark.laws
def test_training_learns_and_is_told_as_a_document(trained: Path):
    document = json.loads((trained / "training.json").read_text())
    assert document["schema"] == "npusim.magnas-training/1"
    assert document["images"]["train"] == 20
    assert document["losses"][1] < document["losses"][0]
    assert len(document["subnets"]) == 10
    assert len(document["alone"]) == 2
    kept = json.loads((trained / "alone.json").read_text())["scores"]
    assert kept == {one["architecture"]: one["alone_accuracy"] for one in document["alone"]}


@pytest.mark.laws
def test_a_resumed_training_ends_with_the_same_scores(folder: Path, trained: Path, tmp_path: Path):
    from npusim.explore.sweep import Interrupted
    from npusim.magnas.training import read_checkpoint, train_supernet

    settings = [f"workload.{one}" for one in SMALL]
    words = {"settings": settings, "depths": "1,2", "batch": 8, "epochs": 2, "scored": 2}
    with pytest.raises(Interrupted, match="1 of 2 epochs"):
        train_supernet(str(folder), tmp_path / "net", **words, stop=lambda: True)
    found = train_supernet(str(folder), tmp_path / "net", **words, resume=True)
    whole = json.loads((trained / "training.json").read_text())
    assert found.losses == whole["losses"]
    assert [one.model_dump() for one in found.subnets] == whole["subnets"]
    checkpoint = read_checkpoint(tmp_path / "net")
    checkpoint.refuse_other(read_checkpoint(trained).task, checkpoint.digest, tmp_path)


def test_a_score_does_not_depend_on_what_was_scored_before(trained: Path):
    from npusim.magnas.training import read_checkpoint

    checkpoint, random = read_checkpoint(trained), np.random.default_rng(4)
    drawn = [SPACE.drawn(random) for _ in range(6)]
    scorer = checkpoint.scorer()
    scores = [scorer.score(one) for one in drawn]
    other = checkpoint.scorer()
    assert [other.score(one) for one in reversed(drawn)] == scores[::-1]


def message(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["magnas", "train", *arguments]) == 2
    return " ".join(capsys.readouterr().err.split())


def test_folders_that_are_no_data_set_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def refused() -> str:
        return message(capsys, str(tmp_path / "images"), "-o", str(tmp_path / "net"), *OPTIONS)

    images = tmp_path / "images"
    assert "is no directory" in refused()
    images.mkdir()
    assert "holds no images; it has to hold a folder of images for each class" in refused()
    for i in range(4):
        (images / "a").mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(images / "a" / f"{i}.png")
    assert "found one class, `a`; allowed: two classes or more" in refused()
    (images / "b").mkdir()
    Image.new("RGB", (8, 8)).save(images / "b" / "0.png")
    assert "found 1 images of class `b`; allowed: at least 4" in refused()
    for i in range(1, 4):
        Image.new("RGB", (8, 9)).save(images / "b" / f"{i}.png")
    assert "found 8 x 9 pixels; allowed: images of one size" in refused()
    (images / "b" / "1.png").write_text("no image")
    assert "is no image that can be read" in refused()
    assert not (tmp_path / "net").exists()


def test_a_training_goes_on_only_as_it_began(
    folder: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def refused(*options: str) -> str:
        return message(capsys, str(folder), "-o", str(trained), *OPTIONS, *options)

    assert "is not empty; add --resume" in refused()
    assert "a training of other recipe.epochs" in refused("--resume")
    same = ["--resume", "--epochs=2"]
    assert "other space.widths_percent" in refused(*same, "--widths=50")
    assert "other images, recipe.seed" in refused(*same, "--seed=1")
    digits = message(capsys, "digits", "-o", str(tmp_path / "net"), *OPTIONS, f"--teacher={trained}")
    assert "found a supernet with classes 2; allowed: classes 10" in digits
    (tmp_path / "supernet.pt").write_bytes(b"no checkpoint")
    command = [str(folder), "-o", str(tmp_path), *OPTIONS, "--resume"]
    assert "no checkpoint of a supernet, or damaged" in message(capsys, *command)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--operators=gin,gat"], "unknown graph operator `gat`"),
        (["--depths=0"], "--depths: found `0`; allowed: whole numbers of 1 to 64"),
        (["--workload=gcn-cora"], "a workload of kind gnn; allowed: one of kind vision-gnn"),
        (["--set=npu.tiles=2"], "training knows no machine"),
        (["--teacher=nowhere"], "is no file; train a supernet first"),
    ],
)
def test_bad_options_are_refused(options, expected, tmp_path, capsys):
    assert expected in message(capsys, "-o", str(tmp_path / "net"), *options)


@pytest.mark.laws
def test_a_search_keeps_scores_beside_the_checkpoint(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sizes = ["--set=workload.image=64", "--set=workload.channels=64", "--set=workload.knn=4"]
    command = ["magnas", "search", str(trained), *sizes, "--devices=npu", "--cores=1", "--quiet"]
    command += ["--population=4", "--generations=2", "-o"]
    assert run([*command, str(tmp_path / "found"), "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["distributed_share"] == 0.0
    assert found["changed"] == [one.removeprefix("--set=") for one in sizes]
    scores = trained / "scores.json"
    kept = scores.read_text()
    told = json.loads(kept)["scores"]
    assert all(told[one["architecture"]] == one["accuracy"] for one in found["front"])
    scores.write_text(kept[: len(kept) // 2])
    assert run([*command, str(tmp_path / "other")]) == 2
    assert "scores.json" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    scores.unlink()


@pytest.mark.slow
def test_the_best_subnet_reads_digits(tmp_path: Path):
    assert run(["magnas", "train", "-o", str(tmp_path / "net"), "--quiet"]) == 0
    best = json.loads((tmp_path / "net" / "training.json").read_text())["best"]
    assert best["accuracy"] >= 0.97
    assert best["test_accuracy"] >= 0.97
