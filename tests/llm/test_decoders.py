"""Decoders as runtimes run them: bytes of a token, laws over cache, formats and forms, published rates."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npusim
from npusim.cli.program import run
from npusim.errors import ConfigError
from npusim.llm.study import TokenBytes, token_bytes
from npusim.scenario import Scenario
from npusim.workloads import load_spec, load_workload

LAYERS = "workload.layers=2"
"""Two layers of a real model: all of its shapes."""

socs = st.sampled_from(["core-ultra-7-155h", "core-ultra-7-258v", "core-ultra-series3"])
machines = st.tuples(socs, st.sampled_from(["npu", "gpu", "cpu"]))
models = st.sampled_from(
    ["llama2-7b", "llama3-8b", "llama3.2-1b", "phi-3.5-mini", "qwen2.5-7b", "qwen3-0.6b"]
)
untied = st.sampled_from(["llama2-7b", "llama3-8b", "phi-3.5-mini", "qwen2.5-7b"])
"""Models whose last layer has weights of its own: caches may hold some of a table looked up before."""
formats = st.sampled_from(["fp16", "int8", "int4"])
law = settings(max_examples=12, deadline=None)


def token(model: str, machine: tuple[str, str], *changes: str) -> tuple[float, TokenBytes]:
    """Return the time of a token (s) and its bytes."""
    soc, device = machine
    scenario = Scenario(model, soc, device=device, settings=[LAYERS, *changes])
    estimate = npusim.estimate(scenario)
    return estimate.latency_s, token_bytes(scenario, estimate)


@law
@given(models, machines, formats, st.sampled_from([64, 1152]), st.sampled_from(["fp16", "int8"]))
def test_a_token_moves_weights_and_cache_once_and_little_else(model, machine, weights, places, cache):
    """What it moves beyond weights and cache is named, but for a tenth of these."""
    how = f"workload.max_sequence={places}", f"workload.cache_precision={cache}"
    _, bytes_ = token(model, machine, f"workload.weights={weights}", *how)
    assert bytes_.moved_bytes >= bytes_.least_bytes
    named = bytes_.least_bytes + bytes_.unpacked_bytes + bytes_.spilled_bytes
    assert bytes_.moved_bytes == pytest.approx(named, rel=0.1)


@law
@given(models, machines, formats, st.integers(64, 4000), st.integers(1, 4000))
def test_more_context_never_costs_less(model, machine, weights, places, more):
    short, long = (
        token(model, machine, f"workload.weights={weights}", f"workload.max_sequence={n}")
        for n in (places, places + more)
    )
    assert long[0] >= short[0] * (1 - 1e-9)
    assert long[1].moved_bytes >= short[1].moved_bytes * (1 - 1e-9)


@law
@given(untied, machines, st.sampled_from(["fp16", "int8"]), st.sampled_from([128, 1152]))
def test_the_runtime_never_moves_more_bytes_than_nitro_or_the_paper(model, machine, weights, places):
    """Compared where all weights have one format: with 4 bits the runtime's last layer keeps 8."""
    runtime, nitro, paper = (
        token(model, machine, f"workload.weights={weights}", f"workload.max_sequence={places}", how)[1]
        for how in ("workload.form=runtime", "workload.form=nitro", "workload.form=paper")
    )
    assert runtime.moved_bytes <= min(nitro.moved_bytes, paper.moved_bytes) * (1 + 1e-9)


@pytest.mark.laws
@law
@given(models, machines)
def test_fewer_bits_are_never_slower_and_groups_never_quicker(model, machine):
    fp16, int8, int4, grouped = (
        token(model, machine, f"workload.weights={weights}", f"workload.group={group}")[0]
        for weights, group in (("fp16", 0), ("int8", 0), ("int4", 0), ("int4", 128))
    )
    assert int4 <= int8 * (1 + 1e-9) <= fp16 * (1 + 2e-9)
    assert int4 <= grouped * (1 + 1e-9)


@law
@given(machines, st.sampled_from([1, 2, 4, 8]), st.sampled_from(["fp16", "int8"]))
def test_heads_that_share_keys_and_values_divide_the_cache(machine, shared, cache):
    alone, together = (
        token("llama2-7b", machine, f"workload.kv_heads={n}", f"workload.cache_precision={cache}")[1]
        for n in (32, 32 // shared)
    )
    assert together.cache_bytes == alone.cache_bytes / shared
    assert together.moved_bytes <= alone.moved_bytes


def test_attention_reads_keys_and_values_where_they_lie():
    graph = load_workload("llama3-8b", [LAYERS])
    types = [op.type for op in graph if "attention" in op.name]
    assert not {"Concat", "Slice", "Broadcast", "Transpose", "ReadValue", "Assign"} & set(types)
    assert [op.type for op in graph if "cache_k_0" in op.inputs] == ["MatMul"]


def test_a_prompt_is_processed_in_chunks():
    """Only its last token reaches the last layer."""
    how = ["workload.phase=prefill", "workload.prompt=1000", "workload.prefill_chunk=256", LAYERS]
    graph = load_workload("llama3.2-1b", how)
    assert graph.tensors["output/logits"].shape == (1, 1, 128256)
    language = npusim.estimate("llama3.2-1b", settings=how).language
    assert language.tokens == 256
    assert language.time_to_first_token_s == pytest.approx(4 * 256 * language.token_s)


def test_last_layer_and_embeddings_keep_8_bits():
    graph = load_workload("llama3-8b", [LAYERS, "workload.weights=int4"])
    bits = {name: t.dtype.bits for name, t in graph.tensors.items() if name.endswith(("/weight", "/table"))}
    assert (bits["embedding/table"], bits["output/logits/weight"], bits["layer0/feed/up/weight"]) == (8, 8, 4)


def test_an_npu_without_4_bits_streams_8():
    _, bytes_ = token("llama2-7b", ("core-ultra-7-155h", "npu"), "workload.weights=int4")
    halves = 2 * (4 * 4096**2 + 3 * 4096 * 11008) / 2
    assert bytes_.unpacked_bytes == pytest.approx(halves, rel=0.01)


@pytest.mark.parametrize("how", ["workload.form=runtime", "workload.form=paper"])
def test_nitros_form_alone_is_exported(how, tmp_path):
    with pytest.raises(ConfigError, match=r"workload\.form=nitro"):
        npusim.export("llama-tiny", tmp_path, settings=[how])


@pytest.mark.parametrize("how", [["cache=input"], ["form=nitro", "cache_precision=int8"]], ids=" ".join)
def test_keys_of_another_form_are_refused(how):
    with pytest.raises(ConfigError, match="with another form alone"):
        load_spec("llama3.2-1b", [f"workload.{setting}" for setting in how])


def test_rows_of_other_columns_machines_and_hints_are_skipped(tmp_path, capsys):
    header = "source,device,model,precision,hint,metric,value,notes\n"
    rows = (
        "x,Core Ultra 7 258V GPU,mistral-7b,int4,decode,tok/s,20,\n"
        "x,Core Ultra 7 258V GPU,resnet18,int8,latency,ms,2,\n"
        "x,Core Ultra 7 258V NPU4000,llama2-7b,Q4_K_M,decode,tok/s,20,\n"
        "x,Core Ultra 7 999Z GPU,mistral-7b,int4,decode,tok/s,20,\n"
    )
    (tmp_path / "mine.csv").write_text(header + rows)
    assert run(["validate", "decoders", "--figures", str(tmp_path / "mine.csv")]) in (0, 1)
    shown = " ".join(capsys.readouterr().out.split())
    assert "gpu mistral-7b int4" in shown and "resnet18" not in shown
    assert "formats of weights" in shown and "no data sheet of the machine" in shown
