"""A log of power (HWiNFO) is read whatever its encoding and locale, or refused with the wrong line."""

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import NpusimError
from npusim.measuring.energy import read_power_log

HEADER = 'Date,Time,"Core 0 [°C]","CPU Package Power [W]","NPU Power [W]","GT Cores Power [W]","Fan [RPM]",'
ROWS = ("21.11.2026,10:00:00.000,51,12.5,0.500,0.0,900,", "21.11.2026,10:00:02.000,52,14.5,1.500,0.0,910,")
FOOTER = (HEADER, ',,"CPU [#0]: Intel","CPU [#0]: Intel","NPU","GPU","Board",')


def written(path, *lines, encoding="cp1252"):
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode(encoding))
    return path


def unix(second):
    return datetime.datetime(2026, 11, 21, 10, 0, 0).timestamp() + second


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-8-sig"])
def test_a_log_is_read_in_every_encoding_that_hwinfo_writes(tmp_path, encoding):
    path = written(tmp_path / "log.csv", HEADER, *ROWS, *FOOTER, encoding=encoding)
    log = read_power_log(path, "npu")
    assert log.seconds.tolist() == [0.0, 2.0]
    assert log.start == datetime.datetime(2026, 11, 21, 10)
    assert log.power_w.tolist() == [0.5, 1.5]
    assert read_power_log(path, "cpu").power_w.tolist() == [12.5, 14.5]


def test_a_column_that_reads_0_throughout_is_not_available(tmp_path):
    with pytest.raises(NpusimError, match=r"GT Cores Power.*0 throughout"):
        read_power_log(written(tmp_path / "log.csv", HEADER, *ROWS), "gpu")


def test_semicolons_decimal_commas_iso_dates_and_milliwatts(tmp_path):
    lines = "Date;Time;NPU power draw [mW]", "2026-11-21;9:59:59,500;1500,5", "2026-11-21;10:00:00,500;2500,5"
    log = read_power_log(written(tmp_path / "log.csv", *lines), "npu")
    assert log.seconds.tolist() == [0.0, 1.0]
    assert log.power_w == pytest.approx([1.5005, 2.5005])


def test_mean_power_joins_readings_by_straight_lines(tmp_path):
    log = read_power_log(written(tmp_path / "log.csv", HEADER, *ROWS), "npu")
    assert log.mean_power_w(unix(0), unix(2)) == pytest.approx(1.0)
    assert log.mean_power_w(unix(0.5), unix(1.0)) == pytest.approx(0.875)


@pytest.mark.parametrize("span", [(-1, 1), (1, 3), (1, 1), (2, 1)])
def test_a_span_outside_the_log_has_no_power(tmp_path, span):
    log = read_power_log(written(tmp_path / "log.csv", HEADER, *ROWS), "npu")
    assert log.mean_power_w(unix(span[0]), unix(span[1])) is None


@given(powers=st.lists(st.floats(0.1, 100.0), min_size=3, max_size=12), cut=st.floats(0.05, 0.95))
def test_energy_of_two_spans_adds_up(tmp_path_factory, powers, cut):
    lines = [f"2026-11-21,10:00:{i:02d},{power:.6f}" for i, power in enumerate(powers)]
    path = tmp_path_factory.mktemp("log") / "log.csv"
    log = read_power_log(written(path, "Date,Time,CPU Package Power [W]", *lines), "cpu")
    last = float(log.seconds[-1])
    middle = cut * last

    def joules(begin, end):
        return log.mean_power_w(unix(begin), unix(end)) * (end - begin)

    # Unix time has microseconds left of its 53 bits.
    assert joules(0, middle) + joules(middle, last) == pytest.approx(joules(0, last), rel=1e-4)
    assert np.min(log.power_w) <= joules(0, last) / last <= np.max(log.power_w) + 1e-9


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HEADER, ROWS[0], "21.11.2026,10:00:02.000,52,14.5,-1,0.0,910,"], (":3:", "NPU Power [W]", "`-1`")),
        ([HEADER, ROWS[0], "21.11.2026,10:00:02.000,52,12,n/a,0.0,910,"], (":3:", "NPU Power", "`n/a`")),
        ([HEADER, ROWS[0], "21.11.2026,10:00:02.000,52,12,NaN,0.0,910,"], (":3:", "`NaN`")),
        ([HEADER, ROWS[0], "21.11.2026,10:00:02"], (":3:", "2 fields")),
        ([HEADER, ROWS[0], "11/21/2026,10:00:02,52,14.5,1,0,9,"], (":3:", "`11/21/2026 ", "day.month.year")),
        ([HEADER, ROWS[0], "21.11.2026,10:61:02,52,14.5,1,0,9,"], (":3:", "10:61:02`")),
        ([HEADER, ROWS[1], ROWS[0]], (":3:", "the order of time")),
        ([HEADER, ROWS[0]], ("1 readings", "at least two")),
        ([HEADER], ("0 readings",)),
        (["Date,Time,Core 0 [°C],Load [%]", "21.11.2026,10:00:00,1,2"], ("no power of the NPU", "Core 0")),
        (["Date,Time,NPU Power [%]", "21.11.2026,10:00:00,1"], ("no power of the NPU", "NPU Power [%]")),
        (["a;b", "1;2"], ("`a, b`", "Date, Time")),
        ([""], ("Date, Time",)),
        (
            ["Date,Time,NPU Power [W]", "1.1.2026,1:0:0,0", "1.1.2026,1:0:1,0"],
            ("0 throughout", "above 0"),
        ),
        ([HEADER, '21.11.2026,"10:00'], ("broken CSV",)),
    ],
)  # fmt: skip
def test_a_broken_log_is_refused_with_its_line(tmp_path, lines, said):
    with pytest.raises(NpusimError) as refused:
        read_power_log(written(tmp_path / "power.csv", *lines), "npu")
    assert "power.csv" in str(refused.value)
    assert all(words in str(refused.value) for words in said), str(refused.value)


def test_a_log_that_is_no_text_or_not_there_is_refused(tmp_path):
    (tmp_path / "log.csv").write_bytes(b"Date,Time\r\n\x81\x8d\x9d")
    with pytest.raises(NpusimError, match=r"log\.csv.*line 2"):
        read_power_log(tmp_path / "log.csv", "npu")
    with pytest.raises(NpusimError, match="no such file"):
        read_power_log(tmp_path / "none.csv", "npu")
