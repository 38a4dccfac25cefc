"""What must hold of quantities: units are changed to SI, bounds and finiteness hold, sources survive."""

import copy
import pickle
from decimal import Decimal

import jsonschema
import pint
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from npusim import units
from npusim.units import _ATOMS, Count, Kind, Quantity, format_quantity, unit_factor

KINDS = {
    name: annotated
    for name in vars(units)
    if isinstance(getattr(annotated := getattr(units, name), "__metadata__", (None,))[0], Kind)
}


def kind_of(annotated: object) -> Kind:
    (kind,) = annotated.__metadata__  # type: ignore[attr-defined]
    return kind


def read(name: str, raw: object) -> Quantity:
    return TypeAdapter(getattr(units, name)).validate_python(raw)


def refusal(name: str, raw: object) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        read(name, raw)
    return caught.value.errors()[0]["ctx"]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("Frequency", "1.85 GHz", 1.85e9),
        ("Frequency", "975MHz", 975e6),
        ("Bytes", "1440 KiB", 1440 * 1024),
        ("Bandwidth", "58.7 GB/s", 58.7e9),
        ("Bandwidth", "8 Gbit/s", 1e9),
        ("Duration", "0.25 ms", 0.00025),
        ("EnergyPerByte", "8 pJ/bit", 64e-12),
        ("Area", "2.5 mm²", 2.5e-6),
        ("AreaPerByte", "0.3 um^2/B", 0.3e-12),
        ("PowerPerArea", "20 mW/mm^2", 2e4),
        ("Fraction", "35 %", 0.35),
        ("Ratio", 2, 2.0),
        ("MacsPerCycle", "8 MAC/cycle", 8.0),
    ],
)
def test_a_value_is_changed_to_si(name: str, text: object, value: float) -> None:
    assert read(name, text) == value


def test_the_text_is_kept_as_written_and_arithmetic_is_plain() -> None:
    clock = read("Frequency", "1.85 GHz")
    assert (clock.text, clock.unit, clock.source, clock.uncertainty) == ("1.85 GHz", "Hz", "user", None)
    assert type(clock * 2) is float


def test_a_mapping_carries_source_uncertainty_and_note() -> None:
    told = {"value": "48 GB/s", "source": "[READING]", "uncertainty": "10 %", "note": "one reading"}
    bandwidth = read("Bandwidth", told)
    assert (bandwidth, bandwidth.source, bandwidth.uncertainty, bandwidth.note) == (
        48e9,
        "[READING]",
        0.1,
        "one reading",
    )


@pytest.mark.parametrize(
    "text",
    [
        "3 MiB", "nan GHz", "inf GHz", "-1 GHz", "0 Hz", "0 GHz", "1e400 Hz", "1e9999999999 Hz", "-inf Hz",
        "GHz", "", "1.85", "1,85 GHz", "1_0 GHz", "1 GHz GHz", "1 Hz; 2", "1 2 Hz", "2 9**9**9 Hz", "1 degC",
        "1 dB", "-0 Hz",
    ],
)  # fmt: skip
def test_what_is_no_frequency_is_refused_with_an_example(text: str) -> None:
    assert "1.85 GHz" in refusal("Frequency", text)["allowed"]


@pytest.mark.parametrize(
    "raw", [1.85e9, 3, True, None, [1], {}, {"value": None}, {"value": "1 Hz", "unit": "Hz"}]
)
def test_what_is_no_quantity_at_all_is_refused(raw: object) -> None:
    refusal("Frequency", raw)


def test_a_number_without_its_unit_is_refused_by_name() -> None:
    assert "no unit" in refusal("Frequency", "1.85")["found"]


def test_a_misspelt_unit_is_recognised() -> None:
    assert refusal("Frequency", "975 Mhz")["suggestion"] == "975 MHz"


@pytest.mark.parametrize(
    "told",
    [
        {"value": "1 Hz", "sorce": "x"},
        {"value": "1 Hz", "source": ""},
        {"value": "1 Hz", "source": 3},
        {"value": "1 Hz", "uncertainty": "-3 %"},
        {"value": "1 Hz", "uncertainty": "3 Hz"},
        {"value": "1 Hz", "uncertainty": True},
        {"source": "x"},
    ],
)
def test_a_bad_provenance_is_refused(told: dict[str, object]) -> None:
    refusal("Frequency", told)


def test_a_quantity_of_another_dimension_is_refused() -> None:
    refusal("Frequency", Quantity(3.0, "B"))
    refusal("Frequency", Quantity(float("nan"), "Hz"))
    assert read("Frequency", Quantity(3e9, "Hz")) == 3e9


@given(st.sampled_from(sorted(KINDS)), st.text(max_size=20) | st.floats().map(str) | st.integers().map(str))
@example("Bandwidth", "1 B/0 s")
def test_no_text_ever_gives_a_value_out_of_bounds(name: str, text: str) -> None:
    kind = kind_of(KINDS[name])
    for raw in (text, f"{text} {kind.unit}"):
        try:
            value = read(name, raw)
        except ValidationError:
            continue
        assert abs(value) < float("inf")
        assert kind.least <= value <= kind.most


@given(st.floats(1e-80, 1e80), st.sampled_from(sorted(KINDS)))
def test_formatted_text_reads_as_the_same_float(value: float, name: str) -> None:
    kind = kind_of(KINDS[name])
    value = max(min(value, kind.most), kind.least)
    assert read(name, format_quantity(value, kind.unit)) == value


@given(
    st.floats(1e-30, 1), st.sampled_from(sorted(KINDS)), st.none() | st.floats(0, 1e8), st.text(max_size=9)
)
def test_written_out_it_reads_as_the_same_quantity(
    value: float, name: str, uncertainty: float | None, source: str
) -> None:
    adapter = TypeAdapter(KINDS[name])
    value = max(min(value, kind_of(KINDS[name]).most), kind_of(KINDS[name]).least)
    before = Quantity(
        value, kind_of(KINDS[name]).unit, source=source.strip() or "user", uncertainty=uncertainty
    )
    after = adapter.validate_python(adapter.dump_python(before, mode="json"))
    assert (after, after.unit, after.source, after.uncertainty) == (
        before,
        before.unit,
        before.source,
        before.uncertainty,
    )


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_keep_the_source(duplicate: object) -> None:
    clock = Quantity(1e9, "Hz", source="[X]", uncertainty=0.1, note="n", text="1 GHz")
    count = Count(3, source="[X]", uncertainty=0.2, note="n")
    for number in (clock, count):
        twin = duplicate(number)  # type: ignore[operator]
        assert (twin, twin.source, twin.uncertainty, twin.note, twin.text, type(twin)) == (
            number,
            number.source,
            number.uncertainty,
            number.note,
            number.text,
            type(number),
        )


@pytest.mark.parametrize(
    "raw", [0, -1, 1.5, 2.0, "2", True, None, 2**60, {"value": 1.5}, {"value": 2, "x": 1}]
)
def test_a_count_is_a_whole_number_of_one_or_more(raw: object) -> None:
    refusal("PositiveCount", raw)
    assert read("PositiveCount", {"value": 2, "source": "[X]"}) == 2


def test_the_list_of_units_agrees_with_pint() -> None:
    registry = pint.UnitRegistry()
    for symbol in sorted(set(_ATOMS) - {"m^2", "cycle", "MAC", "op", "element"}):
        base, worth = _ATOMS[symbol]
        by_pint = registry.Quantity(1.0, symbol or "dimensionless").to(base or "dimensionless").m
        assert float(worth) == pytest.approx(by_pint, rel=1e-12), symbol


@given(st.data(), st.sampled_from(sorted({kind_of(kind).unit for kind in KINDS.values()} - {""})))
def test_a_quotient_of_units_has_the_quotient_of_their_factors(data: st.DataObject, target: str) -> None:
    parts = [
        data.draw(st.sampled_from([(s, worth) for s, (base, worth) in _ATOMS.items() if base == part]))
        for part in target.split("/")
    ]
    unit, wanted = "/".join(symbol for symbol, _ in parts), parts[0][1]
    assert unit_factor(unit, target) == (wanted / parts[1][1] if len(parts) > 1 else wanted)


def test_units_of_another_dimension_have_no_factor() -> None:
    assert unit_factor("kHz", "Hz") == Decimal(1000)
    assert unit_factor("parsec", "Hz") is None
    assert unit_factor("pJ/MAC", "J/B") is None
    assert unit_factor("mm²", "m^2") == unit_factor("mm**2", "m^2") == Decimal("1e-6")


@given(st.sampled_from(sorted(KINDS)), st.floats(allow_nan=True, allow_infinity=True))
def test_schema_and_parser_agree_on_numbers_with_the_si_unit(name: str, value: float) -> None:
    adapter = TypeAdapter(KINDS[name])
    raw = f"{value!r} {kind_of(KINDS[name]).unit}".strip()
    try:
        adapter.validate_python(raw)
    except ValidationError:
        # What a pattern cannot say are bounds; everything else the schema refuses too.
        kind = kind_of(KINDS[name])
        assert (
            not jsonschema.Draft202012Validator(adapter.json_schema()).is_valid(raw)
            or not kind.least <= value <= kind.most
        )
    else:
        jsonschema.validate(raw, adapter.json_schema())


def test_the_schema_tells_unit_and_bounds() -> None:
    schema = TypeAdapter(units.Frequency).json_schema()
    assert (schema["x-unit"], schema["x-minimum"], schema["examples"]) == ("Hz", 1e3, ["1.85 GHz"])
    fraction = TypeAdapter(units.Fraction).json_schema()
    assert fraction["anyOf"][0]["anyOf"][0] == {"type": "number", "minimum": 0.0, "maximum": 1.0}
