"""The framework of suites: reading figures, predicting rows, grouping them, judging them."""

import csv
import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import npusim
from npusim.arch import load_soc
from npusim.cli.program import run
from npusim.config import schema_of
from npusim.config.tables import Choice, Number, Pair, Text
from npusim.cost import Unit
from npusim.errors import ConfigError, FileError, UnknownNameError
from npusim.locate import resource
from npusim.mapping import Run, map_graph
from npusim.techniques import apply
from npusim.validation import Validation, load_suite, run_suite, suite_names
from npusim.validation.figures import Evidence, key_of, read_csv, read_keyed
from npusim.validation.running import errors_by_group, group_of_rows, judge
from npusim.validation.suite import Condition, Group, Suite, figures_path
from npusim.validation.unit_figures import CHANNELWISE
from npusim.workloads import load_workload

UNIT_SUITES = (
    "costmodel-dma",
    "costmodel-dma-rows",
    "costmodel-eltwise-pool",
    "costmodel-gemm",
    "costmodel-sparse",
    "dsp",
    "silicon-dma",
    "silicon-dpu",
    "silicon-sparsity",
    "silicon-traces",
)
DMA_HEADER = "npu,direction,bytes,measured_s"
COLUMNS = (Text("npu"), Choice("direction", ("in", "out")), Number("bytes", whole=True), Number("seconds"))


def written(folder: Path, *lines: str, name: str = "figures.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def refusal_of(path: Path, columns=COLUMNS) -> str:
    with pytest.raises(ConfigError) as refused:
        read_csv(path, columns)
    return str(refused.value)


def rows_off_by(*errors: float) -> Evidence:
    measured = np.ones(len(errors))
    return Evidence(range(len(errors)), {}, measured, measured + errors, "", (), ())


class TestReadingCsv:
    HEADER = "npu,direction,bytes,seconds"

    def test_rows_are_known_by_their_line_and_blank_lines_count(self, tmp_path):
        path = written(tmp_path, self.HEADER, "a,in,1,2e-6", "", "b,out,3,4")
        figures = read_csv(path, COLUMNS)
        assert figures.ids.tolist() == [2, 4]
        assert figures["seconds"].tolist() == [2e-6, 4.0]
        assert figures["npu"].tolist() == ["a", "b"]

    def test_a_quoted_field_over_two_lines_counts_as_one_row_at_its_first_line(self, tmp_path):
        path = written(tmp_path, self.HEADER, '"a\nx",in,1,2', "b,in,1,2")
        assert read_csv(path, COLUMNS).ids.tolist() == [2, 4]

    def test_columns_may_come_in_any_order_with_a_byte_order_mark_and_dos_line_ends(self, tmp_path):
        path = tmp_path / "figures.csv"
        path.write_bytes(b"\xef\xbb\xbfseconds,bytes,npu,direction\r\n1.5,2,a,in\r\n")
        assert read_csv(path, COLUMNS)["seconds"].tolist() == [1.5]

    def test_unknown_columns_are_skipped_with_a_note(self, tmp_path):
        figures = read_csv(written(tmp_path, f"{self.HEADER},colour", "a,in,1,2,red"), COLUMNS)
        assert figures.notes == ("figures.csv: skipped the unknown columns colour",)

    def test_a_missing_column_names_the_one_that_was_probably_meant(self, tmp_path):
        message = refusal_of(written(tmp_path, "npu,direction,bytes,second", "a,in,1,2"))
        assert ":1: found no column `seconds` but `second`" in message

    @pytest.mark.parametrize("bad", ["nan", "inf", "0", "-1", "", "1,5", "fast", "1e999", "0x10"])
    def test_a_measured_value_must_be_a_finite_number_above_zero(self, tmp_path, bad):
        message = refusal_of(written(tmp_path, self.HEADER, "a,in,1,2", f'a,in,1,"{bad}"'))
        assert "figures.csv:3: seconds: found" in message
        assert "allowed: a number above 0" in message

    def test_a_count_must_be_whole(self, tmp_path):
        assert "a whole number" in refusal_of(written(tmp_path, self.HEADER, "a,in,1.5,2"))

    def test_a_word_must_be_one_of_the_known(self, tmp_path):
        assert "allowed: one of in, out" in refusal_of(written(tmp_path, self.HEADER, "a,up,1,2"))

    def test_a_misspelt_word_names_the_nearest(self, tmp_path):
        columns = (Choice("direction", ("read", "write")),)
        message = refusal_of(written(tmp_path, "direction", "raed"), columns)
        assert ":2: direction: found `raed`" in message
        assert "did you mean `read`" in message

    @pytest.mark.parametrize("name", ["clocks", "memories", "silicon-area", "silicon-dma", "sparseloop"])
    def test_a_suite_refuses_a_file_without_one_of_its_columns(self, name, tmp_path):
        first, *others = load_suite(name).columns
        path = written(tmp_path, ",".join(["npu", *others]), ",".join("1" for _ in ["npu", *others]))
        with pytest.raises(ConfigError, match=rf"figures.csv:1: found no column `{first}`"):
            run_suite(name, path)

    def test_a_row_with_too_few_fields_names_its_line(self, tmp_path):
        assert ":2: found 3 fields; allowed: 4" in refusal_of(written(tmp_path, self.HEADER, "a,in,1"))

    def test_a_column_twice_is_refused(self, tmp_path):
        assert "the column `npu` twice" in refusal_of(written(tmp_path, f"{self.HEADER},npu", "a,in,1,2,a"))

    def test_broken_quotes_are_refused(self, tmp_path):
        assert "broken CSV" in refusal_of(written(tmp_path, self.HEADER, '"a,in,1,2'))

    def test_an_empty_file_is_refused(self, tmp_path):
        path = tmp_path / "figures.csv"
        path.write_bytes(b"")
        assert ":1: found an empty file" in refusal_of(path)

    def test_a_header_alone_is_refused(self, tmp_path):
        assert "no rows below the header" in refusal_of(written(tmp_path, self.HEADER))

    def test_a_missing_file_a_folder_and_a_binary_file_are_refused(self, tmp_path):
        binary = tmp_path / "figures.bin"
        binary.write_bytes(b"\xff\xfe\x00")
        for path in (tmp_path / "none.csv", tmp_path, binary):
            with pytest.raises(FileError):
                read_csv(path, COLUMNS)

    @pytest.mark.parametrize("bad", ["3", "3x", "3x0", "3x3x3", "axb"])
    def test_a_pair_must_have_its_parts(self, bad):
        assert Pair("kernel", 2, "x").value(bad) is None


class TestReadingYaml:
    TEXT = ("paper:", "  figure: {gat: 3.0, gcn: 2}", "  other: {gat: 1.0}", "foreign:", "  a: [1, 2]")

    def test_numbers_are_known_by_their_path_and_unknown_branches_are_noted(self, tmp_path):
        path = written(tmp_path, *self.TEXT, name="figures.yaml")
        found, notes = read_keyed(path, lambda key: key.startswith("paper.figure"))
        assert [(figure.id, figure.value) for figure in found] == [
            ("paper.figure.gat", 3.0),
            ("paper.figure.gcn", 2.0),
        ]
        assert notes == [
            "figures.yaml: skipped 1 keys of `paper.other`",
            "figures.yaml: skipped 2 keys of `foreign.a`",
        ]

    def test_a_known_key_without_a_number_above_zero_names_its_line(self, tmp_path):
        path = written(tmp_path, "paper:", "  figure: fast", name="figures.yaml")
        with pytest.raises(ConfigError, match=r"figures\.yaml:2: paper\.figure: found `fast`"):
            read_keyed(path, lambda key: True)


class TestKeyPaths:
    SUITE = load_suite("granite").model_copy(
        update={
            "paths": {"a.{model}.{place}": {"quantity": "time"}, "a.{model}.last": {"place": "9"}},
            "words": {"model": ["b.c", "d"], "place": "[0-3]"},
        }
    )

    def test_a_path_gives_the_columns_of_its_words_and_the_constant_ones(self):
        assert key_of(self.SUITE, "a.b.c.2") == {"model": "b.c", "place": "2", "quantity": "time"}
        assert key_of(self.SUITE, "a.d.last") == {"model": "d", "place": "9", "quantity": ""}

    @pytest.mark.parametrize("path", ["a.b.c.4", "a.bxc.2", "x.a.d.1", "a.d"])
    def test_other_words_and_longer_paths_are_unknown(self, path):
        assert key_of(self.SUITE, path) is None

    def test_every_column_of_a_shipped_key_path_has_words(self):
        for name in suite_names():
            suite = load_suite(name)
            columns = {column for path in suite.paths for column in re.findall(r"{(\w+)}", path)}
            assert columns <= set(suite.words), name


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_has_a_limit(name: str) -> None:
    assert any(group.limit is not None for group in load_suite(name).groups)


class TestGrouping:
    ROWS = Evidence(
        ids=[2, 3, 4],
        columns={"op": np.array(["a", "b", "a"], object), "size": np.array([1.0, 2.0, 3.0])},
        measured=np.ones(3),
        predicted=np.ones(3),
        unit="s",
        dimensions=(),
        notes=(),
    )

    def test_a_row_belongs_to_the_first_group_it_fits_and_names_follow_the_row(self):
        entries = [
            Group(group="large {op}", where={"size": Condition(at_least=3)}, limit=0.1),
            Group(group="{op}"),
        ]
        names, rules = group_of_rows(entries, self.ROWS)
        assert names == ["a", "b", "large a"]
        assert rules["large a"].limit == 0.1

    def test_rows_that_fit_nothing_are_kept_apart_not_dropped(self):
        names, rules = group_of_rows([Group(group="a", where={"op": Condition(one_of=["a"])})], self.ROWS)
        groups = errors_by_group(names, rules, rows_off_by(0.1, 0.2, 0.3))
        assert {group.group: group.rows for group in groups} == {"a": 2, "other rows": 1}

    def test_a_limit_binds_the_statistic_that_the_suite_names(self):
        rows = rows_off_by(0.0, 0.0, 0.3)
        for statistic, kept in (("mean_error", False), ("median_error", True), ("p90_error", False)):
            entry = Group(group="g", limit=0.05, statistic=statistic)
            (group,) = errors_by_group(["g"] * 3, {"g": entry}, rows)
            assert group.ok is kept

    @pytest.mark.parametrize(("fitted", "is_determined"), [({"g": 1}, False), ({"g": 1, "all": 1}, True)])
    def test_as_many_fitted_numbers_as_figures_determine_and_do_not_test(self, fitted, is_determined):
        suite = Suite.model_validate(
            {"schema": "npusim.suite/1", "title": "t", "figures": None, "predictor": "p", "fitted": fitted}
            | {"groups": [{"group": "g", "limit": "10 %"}]}
        )
        judged = judge("s", suite, rows_off_by(0.0, 0.0))
        assert (judged.fitted, judged.is_determined) == (sum(fitted.values()), is_determined)
        assert judged.groups[0].fitted == 1 and judged.result().determined == is_determined

    def test_one_row_beyond_the_limit_of_single_rows_suffices_to_fail(self):
        for largest, kept in ((0.1, True), (0.2, False)):
            entry = Group(group="g", limit=0.05, statistic="median_error", max_error=0.15)
            (group,) = errors_by_group(["g"] * 3, {"g": entry}, rows_off_by(0.0, 0.0, largest))
            assert group.ok is kept

    def test_shares_are_judged_by_points_where_the_suite_says_so(self):
        rows = Evidence([0], {}, np.array([0.001]), np.array([0.05]), "", (), ())
        for error, kept in (("relative", False), ("points", True)):
            (group,) = errors_by_group(["g"], {"g": Group(group="g", limit=0.1, error=error)}, rows)
            assert group.ok is kept

    def test_an_unknown_column_is_refused(self):
        with pytest.raises(ConfigError, match="unknown column `colour`"):
            group_of_rows([Group(group="{op}", where={"colour": Condition(below=1)})], self.ROWS)

    def test_a_condition_must_say_something(self):
        with pytest.raises(ValueError, match="says nothing"):
            Condition()


@pytest.mark.parametrize("name", UNIT_SUITES)
class TestUnitSuites:
    def test_shipped_parameters_keep_every_limit(self, name):
        judged = run_suite(name)
        assert [group.group for group in judged.groups if not group.ok] == []

    def test_errors_are_relative_to_the_measured_value_and_groups_sum_them_up(self, name):
        result = run_suite(name).result()
        errors = {}
        for row in result.rows:
            errors.setdefault(row.group, []).append(abs(row.predicted - row.measured) / row.measured)
        told = {group.group: group for group in result.groups}
        for group, values in errors.items():
            assert told[group].rows == len(values)
            assert told[group].mean_error == pytest.approx(np.mean(values))
            assert told[group].median_error == pytest.approx(np.median(values))
            assert told[group].p90_error == pytest.approx(np.quantile(values, 0.9))

    def test_rows_come_in_the_order_of_the_file_with_positive_predictions(self, name):
        rows = run_suite(name).result().rows
        lines = [row.id for row in rows]
        assert lines == sorted(lines)
        assert lines[0] >= 2
        assert all(row.predicted > 0 for row in rows)

    def test_a_shuffled_part_of_the_file_gives_the_same_predictions(self, name, tmp_path):
        shipped = resource("validate", "figures", load_suite(name).figures)
        lines = shipped.read_text(encoding="utf-8").splitlines()
        if name == "silicon-sparsity":
            pytest.skip("rows refer to the row above them")
        picked = np.random.default_rng(0).permutation(np.arange(1, len(lines)))[: len(lines) // 3]
        path = written(tmp_path, lines[0], *(lines[i] for i in picked))
        known = {row.id: row for row in run_suite(name).result().rows}
        rows = run_suite(name, path).result().rows
        assert rows
        for row in rows:
            original = known[int(picked[row.id - 2]) + 1]
            assert (row.measured, row.group) == (original.measured, original.group)
            assert row.predicted == pytest.approx(original.predicted, rel=1e-12)


def test_a_row_of_a_machine_that_no_soc_models_is_left_out_with_a_note():
    suite = load_suite("costmodel-eltwise-pool")
    machines = {name: place for name, place in suite.machines.items() if name != "npu5010"}
    fewer = suite.model_copy(update={"machines": machines, "unmodelled": {"npu5010": "no sheet"}})
    path = figures_path(suite)
    notes = CHANNELWISE.read(fewer, path).notes
    assert any("left out 380 rows of npu5010: no sheet" in note for note in notes)


def test_the_grid_of_npu5_multiplies_element_by_element_and_is_judged_by_that():
    rows = run_suite("costmodel-eltwise-pool").result().rows
    assert sum("npu5010 eltwise_mul" in row.group for row in rows) == 61
    graph, soc = apply(load_workload("gat-cora"), "effop"), load_soc("core-ultra-series3")
    units = {group.main: group.unit for group in map_graph(graph, soc, Run(tiles=3)).decisions.groups}
    assert units["layer0/attention/multiply_mask"] is Unit.DPU


def test_a_row_without_a_kernel_of_its_own_is_reported_as_unmodelled():
    judged = run_suite("dsp")
    assert any("rows are unmodelled" in note for note in judged.evidence.notes)
    fallback = [group for group in judged.row_groups if group.startswith("unmodelled: ")]
    assert len(fallback) == (judged.evidence.columns["modelled"] == "no").sum() > 0


def test_limits_of_the_dsp_suite_bind_every_operator_of_the_named_workloads_that_has_rows():
    from npusim.cost.lowering.execution import SPELLINGS, execution_of
    from npusim.techniques import apply, variants
    from npusim.workloads import load_workload, workload_names

    kernels = set()
    for name in workload_names("gnn"):
        graph = load_workload(name)
        legal = [stack for stack, reason in variants(graph, "all") if reason is None]
        for stack in legal:
            kernels |= {execution_of(op.traits).dsp_kernel for op in apply(graph, str(stack))}
        kernels |= {execution_of(op.traits).dsp_kernel for op in graph}
    spelt = {spelling for kernel in kernels - {""} for spelling in (kernel, SPELLINGS.get(kernel, kernel))}
    judged = run_suite("dsp")
    listed = set(next(group for group in judged.suite.groups if group.limit is not None).where["op"].one_of)
    assert spelt & set(judged.evidence.columns["op"]) <= listed


class TestDocument:
    def test_it_follows_its_schema_to_the_letter(self):
        document = json.loads(npusim.validate(["silicon-sparsity", "silicon-traces"]).to_json())
        jsonschema.validate(document, schema_of(Validation))
        assert list(document) == ["schema", "suites"]
        assert document["schema"] == "npusim.validate/1"
        suite = document["suites"][0]
        assert list(suite) == ["name", "groups", "rows", "fitted", "determined"]
        statistics = ["mean_error", "median_error", "p90_error", "inside", "limit", "error", "fitted", "ok"]
        assert list(suite["groups"][0]) == ["group", "rows", *statistics]
        assert list(suite["rows"][0]) == ["id", "group", "measured", "predicted", "interval"]

    def test_an_unknown_suite_names_the_nearest(self):
        with pytest.raises(UnknownNameError, match="did you mean `silicon-dma`"):
            npusim.validate(["silicon-dna"])

    def test_other_figures_need_exactly_one_suite(self, tmp_path):
        for names in ([], ["silicon-dma", "dsp"]):
            with pytest.raises(ConfigError, match="exactly one suite"):
                npusim.validate(names, figures=tmp_path / "x.csv")

    def test_figures_of_another_suite_are_refused_with_what_is_missing(self):
        with pytest.raises(ConfigError, match=r"silicon_dma\.csv:1: found no column `op`"):
            npusim.validate(["silicon-dpu"], figures=resource("validate", "figures", "silicon_dma.csv"))

    def test_an_unknown_npu_names_its_line(self, tmp_path):
        path = written(tmp_path, DMA_HEADER, "npu4001,ddr2cmx,4096,1e-6")
        with pytest.raises(ConfigError, match=r":2: npu: found `npu4001`.*did you mean `npu4000`"):
            npusim.validate(["silicon-dma"], figures=path)


class TestCommand:
    def test_status_0_where_limits_are_kept(self, capsys):
        assert run(["validate", "silicon-dma"]) == 0
        out = capsys.readouterr().out
        assert "every limit is kept" in out
        assert "12 to 13 %" in out  # Intel's own model

    def test_status_1_where_a_limit_is_missed(self, tmp_path, capsys):
        path = written(tmp_path, DMA_HEADER, "npu4000,ddr2cmx,65536,1e-3")
        assert run(["validate", "silicon-dma", "--figures", str(path)]) == 1
        assert "1 limits are not kept: silicon-dma: npu4000" in " ".join(capsys.readouterr().out.split())

    def test_status_2_for_bad_figures_with_one_clear_message(self, tmp_path, capsys):
        path = written(tmp_path, DMA_HEADER, "npu4000,ddr2cmx,65536,nan")
        assert run(["validate", "silicon-dma", "--figures", str(path)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        assert "figures.csv:2: measured_s: found `nan`" in said.err

    def test_json_is_one_document_and_nothing_else(self, capsys):
        assert run(["validate", "silicon-sparsity", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["suites"][0]["name"] == "silicon-sparsity"

    def test_html_is_one_file_that_needs_no_other(self, tmp_path):
        path = tmp_path / "page.html"
        assert run(["validate", "silicon-dma", "--html", str(path), "-o", str(tmp_path / "table.txt")]) == 0
        page = path.read_text(encoding="utf-8")
        assert "silicon-dma" in page
        assert "<script src" not in page
        assert "<link" not in page

    def test_parameters_lists_what_no_measured_row_bears_on(self, capsys):
        assert run(["validate", "--parameters", "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        paths = {(number["soc"], number["path"]) for number in document["parameters"]}
        for soc in ("core-ultra-series1", "core-ultra-series2"):
            assert (soc, "npu.dpu.model.fp16_output_rate") in paths
            assert (soc, "npu.dma.model.ddr2cmx_row_cycles") in paths
            assert (soc, "npu.dma.model.start_cycles") not in paths


def test_shipped_figures_are_plain_tables(repository):
    for path in sorted((repository / "validate" / "figures").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            widths = {len(row) for row in csv.reader(file)}
        if path.name != "openvino_published.csv":
            assert len(widths) == 1, path.name


def test_accuracies_need_the_raw_data_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPUSIM_DATA", raising=False)
    pytest.importorskip("torch_geometric")
    judged = run_suite("accuracy")
    assert judged.ok and not len(judged.evidence.ids)
    assert any("pass --data DIR" in note for note in judged.evidence.notes)


@pytest.mark.slow
def test_accuracies_of_gcn_and_gat_are_the_published_ones_and_sage_looks_exchanged(
    planetoid_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.setenv("NPUSIM_DATA", str(planetoid_root))
    judged = run_suite("accuracy")
    assert judged.ok
    evidence = judged.evidence
    ours = dict(zip(evidence.columns["model"], evidence.predicted, strict=True))
    published = dict(zip(evidence.columns["model"], evidence.measured, strict=True))
    assert ours["sage_mean"] == pytest.approx(published["sage_max"], abs=2.0)
    assert ours["sage_max"] == pytest.approx(published["sage_mean"], abs=2.0)


def test_leaving_classes_out_takes_no_suite():
    with pytest.raises(ConfigError, match="leave_class_out"):
        npusim.validate("networks", leave_class_out=True)


@pytest.mark.slow
def test_fits_without_a_class_predict_its_networks():
    suite = npusim.validate(leave_class_out=True).suites[0]
    errors = {group.group: group.mean_error for group in suite.groups}
    assert errors["npu4000, without its class of networks"] < 0.12
    assert errors["npu3720, without its machine"] < 0.2
