"""What must hold of configuration files: a mistake is named with file, line, key and what was meant."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, model_validator

from npusim.config import (
    Section,
    dump_model,
    field_descriptions,
    load_model,
    override_model,
    parse_override,
    schema_of,
    valid_paths,
    validate_data,
)
from npusim.config.reading import CONTROL, compose
from npusim.errors import ConfigError, FileError, NpusimError
from npusim.units import Frequency, PositiveCount, Quantity, Ratio, refuse


class Engine(Section):
    """An engine."""

    kind: Literal["engine"]
    clock: Frequency
    """How fast it turns."""
    rates: dict[Literal["fp16", "int8"], Ratio] = Field(default_factory=dict)


class Wheel(Section):
    """A wheel."""

    kind: Literal["wheel"]
    spokes: PositiveCount
    round: bool = True


class Car(Section):
    """A car, to have something to configure."""

    version: Literal["car/1"] = Field(alias="schema")
    name: str
    parts: dict[str, Annotated[Engine | Wheel, Field(discriminator="kind")]]
    tags: list[str] = Field(default_factory=list)
    spare: Wheel | None = None
    mass: Ratio | None = None

    @model_validator(mode="after")
    def _has_parts(self) -> "Car":
        if not self.parts:
            refuse("a car without parts", "at least one part", at="parts")
        return self


GOOD = """\
schema: car/1
name: beetle
parts:
  motor:
    kind: engine
    clock: {value: 3 kHz, source: "[CATALOGUE]", uncertainty: 5 %}
    rates: {int8: 2}
  left:
    kind: wheel
    spokes: 12
tags: [old, "on"]
"""


@pytest.fixture
def car(tmp_path: Path):  # type: ignore[no-untyped-def]
    def load(text: str | bytes, *overrides: str) -> Car:
        path = tmp_path / "car.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_model(path, Car, overrides)

    return load


def message(car, text: str | bytes, *overrides: str) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(NpusimError) as caught:
        car(text, *overrides)
    return str(caught.value)


def test_a_good_file_loads(car) -> None:  # type: ignore[no-untyped-def]
    beetle = car(GOOD)
    assert beetle.parts["motor"].clock == 3000
    assert beetle.parts["motor"].clock.source == "[CATALOGUE]"
    assert beetle.tags == ["old", "on"]


MISTAKES = {
    "unknown key": (("spokes: 12", "spoks: 12"), ":10: parts.left.spoks:", "unknown key", "spokes"),
    "missing key": (("    spokes: 12\n", ""), ":8: parts.left.spokes:", "no key", "whole number"),
    "wrong type": (("spokes: 12", "spokes: many"), ":10: parts.left.spokes:", "`many`", "whole number"),
    "not a mapping": (
        ("  left:\n    kind: wheel\n    spokes: 12", "  left: 3"),
        ":8: parts.left:",
        "`3`",
        "map",
    ),
    "wrong unit": (("3 kHz", "3 MiB"), ":6: parts.motor.clock:", "`3 MiB`", "such as 1.85 GHz"),
    "misspelt unit": (("3 kHz", "3 Khz"), ":6: parts.motor.clock:", "`3 Khz`", "did you mean `3 kHz`?"),
    "no unit": (("3 kHz", "3"), ":6: parts.motor.clock:", "no unit", "such as 1.85 GHz"),
    "negative": (("3 kHz", "-3 kHz"), ":6: parts.motor.clock:", "`-3 kHz`", "above 0"),
    "zero": (("spokes: 12", "spokes: 0"), ":10: parts.left.spokes:", "`0`", "1 or more"),
    "nan": (("3 kHz", "nan kHz"), ":6: parts.motor.clock:", "`nan kHz`", "above 0"),
    "too large": (("3 kHz", "1e400 kHz"), ":6: parts.motor.clock:", "1e400 kHz", "above 0"),
    "bad uncertainty": (("5 %", "5 Hz"), ":6: parts.motor.clock.uncertainty:", "`5 Hz`", "such as 3 %"),
    "unknown kind": (("kind: wheel", "kind: weel"), ":8: parts.left:", "`weel`", "did you mean `wheel`?"),
    "unknown name in a list": (("int8: 2", "int9: 2"), ":7: parts.motor.rates.int9:", "`int9`", "`int8`?"),
    "wrong version": (("car/1", "car/2"), ":1: schema:", "`car/2`", "car/1"),
    "duplicate key": (("tags:", "name: golf\ntags:"), ":11: name:", "second time", "first on line 2"),
    "broken YAML": (("tags: [old", "tags: [[old"), ":1", "broken YAML", "column"),
    "a tab": (("    spokes", "\tspokes"), ":10", "broken YAML", "column"),
    "a tag": (('"on"', "!!python/name:os.system x"), ":11: tags.1:", "tag", "without tags"),
    "not text": (("beetle", "[a]"), ":2: name:", "a list", "a text"),
    "not a list": (('[old, "on"]', "old"), ":11: tags:", "`old`", "a list"),
    "a validator": (("parts:", "parts: {}\ntags2:"), ":4: tags2:", "unknown key", "tags"),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=list(MISTAKES))
def test_a_mistake_is_named_with_line_key_found_and_allowed(car, mistake: str) -> None:  # type: ignore[no-untyped-def]
    (old, new), place, found, allowed = MISTAKES[mistake]
    assert old in GOOD
    text = message(car, GOOD.replace(old, new))
    first = text.splitlines()[0]
    assert f"car.yaml{place}" in first
    assert found in first
    assert allowed in first


def test_a_misspelt_key_is_not_reported_as_missing_too(car) -> None:  # type: ignore[no-untyped-def]
    text = message(car, GOOD.replace("spokes: 12", "spoks: 12"))
    assert "no key" not in text
    assert text.endswith("did you mean `spokes`?")


def test_all_mistakes_are_listed_up_to_ten(car) -> None:  # type: ignore[no-untyped-def]
    wheels = "".join(f"  w{i}: {{kind: wheel, spokes: 0}}\n" for i in range(14))
    lines = message(car, GOOD.replace("tags:", "").replace('[old, "on"]', "") + wheels).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "  and 4 more"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"", "empty file"),
        (b"# only a comment\n", "empty file"),
        (b"\x00", "broken YAML"),
        (b"a: &a [*a]", "broken YAML|too much|refer to themselves"),
        (b"- 1\n", "a list"),
        (b"? [a]\n: b\n", "not a word"),
        (b"[" * 5000, "broken YAML|deep"),
    ],
)
def test_what_is_no_configuration_at_all_is_refused(car, content: bytes, said: str) -> None:  # type: ignore[no-untyped-def]
    text = message(car, content)
    assert any(part in text for part in said.split("|")), text


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "car.yaml").write_text(GOOD)
    for name, said in (
        ("cra.yaml", "did you mean"),
        (".", "is a directory"),
        ("no/car.yaml", "no directory"),
    ):
        with pytest.raises(FileError, match=said):
            load_model(tmp_path / name, Car)


def test_aliases_that_multiply_are_refused() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
    )
    with pytest.raises(ConfigError, match="too much data"):
        compose(bomb, "bomb.yaml")


def test_words_mean_what_is_written() -> None:
    data = compose(
        "a: on\nb: 010\nc: 12:30\nd: 1e3\ne: '5'\nf: 2024-01-01\ng: yes\nh: 7\ni: ~\nj: true", "x"
    ).data
    assert data == {
        "a": "on", "b": "010", "c": "12:30", "d": 1000.0, "e": "5", "f": "2024-01-01", "g": "yes", "h": 7,
        "i": None, "j": True,
    }  # fmt: skip


def test_anchors_and_merges_work() -> None:
    data = compose("base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\nboth: {<<: [*b, {x: 9, z: 0}]}", "x").data
    assert data["use"] == {"x": 1, "y": 3}
    assert data["both"] == {"x": 1, "y": 2, "z": 0}


def test_an_override_notes_the_old_value_and_drops_its_source(car) -> None:  # type: ignore[no-untyped-def]
    clock = car(GOOD, "parts.motor.clock=4kHz").parts["motor"].clock
    assert (clock, clock.source, clock.note) == (4000, "set by you", "instead of 3 kHz")


def test_overrides_set_what_the_file_leaves_out(car) -> None:  # type: ignore[no-untyped-def]
    overrides = ["mass=1.5", "tags=[new, red]", "parts.motor.rates.fp16=3", "spare={kind: wheel, spokes: 3}"]
    changed = car(GOOD, *overrides)
    assert (changed.mass, changed.tags, changed.parts["motor"].rates["fp16"]) == (1.5, ["new", "red"], 3)
    assert changed.spare.spokes == 3
    assert car(GOOD, "parts.left.round=false").parts["left"].round is False


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("parts.motor.clok=4kHz", "did you mean `parts.motor.clock`?"),
        ("parts.moter.clock=4kHz", "did you mean `parts.motor.clock`?"),
        ("parts.motor.clock.value=4kHz", "did you mean `parts.motor.clock`?"),
        ("engine=1", "one of schema, name, parts"),
        ("parts.motor.clock=3 MiB", "such as 1.85 GHz"),
        ("parts.motor.clock=-1 kHz", "above 0"),
        ("parts.left.spokes=1.5", "whole number"),
        ("parts.motor.rates.int9=1", "did you mean `int8`?"),
        ("parts.motor=3", "a mapping"),
        ("parts.motor.clock", "PATH=VALUE"),
        ("parts.motor.clock=", "PATH=VALUE"),
        ("=3", "PATH=VALUE"),
        ("a..b=3", "PATH=VALUE"),
        ("tags=[1, ", "broken YAML"),
    ],
)
def test_a_bad_override_is_refused_and_named(car, override: str, said: str) -> None:  # type: ignore[no-untyped-def]
    text = message(car, GOOD, override)
    assert text.startswith(f"--set {override}")
    assert said in text


def test_a_file_must_be_valid_before_overrides(car) -> None:  # type: ignore[no-untyped-def]
    assert "car.yaml:10" in message(car, GOOD.replace("12", "0"), "parts.left.spokes=3")


def test_overrides_come_as_a_mapping_too(car) -> None:  # type: ignore[no-untyped-def]
    beetle = car(GOOD)
    changed = override_model(beetle, {"parts.motor.clock": "5 kHz", "parts.left.spokes": 3})
    assert (changed.parts["motor"].clock, changed.parts["left"].spokes) == (5000, 3)
    assert (
        override_model(beetle, {"parts.motor.clock": changed.parts["motor"].clock}).parts["motor"].clock
        == 5000
    )
    assert beetle.parts["motor"].clock == 3000


def test_a_bare_number_in_a_mapping_is_in_si_units_and_in_a_text_it_needs_a_unit(car) -> None:  # type: ignore[no-untyped-def]
    beetle = car(GOOD)
    clock = override_model(beetle, {"parts.motor.clock": 2.5e6}).parts["motor"].clock
    assert (clock, clock.text, clock.source) == (2.5e6, "2.5 MHz", "set by you")
    with pytest.raises(ConfigError, match="no unit"):
        override_model(beetle, ["parts.motor.clock=2.5e6"])
    with pytest.raises(ConfigError, match="frequency"):
        override_model(beetle, {"parts.motor.clock": -1.0})
    with pytest.raises(ConfigError, match="frequency"):
        override_model(beetle, {"parts.motor.clock": True})


def test_every_valid_path_can_be_set_to_its_own_value(car) -> None:  # type: ignore[no-untyped-def]
    beetle = car(GOOD)
    paths = valid_paths(beetle)
    assert {"parts.motor.clock", "parts.motor.rates.int8", "parts.left.spokes", "tags", "schema"} <= set(
        paths
    )
    for path, value in paths.items():
        assert override_model(beetle, {path: value}) == beetle


def test_parse_override_reads_yaml_values() -> None:
    assert parse_override("a.b=[1, x]").value == [1, "x"]
    assert parse_override("a=2MiB").value == "2MiB"
    assert parse_override("a = b=c").value == "b=c"


@given(st.text(max_size=40))
def test_no_override_text_causes_anything_but_a_clear_error(text: str) -> None:
    try:
        parse_override(text)
    except NpusimError as error:
        assert error.exit_status == 2


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_file_causes_anything_but_a_clear_error(tmp_path_factory, content: bytes) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    with pytest.raises(NpusimError):
        load_model(path, Car)


plain = st.text(max_size=12).filter(lambda text: not CONTROL.search(text))


@given(
    name=plain,
    tags=st.lists(plain, max_size=4),
    clock=st.floats(1e3, 1e11),
    source=plain.filter(lambda text: text.strip()),
    parts=st.dictionaries(plain.filter(bool), st.integers(1, 99), min_size=1, max_size=3),
)
def test_a_dumped_model_loads_as_the_equal_model(
    name: str, tags: list[str], clock: float, source: str, parts: dict[str, int]
) -> None:
    data = {
        "schema": "car/1",
        "name": name,
        "tags": tags,
        "parts": {key: {"kind": "wheel", "spokes": count} for key, count in parts.items()}
        | {
            "engine": {
                "kind": "engine",
                "clock": {"value": f"{clock!r} Hz", "source": source, "uncertainty": "7 %"},
            }
        },
    }
    before = validate_data(data, Car)
    after = validate_data(compose(dump_model(before), "dump"), Car)
    assert after == before
    assert after.parts["engine"].clock.source == source
    assert dump_model(after) == dump_model(before)


@pytest.mark.filterwarnings("error")
def test_a_quantity_may_be_a_default() -> None:
    class Coasting(Section):
        drag: Ratio = Quantity(0.0, source="absent")
        clock: Frequency = Quantity(3e3, "Hz", source="absent")

    properties = schema_of(Coasting)["properties"]
    assert properties["clock"]["default"] == {"value": "3 kHz", "source": "absent"}
    assert validate_data(compose(dump_model(Coasting()), "dump"), Coasting) == Coasting()


def test_any_pydantic_model_can_be_loaded(tmp_path: Path) -> None:
    class Plain(BaseModel):
        x: int
        y: list[dict[str, int]] = []

    path = tmp_path / "plain.yaml"
    path.write_text("x: 1\ny:\n  - {a: 1}\n  - {b: z}\n")
    with pytest.raises(ConfigError, match=r"plain.yaml:4: y.1.b: found `z`; allowed: a whole number"):
        load_model(path, Plain)
    path.write_text("x: 1")
    assert load_model(path, Plain, ["x=2"]).x == 2


def test_the_schema_describes_fields_with_the_text_under_them() -> None:
    schema = schema_of(Car)
    assert schema["$defs"]["Engine"]["properties"]["clock"]["description"] == "How fast it turns."
    assert schema["$defs"]["Engine"]["properties"]["clock"]["x-unit"] == "Hz"
    assert field_descriptions(Engine) == {"clock": "How fast it turns."}
    assert set(schema["required"]) == {"schema", "name", "parts"}
