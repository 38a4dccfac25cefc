"""Every JSON document: schema, rule for numbers, reading back, whole-file writing."""

import json
import math
from pathlib import Path
from pkgutil import resolve_name

import pytest
from pydantic import ValidationError

from npusim import documents
from npusim.documents import Display, Document
from npusim.errors import ConfigError
from npusim.explore.query import Answer
from npusim.measuring.traces import LayerPair, LoneLayer, TraceDiff
from npusim.plugins import Registry
from npusim.reporting.kinds import DOCUMENTS

DIFF = TraceDiff(
    first="a network on a machine",
    second="the same under stagr",
    measured_launch_s=0.0,
    simulated_launch_s=0.0,
    alone=[LoneLayer(trace="first", name="b", latency_s=0.5, start_s=1.0)],
    measured_s=2.0,
    simulated_s=1.0,
    layers=[
        LayerPair(
            measured="a",
            simulated="a",
            measured_s=1.0,
            simulated_s=2.0,
            measured_start_s=0.0,
            simulated_start_s=0.0,
        )
    ],
    only_measured=["b"],
    only_simulated=[],
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_document_names_its_schema_and_refuses_what_json_lacks(name: str) -> None:
    document = resolve_name(DOCUMENTS[name].model)
    assert issubclass(document, Document)
    assert document.schema_name() == f"npusim.{name}/1"
    assert document.model_config["allow_inf_nan"] is False
    assert next(iter(document.model_fields)) == "schema_", "the schema comes first"


def test_a_document_reads_back_as_it_was_written(tmp_path: Path) -> None:
    DIFF.write(tmp_path / "diff.json")
    assert TraceDiff.read(tmp_path / "diff.json", "`npusim trace diff`") == DIFF
    assert [path.name for path in tmp_path.iterdir()] == ["diff.json"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_json_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(ValidationError):
        TraceDiff(**{**dict(DIFF), "measured_s": value})


def test_rows_of_a_query_have_null_where_a_value_is_not_finite() -> None:
    text = Answer(rows=[{"a": math.nan, "b": math.inf, "c": 1.5}]).to_json()
    assert json.loads(text)["rows"] == [{"a": None, "b": None, "c": 1.5}]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": "npusim.trace-diff/2"}, "another version of npusim"),
        ({"schema": "npusim.estimate/1"}, r"npusim\.estimate/1"),
        ({"schema": None}, "no key `schema`"),
        ({"measured_s": "long"}, "measured_s"),
        ({"length": 3}, "unknown key `length`"),
    ],
)
def test_another_document_is_refused_by_name(tmp_path: Path, change: dict[str, object], told: str) -> None:
    path = tmp_path / "diff.json"
    path.write_text(json.dumps(json.loads(DIFF.to_json()) | change))
    with pytest.raises(ConfigError, match=told):
        TraceDiff.read(path, "`npusim trace diff`")


def test_a_document_is_shown_by_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of documents names no module above it; what shows them is announced as an entry point."""
    displays = Registry("tests.displays", "display of documents", Display)
    monkeypatch.setattr(documents, "DISPLAYS", displays)
    assert repr(DIFF).startswith("TraceDiff(")
    assert "&#x27;a network on a machine&#x27;" in DIFF._repr_html_()
    displays.register(
        Display("short", lambda document: "text", lambda document: "<b>html</b>", lambda document: "page")
    )
    assert (repr(DIFF), str(DIFF), DIFF._repr_html_()) == ("text", "text", "<b>html</b>")
