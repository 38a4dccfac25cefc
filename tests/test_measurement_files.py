"""Files of measurements come back as they were written, are merged row by row, or refused by row and key."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npusim.errors import NpusimError
from npusim.measuring import (
    Benchmark,
    Counter,
    Device,
    Measurement,
    ModelFile,
    Network,
    Row,
    Spread,
    Workload,
)
from npusim.measuring.document import merge, read_measurement

times = st.floats(1e-9, 1e3)
printable = st.characters(codec="utf-8", exclude_characters="#", exclude_categories=["C", "Z"])
words = st.text(printable, min_size=1, max_size=12)
counts = st.integers(1, 10**6)
models = st.one_of(
    st.builds(Workload, workload=words, techniques=words, settings=st.dictionaries(words, words, max_size=2)),
    st.builds(Benchmark, operator=words, sizes=st.dictionaries(words, counts, max_size=3)),
    st.builds(ModelFile, name=words),
    st.builds(Network, network=words, precision=words),
)
counters = st.builds(
    Counter,
    name=words,
    type=words,
    executed_as=words,
    originals=st.tuples(words),
    latency_s=st.just(0.0) | times,
)


@st.composite
def spreads(draw):
    low, median, high = sorted(draw(st.tuples(times, times, times)))
    return Spread(median_s=median, low_s=low, high_s=high, repetitions=draw(counts))


rows = st.builds(
    Row,
    id=words,
    model=models,
    hint=st.sampled_from(["latency", "throughput"]),
    requests=counts,
    tiles=st.none() | counts,
    precision=st.sampled_from([None, "f32", "bf16", "f16"]),
    latency_s=spreads(),
    throughput_per_s=st.none() | times,
    operators=st.lists(counters, max_size=2).map(tuple),
    note=st.just("") | words,
)


def documents(device):
    return st.builds(
        Measurement,
        npusim=st.just("0.1.0"),
        date=st.sampled_from([None, "2026-01-31"]),
        complete=st.booleans(),
        device=device,
        rows=st.lists(rows, min_size=1, max_size=3, unique_by=lambda row: row.id).map(tuple),
        warnings=st.lists(words, max_size=2).map(tuple),
    )


devices = st.builds(
    Device,
    kind=st.sampled_from(["npu", "gpu", "cpu"]),
    name=words,
    driver=st.none() | words,
    clock_hz=st.none() | times,
    turbo=st.none() | st.booleans(),
    settings=st.dictionaries(words, words, max_size=2),
)
one_chip = st.builds(
    Device,
    kind=st.just("cpu"),
    name=st.just("chip"),
    driver=st.sampled_from([None, "1", "2"]),
    settings=st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2),
)


@given(documents(devices))
def test_what_is_written_is_read_as_the_same(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("run") / "run.json"
    path.write_text(document.to_json(), encoding="utf-8")
    assert read_measurement(path) == document


@settings(max_examples=60)
@given(st.lists(documents(one_chip), min_size=3, max_size=3))
def test_merging_is_associative_but_for_what_it_warns_of(three):
    a, b, c = three
    left, right, at_once = merge([merge([a, b]), c]), merge([a, merge([b, c])]), merge([a, b, c])
    told = {"warnings": ()}
    assert left.model_copy(update=told) == at_once.model_copy(update=told)
    assert right.model_copy(update=told) == at_once.model_copy(update=told)


@given(st.lists(documents(one_chip), min_size=1, max_size=4))
def test_merging_keeps_every_row_in_order_and_their_ids_apart(several):
    merged = merge(several)
    before = [row for document in several for row in document.rows]
    assert [row.model_copy(update={"id": ""}) for row in merged.rows] == [
        row.model_copy(update={"id": ""}) for row in before
    ]
    assert len({row.id for row in merged.rows}) == len(before)
    assert merged.complete == all(document.complete for document in several)
    assert Measurement.model_validate_json(merged.to_json()) == merged


def document(**device):
    spread = Spread(median_s=2.0, low_s=1.0, high_s=3.0, repetitions=5)
    row = Row(id="gemm", model=Network(network="x", precision="int8"), precision="f32", latency_s=spread)
    return Measurement(
        npusim="0.1.0", device=Device(**{"kind": "cpu", "name": "chip", **device}), rows=(row,)
    )


def test_equal_ids_are_numbered():
    assert [row.id for row in merge([document()] * 3).rows] == ["gemm", "gemm #2", "gemm #3"]


def test_one_measurement_is_merged_into_itself():
    assert merge([document()]) == document()


def test_what_merged_documents_differ_in_is_told():
    other = document(driver="2", openvino="2026.4")
    row = other.rows[0].model_copy(update={"precision": "bf16"})
    merged = merge([document(driver="1", openvino="2026.4"), other.model_copy(update={"rows": (row,)})])
    assert merged.device.driver is None
    assert merged.device.openvino == "2026.4"
    assert any("driver: 1 and 2" in text for text in merged.warnings)
    assert any("precision of floating point: f32 and bf16" in text for text in merged.warnings)


@pytest.mark.parametrize("other", [{"kind": "npu"}, {"name": "another"}])
def test_other_chips_and_other_classes_are_not_merged(other):
    with pytest.raises(NpusimError, match=r"a\.json is of cpu `chip`, b\.json of") as refused:
        merge([document(), document(**other)], ["a.json", "b.json"])
    assert all(value in str(refused.value) for value in other.values())


def test_nothing_is_not_merged():
    with pytest.raises(NpusimError, match="at least one"):
        merge([])


def changed(path, change):
    data = json.loads(document().to_json())
    change(data)
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return path


def set_time(value, key="median_s"):
    return lambda data: data["rows"][0]["latency_s"].update({key: value})


def counter(**keys):
    entry = {"name": "a", "type": "MatMul", "latency_s": 1e-3} | keys
    return lambda data: data["rows"][0].update(operators=[entry])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_time(0), ("row 1 (`gemm`): latency_s.median_s", "`0`", "equal to 0.000000001")),
        (set_time(-1e-3), ("row 1 (`gemm`): latency_s.median_s", "`-0.001`", "equal to 0.000000001")),
        (set_time(math.nan), ("row 1 (`gemm`): latency_s.median_s", "`nan`", "finite")),
        (set_time(math.inf), ("row 1 (`gemm`): latency_s.median_s", "`inf`", "finite")),
        (set_time("soon"), ("row 1 (`gemm`): latency_s.median_s", "`soon`", "number")),
        (set_time(9.0, "low_s"), ("row 1 (`gemm`): latency_s", "must not decrease")),
        (counter(latency_s=-1), ("row 1 (`gemm`): operators.0.latency_s", "`-1`", "a finite number from 0")),
        (counter(cpuTime=1), ("row 1 (`gemm`): operators.0.cpuTime", "unknown key", "latency_s")),
        (counter(latncy_s=1), ("unknown key `latncy_s`", "did you mean `latency_s`?")),
        (lambda d: d["rows"][0].update(hint="latencies"), ("row 1 (`gemm`): hint", "mean `latency`?")),
        (lambda d: d["rows"][0]["model"].update(kind="net"), ("row 1 (`gemm`): model", "`net`", "network")),
        (lambda d: d["rows"][0].update(latency_s=None), ("row 1 (`gemm`)", "needs latency_s or throughput")),
        (lambda d: d["rows"][0].update(energy_j=0), ("row 1 (`gemm`): energy_j", "`0`", "greater than 0")),
        (lambda d: d["rows"][0].pop("id"), ("row 1: id", "no key `id`")),
        (lambda d: d["rows"].append(d["rows"][0]), ("two rows are called 'gemm'",)),
        (lambda d: d["rows"].append(7), ("row 2", "`7`", "a mapping")),
        (lambda d: d.update(rows=[]), ("rows: found 0 entries", "at least 1")),
        (lambda d: d["device"].update(kind="tpu"), ("device.kind", "`tpu`", "npu, gpu, cpu")),
        (lambda d: d.update(schema="npusim.measurement/2"), ("`npusim.measurement/2`", "another version")),
        (lambda d: d.update(schema="npusim.sweep/1"), ("`npusim.sweep/1`", "npusim.measurement/1")),
        (lambda d: d.pop("schema"), ("no key `schema`", "npusim measure")),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_named_by_file_row_and_key(tmp_path, change, said):
    with pytest.raises(NpusimError) as refused:
        read_measurement(changed(tmp_path / "odd.json", change))
    assert "odd.json" in str(refused.value)
    assert all(words in str(refused.value) for words in said), str(refused.value)


def test_the_line_of_a_wrong_value_is_named(tmp_path):
    path = changed(tmp_path / "run.json", set_time(0))
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "median_s" in text)
    with pytest.raises(NpusimError, match=rf"run\.json:{line}: row 1"):
        read_measurement(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ("an empty file",)),
        (b" \n", ("an empty file",)),
        (b"[]", ("a list", "npusim measure")),
        (b"7", ("`7`",)),
        (b'{"a": 1,\n "a": 2}', ("the key `a` a second time",)),
        (b'{"a": 1,\n "b" 2}', (":2:", "broken JSON", "column 6")),
        (b'{"a": "\xe9"}', ("not UTF-8", "line 1")),
        (b"[" * 100_000, ("run.json",)),
    ],
)
def test_what_is_no_measurement_is_refused(tmp_path, data, said):
    (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(NpusimError) as refused:
        read_measurement(tmp_path / "run.json")
    assert all(words in str(refused.value) for words in said), str(refused.value)


@settings(max_examples=40)
@given(cut=st.floats(0.001, 0.999))
def test_a_file_that_is_cut_off_anywhere_is_refused_with_line_and_column(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("cut") / "run.json"
    text = document().to_json()
    path.write_text(text[: max(1, int(cut * len(text)))])
    with pytest.raises(
        NpusimError, match=r"run\.json:\d+: found (JSON that ends too early|broken JSON).*column"
    ):
        read_measurement(path)


def test_what_is_not_there_or_a_folder_is_refused(tmp_path):
    with pytest.raises(NpusimError, match="no such file"):
        read_measurement(tmp_path / "none.json")
    with pytest.raises(NpusimError, match="is a directory"):
        read_measurement(tmp_path)
