"""What must hold of errors: they are complete, name the nearest valid name and can be pickled."""

import pickle

import pytest

from npusim import errors
from npusim.errors import (
    ConfigError,
    DynamicShapeError,
    NpusimError,
    UnfixedSizeError,
    UnknownNameError,
    nearest,
    shown,
)

EXAMPLES = [
    ConfigError("`3 MiB`", file="soc.yaml", line=7, key="npu.clock", allowed="1.85 GHz", suggestion="3 MHz"),
    UnknownNameError("SoC", "core-ultra-serie2", ["core-ultra-series1", "core-ultra-series2"]),
    errors.FileError("a.yaml", "no such file", "check the path"),
    errors.ModelFileError("a.xml", "is no OpenVINO IR"),
    errors.ShapeError("MatMul x: 3x4 and 5x6 do not go together"),
    DynamicShapeError({"x": "[?,1433]"}),
    UnfixedSizeError("mask", "NonZero", "[1,?]"),
    errors.GraphError("the graph has a cycle"),
    errors.EmptyGraphError("empty.xml"),
    errors.IllegalTechniqueError("symg", "needs a symmetric norm matrix; gat-cora has none"),
    errors.InfeasibleError(
        "TopK fits into no SRAM", needed=2048.5, available=512.25, unit="KiB", levers=["give more"]
    ),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_ends_with_status_2_and_survives_pickling(error: NpusimError) -> None:
    twin = pickle.loads(pickle.dumps(error))
    assert (type(twin), str(twin), twin.exit_status) == (type(error), str(error), 2)
    assert set(twin.__dict__) == set(error.__dict__)


def test_examples_cover_every_class() -> None:
    members = vars(errors).items()
    classes = {
        name for name, member in members if isinstance(member, type) and issubclass(member, NpusimError)
    }
    assert {type(error).__name__ for error in EXAMPLES} | {"NpusimError"} == classes


def test_a_config_error_reads_place_key_found_allowed_suggestion() -> None:
    expected = "soc.yaml:7: npu.clock: found `3 MiB`; allowed: 1.85 GHz; did you mean `3 MHz`?"
    assert str(EXAMPLES[0]) == expected


def test_further_errors_follow_one_a_line() -> None:
    error = ConfigError("x", file="f", line=1, others=[ConfigError("y", file="f", line=2)], more=3)
    assert str(error).splitlines() == ["f:1: found x", "  also f:2: found y", "  and 3 more"]


def test_an_unknown_name_names_the_nearest_and_all() -> None:
    assert "did you mean `core-ultra-series2`?" in str(EXAMPLES[1])
    assert "Known: core-ultra-series1, core-ultra-series2" in str(EXAMPLES[1])
    assert "did you mean" not in str(UnknownNameError("SoC", "zzz", ["a"]))


def test_what_is_infeasible_says_what_it_needs_what_there_is_and_the_levers() -> None:
    error = errors.InfeasibleError("x", needed=2048.4, available=512.25, unit="KiB", levers=["a", "b"])
    assert str(error) == "x; needed: 2,048 KiB, available: 512.2 KiB; a; b"
    assert error.reason == "x; needed: 2,048 KiB, available: 512.2 KiB"
    assert str(errors.InfeasibleError("no device runs TopK")) == "no device runs TopK"


def test_a_dynamic_shape_offers_the_option() -> None:
    assert "--shape 'x=[...]'" in str(EXAMPLES[5])


@pytest.mark.parametrize(
    ("name", "meant"), [("GCN-CORA", "gcn-cora"), ("gcn-kora", "gcn-cora"), ("zzzz", None), ("", None)]
)
def test_nearest_ignores_case_and_forgives_a_slip(name: str, meant: str | None) -> None:
    assert nearest(name, ["gat-cora", "gcn-cora"]) == meant


def test_a_shown_value_is_short_and_on_one_line() -> None:
    assert shown("a\nb\x1b[31m") == "`a\\nb\\x1b[31m`"
    assert shown("x" * 10_000) == f"`{'x' * 80}...` (10,000 letters)"
