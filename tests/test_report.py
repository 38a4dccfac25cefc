"""Pages for the terminal: numbers as engineers write them, names that fit, bars that can be compared."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from npusim import apply, estimate, load_soc, load_workload, whatif
from npusim.catalogues import CATALOGUES, listing
from npusim.engines import Estimate
from npusim.reporting.engineering import engineering, factor, last_digit, percent
from npusim.reporting.estimate import estimate_page
from npusim.reporting.listing import listing_page
from npusim.reporting.terminal import LongName, bar
from npusim.reporting.whatif import whatif_page
from npusim.studies import WhatIf

WORTH = {
    "f": 1e-15,
    "p": 1e-12,
    "n": 1e-9,
    "µ": 1e-6,
    "m": 1e-3,
    "": 1,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
}
STACKS = ["none", "stagr", "stagr+grasp", "stagr+quantgr", "stagr+quantgr+symg+cacheg"]


def text_of(page: RenderableType, columns: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=columns, color_system=None, highlight=False, emoji=False).print(page)
    return out.getvalue()


@pytest.fixture(scope="module")
def gcn() -> Estimate:
    return estimate(apply(load_workload("gcn-cora"), "stagr"), load_soc("core-ultra-series2"))


@pytest.fixture(scope="module")
def comparison() -> WhatIf:
    return whatif(load_workload("gcn-cora"), load_soc("core-ultra-series2"), STACKS)


@given(st.floats(min_value=1e-14, max_value=9.99e14))
def test_a_quantity_reads_back_as_the_same_number_in_three_digits(value: float) -> None:
    number, unit = engineering(value, "s").split(" ")
    assert float(number) * WORTH[unit.removesuffix("s")] == pytest.approx(value, rel=5.001e-3)
    assert 1 <= float(number) < 1000
    assert len(number.replace(".", "")) <= 3


POSITIVE = st.floats(min_value=1e-12, max_value=1e12)


@given(st.lists(POSITIVE, min_size=3, max_size=3))
def test_a_value_shows_no_more_digits_than_its_interval_bears(numbers: list[float]) -> None:
    low, value, high = sorted(numbers)
    last, error = last_digit((low, high)), (high - low) / 2
    shown = [factor(x, last) for x in (low, value, high)]
    read = [float(text.removesuffix("x")) for text in shown]
    assert read[0] <= read[1] <= read[2]
    assert all(x > 0 for x in read), "at least one digit is shown"
    if last is not None:
        # The unit of the last digit is between a tenth and all of the error, but for the first digit.
        assert 3.5 <= error / 10.0**last < 36 or error == 0
        digits = shown[1].removesuffix("x").replace(".", "").strip("0")
        assert len(digits) <= 3
        assert (
            read[1] == pytest.approx(value, abs=0.5 * 10.0**last * (1 + 1e-9), rel=5.1e-3)
            or value < 10.0**last
        )


@given(POSITIVE, st.floats(min_value=1e-3, max_value=2.0))
def test_a_wider_interval_never_shows_more_digits(value: float, width: float) -> None:
    narrow, wide = (last_digit((value / (1 + w), value * (1 + w))) for w in (width, 2 * width))
    assert narrow is not None and wide is not None and narrow <= wide
    assert (
        len(engineering(value, "s", wide).split()[0]) <= len(engineering(value, "s", narrow).split()[0]) + 1
    )


def test_no_quantity_is_shown_with_a_thousand_of_its_unit() -> None:
    assert engineering(999.96e-6, "s") == "1.00 ms"
    assert engineering(999_600, "B") == "1.00 MB"


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 s"), (float("nan"), "-"), (float("inf"), "-"), (12.0, "12 s")]
)
def test_zero_counts_and_what_is_no_number(value: float, text: str) -> None:
    assert engineering(value, "s") == text


def test_factors_and_shares_keep_the_digits_that_matter() -> None:
    assert [factor(ratio) for ratio in (1.0, 9.999, 99.96, 1234.0)] == ["1.00x", "10.0x", "100x", "1230x"]
    assert [percent(part) for part in (0.4999, 0.004, 1e-6, 0.0, 1.0)] == [
        "50 %",
        "0.4 %",
        "<0.1 %",
        "0 %",
        "100 %",
    ]


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_longer_bar_belongs_to_the_larger_value(one: float, other: float) -> None:
    small, large = sorted((one, other))
    lengths = [len(text_of(bar(value, 1.0, width=20)).rstrip()) for value in (small, large)]
    assert lengths[0] <= lengths[1] <= 20


def test_a_value_that_is_not_nothing_has_a_bar() -> None:
    assert text_of(bar(1e-9, 1.0, width=8)).strip()
    assert not text_of(bar(0.0, 1.0, width=8)).strip()
    assert not text_of(bar(float("nan"), 1.0, width=8)).strip()


@given(st.lists(st.text("abcx:/+", min_size=1, max_size=12), min_size=1, max_size=6), st.integers(1, 30))
def test_a_long_name_loses_nothing_when_it_is_broken(words: list[str], width: int) -> None:
    name = "+".join(words)
    lines = LongName(name, joints="+:").lines(width)
    assert "".join(lines) == name
    assert all(len(line) <= width or not re.search(r"[^+:][+:]+[^+:]", line) for line in lines)


def test_an_estimate_names_its_figures_units_operators_and_notes(gcn: Estimate) -> None:
    page = text_of(estimate_page(gcn))
    for figure in (
        engineering(gcn.latency_s, "s"),
        engineering(gcn.energy_j, "J"),
        engineering(gcn.dram_bytes, "B"),
    ):
        assert figure in page
    assert "npu.dma" in page
    assert "layer0/aggregate/matmul" in page
    assert "unmeasured" in page


def test_operators_come_in_the_order_of_their_cost_with_what_rides_along(gcn: Estimate) -> None:
    page = text_of(estimate_page(gcn))
    by_cost = [op.name for op in sorted(gcn.operators, key=lambda op: -op.latency_s) if op.latency_s > 0]
    places = [page.index(f"\n{name}") for name in by_cost]
    assert places == sorted(places)
    fused = [name for op in gcn.operators for name in op.fused]
    assert fused
    assert all(f"+ {name}" in page for name in fused)


def test_an_estimate_of_many_operators_says_how_many_it_does_not_show() -> None:
    gat = estimate(load_workload("gat-cora"), load_soc("core-ultra-series2"))
    assert re.search(r"\d+ more operators of at most", text_of(estimate_page(gat)))


def test_warnings_are_shown(gcn: Estimate) -> None:
    warned = gcn.model_copy(update={"warnings": ["operators npusim does not know: Foo"]})
    assert "Warning - operators npusim does not know: Foo" in text_of(estimate_page(warned))


def test_an_interval_is_shown_where_there_is_one(gcn: Estimate) -> None:
    fitted = gcn.model_copy(update={"latency_interval_s": (0.5e-3, 0.9e-3)})
    assert "[500 µs to 900 µs]" in text_of(estimate_page(fitted))


@pytest.mark.laws
def test_a_comparison_ends_with_its_conclusion(comparison: WhatIf) -> None:
    page = text_of(whatif_page(comparison))
    assert page.split("\n\n")[-1].split() == comparison.conclusion.split()


def test_a_comparison_shows_every_stack_in_the_table_and_in_the_chart(comparison: WhatIf) -> None:
    page = text_of(whatif_page(comparison), columns=120)
    for stack in STACKS:
        assert len(re.findall(rf"^{re.escape(stack)} (?!on the)", page, flags=re.MULTILINE)) == 2


def test_a_comparison_tells_which_stacks_are_dominated_and_which_were_left_out(comparison: WhatIf) -> None:
    beaten = [variant for variant in comparison.variants if variant.dominated_by]
    page = text_of(whatif_page(comparison), columns=200)
    assert all(f"{v.dominated_by} is better than" in page and v.techniques in page for v in beaten)
    gat = whatif(load_workload("gat-cora"), load_soc("core-ultra-series2"), ["none", "stagr+symg"])
    assert "symg needs a symmetric" in text_of(whatif_page(gat))


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(
    comparison: WhatIf, gcn: Estimate, columns: int
) -> None:
    for page in (whatif_page(comparison), estimate_page(gcn), *map(listing_page, map(listing, CATALOGUES))):
        lines = text_of(page, columns).splitlines()
        assert max(map(len, lines)) <= columns
        assert columns < 80 or not any("…" in line for line in lines)


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_a_catalogue_shows_every_entry(catalogue: str) -> None:
    found = listing(catalogue)
    page = text_of(listing_page(found))
    assert all(entry["name"] in page for entry in found.entries)


def test_a_machine_without_an_npu_is_listed_too() -> None:
    from npusim.catalogues import Listing

    entry = {"name": "board", "title": "A board", "devices": {"cpu": "cpu"}, "dram_bytes_per_s": 1e10}
    assert "DRAM 10.0 GB/s" in text_of(listing_page(Listing(catalogue="socs", entries=[entry])))
