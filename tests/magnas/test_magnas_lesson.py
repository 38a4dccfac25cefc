"""The lesson on placing counts the points of the front that each search reaches."""

import re

import pytest

pytest.importorskip("marimo", reason="lessons need the extra `learn`")

from npusim.magnas import lesson as placing

pytestmark = pytest.mark.usefixtures("own_main")


@pytest.mark.laws
def test_evolution_comes_near_most_of_the_front_and_chance_near_none() -> None:
    _, text = placing._fronts.show(2000, placing.BLOCKS - 1)
    rows = {row[0]: row[1:4] for row in re.findall(r"\| (\w+) \| (\d+) \| (\d+) \| (\d+) \|", text)}
    size = int(rows["exact"][0])
    assert rows["exact"] == (str(size),) * 3
    assert int(rows["evolution"][2]) > size / 2 > int(rows["evolution"][0])
    assert rows["chance"] == ("0", "0", "0")
