"""Language models: sizes, what is built beside what OpenVINO converts, tokens beside the dynamic model's."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from graph_agreement import assert_agreement
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.cli.program import run
from npusim.errors import ConfigError, InfeasibleError
from npusim.graph import Graph
from npusim.ops import TensorKind
from npusim.workloads import load_spec, load_workload

TINY = "llama-tiny"
SHORT = "workload.max_sequence=16"
PROMPT = "workload.prompt=5"
BARE = "workload.host_work=false"
NITRO = "workload.form=nitro"


def part_of(graph: Graph, name: str) -> Graph:
    """The operators of one part as a graph: what it is handed becomes its input."""
    ops = [op for op in graph if op.part == name]
    made = {t for op in ops for t in op.outputs}
    used = {t for op in ops for t in (*op.inputs, *op.outputs)}
    used |= {op.attrs["variable"] for op in ops if op.type == "Assign"}
    tensors = [
        t if t.name in made or t.kind is not TensorKind.ACTIVATION else t.with_(kind=TensorKind.INPUT)
        for t in (graph.tensors[one] for one in used)
    ]
    return Graph(name, tensors, ops, [t for t in made if not graph.readers(t)])


PUBLISHED = {
    "llama2-7b": 6.74,
    "llama3-8b": 8.03,
    "llama3.2-1b": 1.24,
    "llama3.2-3b": 3.21,
    "phi-3.5-mini": 3.82,
    "qwen2.5-7b": 7.62,
    "qwen3-0.6b": 0.596,
    "qwen3-8b": 8.19,
    "mistral-7b": 7.24,
}
"""Billions of weights, as the makers' model cards say."""


@pytest.mark.few(3)
@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_models_have_their_weights(name, billions):
    spec, graph = load_spec(name), load_workload(name)
    assert spec.parameters / 1e9 == pytest.approx(billions, rel=0.01)
    held = [t for t in graph.tensors.values() if t.kind is TensorKind.CONSTANT and "index" not in t.name]
    small = ("epsilon", "scale", "freqs_cis")
    counted = sum(t.elements for t in held if not any(word in t.name for word in small))
    assert counted == spec.parameters


@pytest.mark.laws
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "how",
    [
        [],
        ["workload.phase=prefill"],
        ["workload.phase=prefill", "workload.prompt=16"],
        ["workload.rope=graph", "workload.tokens=3"],
        ["workload.cache=input", "workload.chunks=1"],
        ["workload.weights=int8"],
        ["workload.weights=int4", "workload.symmetric=true", "workload.layers=2"],
    ],
    ids=" ".join,
)
def test_the_built_graph_is_that_of_the_converted_model(how, tmp_path):
    """Operator for operator, states included, for each part; an export may merge views alone."""
    pytest.importorskip("torch")
    from nitro_llama import converted_parts

    from npusim.frontends.openvino_ir import import_model
    from npusim.frontends.openvino_write import save_model
    from npusim.llm.converting import made_up_weights, part_model

    how = [SHORT, PROMPT, *how]
    spec, built = load_spec(TINY, how), load_workload(TINY, [*how, BARE])
    assert spec.part_names == built.parts
    for part, converted in converted_parts(spec):
        graphs = []
        for model in (converted, part_model(spec, part, made_up_weights(spec, part))):
            save_model(model, tmp_path / "part.xml", half=True)
            graphs.append(import_model(tmp_path / "part.xml"))
        assert_agreement(part_of(built, part), graphs[0])
        states = [t for t in graphs[0].tensors.values() if t.kind is TensorKind.STATE]
        chunk = part.startswith("layers") and spec.cache == "state"
        assert len(states) == (2 * spec.layers // spec.chunks if chunk else 0)
        assert [len(one.state_results) for one in graphs] == 2 * [len(states)]
        if spec.new_tokens < spec.max_sequence:  # else OpenVINO leaves out the empty rest of the cache
            assert work_of(graphs[1]) == work_of(graphs[0])


def work_of(graph: Graph) -> Counter[tuple[str, float, tuple[int, ...]]]:
    """Operators other than views by type, work and shape of the result."""
    ops = [op for op in graph if op.type not in ("Reshape", "Unsqueeze", "Transpose")]
    return Counter((op.type, graph.macs_of(op), graph.tensors[op.outputs[0]].shape) for op in ops)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch")
    found = tmp_path_factory.mktemp("llm") / "tiny"
    assert run(["export", TINY, "-o", str(found), "--set", SHORT, "--set", PROMPT]) == 0
    return found


@pytest.mark.laws
def test_an_exported_folder_is_laid_out_and_named_as_nitros(folder):
    from npusim.frontends.openvino_ir import import_model

    assert sorted(p.name for p in (folder / "model").glob("*.xml")) == [f"{i}.xml" for i in range(4)]
    assert json.loads((folder / "config.json").read_text())["model"] == TINY
    openvino = pytest.importorskip("openvino")
    models = [openvino.Core().read_model(folder / "model" / f"{i}.xml") for i in range(4)]
    named = [{port.get_any_name() for port in model.inputs} for model in models]
    assert named == [{"token"}, {"x", "mask", "freqs_cis"}, {"x", "mask", "freqs_cis"}, {"x"}]
    results = [[result.get_friendly_name() for result in model.get_results()] for model in models]
    assert results == [["x"], ["x"], ["x"], ["logits"]]
    variables = [node.get_variable_id() for node in models[2].get_sinks()]
    assert {name[:9] for name in variables} == {f"cache_{what}_{i}" for what in "kv" for i in (2, 3)}
    estimate = npusim.estimate(str(folder / "model" / "1.xml"))
    assert estimate.memory.states_bytes > 0
    assert import_model(folder / "model" / "1.xml").state_results


@pytest.mark.laws
def test_static_tokens_are_those_of_the_dynamic_model(folder):
    """Greedy: prompt and ten tokens, the scores of every step beside a model whose cache grows."""
    import torch
    from dynamic_llama import DynamicLlama

    from npusim.llm.converting import made_up_weights
    from npusim.llm.measuring import Generator

    spec = load_spec(TINY, [SHORT, PROMPT])
    weights = {k: v.half().float() for k, v in made_up_weights(spec).items()}  # as stored
    static, dynamic = Generator(folder), DynamicLlama(spec, weights)
    token, tokens = 7, []
    for given_token in [3, 141, 59, 26, 7, *([-1] * 10)]:
        token = given_token if given_token >= 0 else token
        ours = static.step(token)
        theirs = dynamic(torch.tensor([token]))[-1].numpy()
        np.testing.assert_allclose(ours, theirs, atol=2e-3 * np.abs(theirs).max())
        assert int(ours.argmax()) == int(theirs.argmax())
        token = int(ours.argmax())
        tokens.append(token)
    static.reset()
    again = [int(static.step(one).argmax()) for one in [3, 141, 59, 26, 7, *tokens[4:6]]]
    assert again[4:] == tokens[4:7]
    static.reset()
    for _ in range(16):
        static.step(1)
    with pytest.raises(ConfigError, match="position 16"):
        static.step(1)


def test_a_users_weights_are_taken_and_wrong_ones_refused(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    from npusim.llm.converting import made_up_weights, read_weights

    spec = load_spec(TINY)
    weights = made_up_weights(spec)
    torch.save({f"model.{name}": value for name, value in weights.items()}, tmp_path / "w.pth")
    assert read_weights(tmp_path / "w.pth", spec).keys() == weights.keys()
    del weights["norm.weight"]
    torch.save(weights, tmp_path / "w.pth")
    assert run(["export", TINY, "-o", str(tmp_path / "out"), "--weights", str(tmp_path / "w.pth")]) == 2
    assert "norm.weight" in capsys.readouterr().err and not (tmp_path / "out").exists()


def ms(model: str, *how: str, device: str = "npu", engine: str = "analytical", **more: Any) -> float:
    settings_ = [*how, "dram.capacity=96GB"]
    return 1e3 * npusim.estimate(model, device=device, settings=settings_, engine=engine, **more).latency_s


@pytest.mark.few(2)
@pytest.mark.parametrize("device", ["npu", "cpu", "gpu"])
@pytest.mark.parametrize("how", [[], ["workload.phase=prefill"], ["workload.weights=int4"]], ids=" ".join)
def test_both_engines_agree(device, how):
    times = [ms(TINY, *how, device=device, engine=engine) for engine in ("analytical", "event")]
    assert times[1] == pytest.approx(times[0], rel=0.15)


@pytest.mark.laws
@settings(max_examples=6, deadline=None)
@given(st.sampled_from(["npu", "cpu", "gpu"]), st.integers(33, 400), st.integers(1, 400))
def test_time_and_memory_never_fall_with_the_cache(device, places, more):
    low, high = (
        npusim.estimate(TINY, device=device, settings=[f"workload.max_sequence={n}"])
        for n in (places, places + more)
    )
    assert high.memory.dram_peak_bytes >= low.memory.dram_peak_bytes
    assert high.memory.states_bytes > low.memory.states_bytes
    # The compiler's choice of what stays in SRAM is not perfect: half a percent (docs/architecture.md).
    assert high.latency_s >= low.latency_s * (1 - 5e-3)


@settings(max_examples=5, deadline=None)
@given(st.sampled_from(["cpu", "gpu"]), st.integers(34, 600))
def test_static_shapes_are_never_quicker_than_dynamic_ones_of_their_length(device, places):
    static = ms(TINY, f"workload.max_sequence={places}", device=device)
    position = f"workload.position={places - 1}"
    dynamic = ms(TINY, f"workload.max_sequence={places}", "workload.shapes=dynamic", position, device=device)
    assert static >= dynamic


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["npu", "cpu", "gpu"])
def test_more_chunks_never_shorten_a_token(device):
    times = [ms(TINY, f"workload.chunks={n}", device=device) for n in (0, 1, 2, 4)]
    assert times == sorted(times)


@pytest.mark.few(1)
@pytest.mark.parametrize("device", ["npu", "cpu", "gpu"])
def test_a_cache_is_read_and_written_whole(device):
    spec = load_spec(TINY)
    estimate = npusim.estimate(TINY, device=device)
    one = spec.layers * 2 * spec.max_sequence * spec.kv_heads * spec.head_width * 2
    weights = (spec.parameters - spec.vocabulary * spec.hidden) * 2
    assert estimate.dram_bytes >= 2 * one + weights


def test_the_hosts_work_is_small_counted_and_switchable():
    with_, without = (
        npusim.estimate(TINY, settings=[f"workload.host_work={on}"]) for on in ("true", "false")
    )
    assert {op.unit for op in with_.operators if op.part in ("inputs", "choice")} == {"cpu"}
    assert 0 < with_.latency_s - without.latency_s < 2e-4
    assert without.energy.cpu_j == 0 < with_.energy.cpu_j
    assert {op.unit for op in npusim.estimate(TINY, device="gpu").operators} == {"cpu", "gpu", "none"}


def test_parts_go_to_devices_of_their_own():
    estimate = npusim.estimate(TINY, settings=["workload.devices={layers1: gpu, output: cpu}"])
    devices = {part.name: part.devices for part in estimate.parts}
    assert (devices["layers0"], devices["layers1"], devices["output"]) == (["npu"], ["gpu"], ["cpu"])


@pytest.mark.parametrize(
    ("how", "told"),
    [
        (["workload.prompt=200"], "prompt: found `200`; allowed: at most max_sequence, which is 128"),
        (["workload.chunks=3"], "chunks: found `3`; allowed: a divisor of layers, which is 4"),
        (["workload.heads=7"], "heads: found `7`; allowed: a divisor of hidden, which is 128"),
        (["workload.kv_heads=3"], "kv_heads: found `3`; allowed: a divisor of heads, which is 8"),
        (
            ["workload.weights=int4", "workload.group=96"],
            "group: found `96`; allowed: a divisor of every row",
        ),
        (["workload.group=32"], "group: found `32`; allowed: no group where weights are fp16"),
        (
            ["workload.shapes=dynamic", "workload.position=128"],
            "position: found `128`; allowed: at most 127: max_sequence",
        ),
        (["workload.position=300"], "position: found `300`; allowed: at most 128: max_sequence"),
        (["workload.devices={head: npu}"], "devices: found the part `head`; allowed: embedding, layers0"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_cannot_be_is_refused(how, told):
    with pytest.raises(ConfigError) as caught:
        load_spec(TINY, how)
    assert told in str(caught.value)


def test_an_npu_runs_no_dynamic_shapes():
    with pytest.raises(InfeasibleError, match=r"compiled for fixed shapes.*workload.shapes=static"):
        npusim.estimate(TINY, device="npu", settings=["workload.shapes=dynamic"])


def test_a_model_larger_than_memory_is_refused_with_what_would_do():
    with pytest.raises(InfeasibleError, match=r"dram\.capacity=17GB"):
        npusim.estimate("llama3-8b", device="gpu", soc="core-ultra-7-155h")


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_who_unpacks_weights_is_a_fact_of_the_device(bits):
    """As the product takes them they are quickest; unpacked ahead they are as fp16; by operators slowest."""

    def token(how: str) -> npusim.Estimate:
        chosen = [f"workload.weights={bits}", f"npu.packed_weights.{bits}={how}", "workload.layers=2"]
        return npusim.estimate(TINY, device="npu", settings=chosen)

    product, ahead, kernel = map(token, ("product", "ahead", "kernel"))
    plain = npusim.estimate(TINY, device="npu", settings=["workload.layers=2", "workload.attention=separate"])
    assert product.latency_s < ahead.latency_s < kernel.latency_s
    assert ahead.latency_s == pytest.approx(plain.latency_s, rel=0.01)
    assert product.dram_bytes < ahead.dram_bytes
    assert any(op.name.endswith("unpack/convert") and op.unit == "npu.dsp" for op in kernel.operators)


def test_scales_cross_dram_with_their_weights():
    grouped, by_row = (
        npusim.estimate(TINY, device="gpu", settings=["workload.weights=int4", f"workload.group={n}"])
        for n in (32, 0)
    )
    assert grouped.dram_bytes > by_row.dram_bytes


def test_an_estimate_has_figures_by_the_token():
    decode, prefill, checked = (
        npusim.estimate(TINY, settings=[setting]).language
        for setting in ("workload.phase=decode", "workload.phase=prefill", "workload.tokens=5")
    )
    assert decode is not None and prefill is not None and checked is not None
    assert decode.time_to_first_token_s == pytest.approx(32 * decode.token_s)
    assert prefill.time_to_first_token_s == pytest.approx(prefill.tokens * prefill.token_s)
    assert checked.time_to_first_token_s == pytest.approx(7 * 5 * checked.token_s)
    assert prefill.time_to_first_token_s < decode.time_to_first_token_s
    assert decode.tokens_per_s == pytest.approx(1 / decode.token_s)


@pytest.mark.laws
def test_models_formats_and_devices_are_compared_and_a_draft_judged(capsys):
    asked = [
        "llm",
        TINY,
        "--weights",
        "fp16",
        "--devices",
        "npu,gpu",
        "--draft",
        TINY,
        "--draft-device",
        "npu",
    ]
    assert run([*asked, "--guesses", "3", "--acceptance", "0.5", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["device"], row["problem"]) for row in document["rows"]] == [("npu", ""), ("gpu", "")]
    one = document["speculation"][0]
    assert one["tokens_per_round"] == pytest.approx(1.875)
    assert one["speedup"] == pytest.approx(one["alone_s"] * 1.875 / one["round_s"])
    assert run(["llm", "gcn-cora"]) == 2 and "kind gnn" in capsys.readouterr().err
    assert run(["llm", TINY, TINY]) == 2 and "a second time" in capsys.readouterr().err


def test_nitros_figures_are_known_by_their_keys():
    from npusim.validation.figures import key_of
    from npusim.validation.suite import load_suite

    def parse_key(name):
        return key_of(load_suite("nitro"), name)

    gpu = {"quantity": "ms_per_token", "model": "llama3.2-3b", "device": "gpu"}
    assert parse_key("nitro.ms_per_token.llama3.2-3b.gpu") == gpu
    growth = "nitro.increase_s_per_token_seq128_to_2048_llama3_8b"
    npu = {"quantity": "increase_s", "model": "llama3-8b", "device": "npu"}
    assert parse_key(f"{growth}.npu") == npu
    assert parse_key("nitro.npu.tiles") is None


def test_an_exported_model_is_measured_by_the_token_with_and_without_the_host(folder, capsys):
    """Rows name the workload that was exported, so that predictions stand beside them."""
    from npusim.measuring.document import Measurement
    from npusim.measuring.models import graph_of

    asked = ["measure", str(folder), "--device", "cpu", "--seconds", "0.05", "-q", "--format", "json"]
    assert run(asked) == 0
    found = Measurement.model_validate_json(capsys.readouterr().out)
    own = {"form": "nitro", "max_sequence": "16", "prompt": "5", "position": "5"}
    assert [row.model.settings for row in found.rows] == [own, {**own, "host_work": "false"}]
    assert all(row.latency_s.repetitions >= 5 and not row.operators for row in found.rows)
    hosts = [any(op.device == "cpu" for op in graph_of(row.model)) for row in found.rows]
    assert hosts == [True, False]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["-t", "quantgr"], "--techniques with the exported language model"),
        (["--set", "workload.hidden=64"], "--set with the exported"),
        (["--hint", "throughput"], "--hint throughput"),
        (["--requests", "2"], "--requests"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_an_exported_model_is_measured_as_it_is(folder, option, told, capsys):
    assert run(["measure", str(folder), "--device", "CPU", *option]) == 2
    assert told in capsys.readouterr().err


def test_a_folder_without_a_model_cannot_be_measured(tmp_path, capsys):
    assert run(["measure", str(tmp_path), "--device", "CPU"]) == 2
    assert "is no exported language model" in capsys.readouterr().err


@pytest.mark.laws
def test_other_forms_give_the_dynamic_models_scores(tmp_path):
    """Several tokens at once, positions in the graph, caches as inputs."""
    torch = pytest.importorskip("torch")
    from dynamic_llama import DynamicLlama

    from npusim.llm.converting import made_up_weights
    from npusim.llm.measuring import Generator

    how = [SHORT, PROMPT, "workload.tokens=3", "workload.rope=graph", "workload.cache=input"]
    how += ["workload.layers=2", "workload.chunks=1"]
    told = [text for one in how for text in ("--set", one)]
    assert run(["export", TINY, "-o", str(tmp_path / "tiny"), *told]) == 0
    spec = load_spec(TINY, how)
    weights = {k: v.half().float() for k, v in made_up_weights(spec).items()}
    static, dynamic = Generator(tmp_path / "tiny"), DynamicLlama(spec, weights)
    for tokens in ([3, 141, 59], [26, 7, 11]):
        theirs = dynamic(torch.tensor(tokens))[-1].numpy()
        np.testing.assert_allclose(static.step(tokens), theirs, atol=2e-3 * np.abs(theirs).max())
    with pytest.raises(ConfigError, match="1 tokens; allowed: 3 at a time"):
        static.step(5)


@pytest.mark.laws
def test_compiling_in_one_piece_passes_what_nitro_had():
    """96 GB, the paper's one bound; its two parts of layers fit."""
    whole, parts = (
        npusim.estimate("llama3-8b", soc="core-ultra-nitro", settings=[f"workload.chunks={n}", NITRO])
        for n in (0, 2)
    )
    assert whole.compilation.memory_peak_bytes > 96e9 > parts.compilation.memory_peak_bytes
    assert "compile it in more parts" in " ".join(whole.warnings) and not parts.warnings
    assert (whole.compilation.models, parts.compilation.models) == (1, 4)


@pytest.mark.laws
@settings(max_examples=5, deadline=None)
@given(st.sampled_from([1, 2]), st.sampled_from(["fp16", "int8"]))
def test_more_parts_take_less_memory_to_compile_and_more_launches(chunks, weights):
    few, many = (
        npusim.estimate(TINY, settings=[f"workload.chunks={n}", f"workload.weights={weights}"])
        for n in (chunks, 2 * chunks)
    )
    assert many.compilation.memory_peak_bytes <= few.compilation.memory_peak_bytes
    low, high = many.compilation.memory_peak_interval_bytes
    assert low < many.compilation.memory_peak_bytes < high
    assert many.compilation.compile_s >= few.compilation.compile_s
    assert many.launch_s > few.launch_s
    assert npusim.estimate(TINY, device="gpu").compilation is None


@pytest.mark.laws
def test_launches_stand_beside_the_memory_of_compiling(capsys):
    asked = ["whatif", TINY, "--stack", "none", "--device", "npu", "--over", "workload.chunks=1,4"]
    assert run([*asked, "--format", "table"]) == 0
    told = capsys.readouterr().out
    assert "launches" in told and "compiling at" in told and "chunks=4" in told


def test_quantised_operators_stay_in_their_part():
    graph = npusim.apply(load_workload(TINY), "quantgr")
    assert graph.parts == load_workload(TINY).parts


def test_passes_over_the_cache_add_up_and_grow():
    from npusim.llm.study import cache_growth
    from npusim.scenario import Scenario

    lengths = (64, 512)
    mapped = {
        n: Scenario(TINY, settings=[f"workload.max_sequence={n}"], device="npu").mapped for n in lengths
    }
    found = cache_growth(TINY, "npu", mapped, samples=4)
    for i, n in enumerate(lengths):
        launches_s = npusim.estimate(TINY, device="npu", settings=[f"workload.max_sequence={n}"]).launch_s
        assert sum(one.time_s[i] for one in found.passes) + launches_s == pytest.approx(found.latency_s[i])
    assert found.growth_interval_s[0] <= found.growth_interval_s[1]
    counts = {one.name: one.count for one in found.passes}
    layers = load_spec(TINY).layers
    for name in ("cache/slice", "cache/concat", "keys/broadcast", "values/transpose"):
        assert counts.get(name, 2 * layers) in (layers, 2 * layers)


@pytest.mark.laws
def test_memory_says_what_it_holds_and_packed_weights_both_readings(capsys):
    asked = ["llm", TINY, "--soc", "core-ultra-nitro", "--devices", "npu,cpu", "--weights", "fp16,int4"]
    assert run([*asked, "--format", "json", "--growth", "64,128"]) == 0
    document = json.loads(capsys.readouterr().out)
    for row in document["rows"]:
        held = row["memory"]
        parts = held["weights_bytes"] + held["states_bytes"] + held["other_bytes"]
        assert parts == pytest.approx(row["memory_bytes"])
    by = {(row["weights"], row["device"]): row for row in document["rows"]}
    packed = by["int4", "npu"]
    assert packed["direct_token_s"] < packed["token_s"]
    low, high = packed["token_interval_s"]
    assert low <= by["fp16", "npu"]["token_s"] * 1.01 and packed["token_s"] < high
    assert by["int4", "cpu"]["direct_token_s"] is None
    assert [(one["device"], one["max_sequence"]) for one in document["growth"]] == [
        ("npu", [64, 128]),
        ("cpu", [64, 128]),
    ]
    assert run(["llm", TINY, "--growth", "128"]) == 2
    assert "two different numbers of places" in capsys.readouterr().err


def test_the_question_of_the_laptop_has_a_page(tmp_path):
    target = tmp_path / "models.html"
    assert run(["llm", TINY, "--weights", "fp16", "-o", str(target)]) == 0
    page = target.read_text(encoding="utf-8")
    for heading in ("Time of a token", "Time to the first token", "Memory", "Energy of a token", "Figures"):
        assert f"<h2>{heading}</h2>" in page


def test_weights_that_are_set_aside_come_back(folder, monkeypatch):
    from npusim.frontends import openvino_ir

    file = folder / "model" / "1.xml"
    whole = openvino_ir.import_model(file)
    monkeypatch.setattr(openvino_ir, "_LARGE_BYTES", 1024)
    monkeypatch.setattr(openvino_ir, "_VERY_LARGE_BYTES", 0)
    apart = openvino_ir.import_model(file)
    assert_agreement(apart, whole)


@pytest.mark.parametrize("device", ["npu", "cpu", "auto"])
def test_a_machine_with_other_numbers_has_the_table_of_a_lowering_from_scratch(device):
    """What stays of a mapped graph's rows, and what is made again."""
    from npusim.cost import lower
    from npusim.scenario import Scenario
    from npusim.studies.perturbation import lowered_on, sampled, uncertain_numbers, with_library

    mapped = Scenario(TINY, settings=["workload.layers=2", "workload.chunks=1"], device=device).mapped
    soc, used = with_library(mapped.soc, [mapped])
    numbers = uncertain_numbers(soc, used)
    machine = sampled(soc, numbers, np.linspace(-1.5, 1.5, len(numbers)))
    again = lower(mapped.graph, mapped.decisions, machine).ops
    assert lowered_on(mapped, machine).tobytes() == again.tobytes()


def test_tokens_are_one_row_and_one_request(repository):
    from npusim.measuring.traces import from_openvino_benchmarks

    tables = from_openvino_benchmarks(repository / "validate" / "figures" / "openvino_published.csv")
    (row,) = [row for one in tables for row in one.rows if "llama" in row.id]
    assert (row.hint, row.requests) == ("latency", 1)
    assert row.throughput_per_s * row.latency_s.median_s == pytest.approx(1.0, rel=0.01)
