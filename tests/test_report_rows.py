"""Points of a space in the terminal: exact counts, knobs with units, and nothing cut on a narrow screen."""

import io

import pyarrow as pa
import pytest
from rich.console import Console

from npusim.reporting.exploration import rows_page, shown_value


def text_of(table: pa.Table | None, columns: int = 80, units: dict[str, str] | None = None) -> str:
    stream = io.StringIO()
    Console(file=stream, width=columns, color_system=None).print(rows_page(table, units))
    return stream.getvalue()


def test_a_count_is_exact_and_a_point_can_be_pasted() -> None:
    assert shown_value("count_star()", 13_996_800) == "13,996,800"
    assert shown_value("point", 13_996_800) == "13996800"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (786432.0, "B", "768 KiB"),
        (270e9, "B/s", "270 GB/s"),
        (1.55e9, "Hz", "1.55 GHz"),
        (1.2345678912345e9, "Hz", "1.23 GHz"),
    ],
)
def test_a_knob_has_its_unit(value: float, unit: str, shown: str) -> None:
    assert shown_value("npu.knob", value, {"npu.knob": unit}) == shown


def test_what_is_missing_is_a_dash() -> None:
    assert shown_value("latency_s_low", None) == "-"


def test_a_narrow_terminal_gets_a_block_a_row() -> None:
    names = [f"npu.a_rather_long_knob_{i}" for i in range(9)]
    table = pa.table({name: [1000 + i, 2000 + i] for i, name in enumerate(names)})
    wide, narrow = text_of(table, 400), text_of(table, 80)
    assert len(wide.splitlines()) == 3
    assert len(narrow.splitlines()) == 2 * len(names) + 1
    for line, name in zip(narrow.splitlines(), names, strict=False):
        assert line.startswith(name)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "1,008" in narrow and "2,008" in narrow


def test_names_in_brackets_are_no_markup() -> None:
    assert "[bold]" in text_of(pa.table({"[bold]": ["[/red]"]}))


def test_a_long_answer_says_how_much_is_left() -> None:
    assert "and 5 more" in text_of(pa.table({"n": list(range(1005))}))


def test_an_answer_without_columns_is_done() -> None:
    assert text_of(None).strip() == "done"
