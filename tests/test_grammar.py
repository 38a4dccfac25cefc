"""The grammar of technique stacks: one text, one order, one meaning."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusim.errors import IllegalTechniqueError, UnknownNameError
from npusim.techniques import NONE, get, parse, stacks, technique_names

STEPS = {
    **{name: [name] for name in technique_names()},
    "nodepad": ["nodepad", "nodepad:capacity=3000", "nodepad:capacity=1"],
    "grax2": ["grax2", "grax2:form=literal", "grax2:form=source", "grax2:form=rank2"],
    "grax3": ["grax3", "grax3:maximum=reduce"],
    "grasp": ["grasp", "grasp:features=off", "grasp:constants=off:matrix=on"],
    "quantgr": ["quantgr", "quantgr:inputs=cpu", "quantgr:inputs=npu"],
}

steps = st.lists(st.sampled_from(technique_names()), unique=True).flatmap(
    lambda names: st.tuples(*(st.sampled_from(STEPS[name]) for name in names))
)


@given(steps)
def test_the_canonical_text_means_the_same_stack(texts: tuple[str, ...]) -> None:
    stack = parse("+".join(texts))
    assert parse(str(stack)) == stack
    assert str(parse(str(stack))) == str(stack)


@given(steps, st.randoms())
def test_the_order_of_writing_does_not_matter(texts: tuple[str, ...], random) -> None:
    shuffled = list(texts)
    random.shuffle(shuffled)
    assert parse("+".join(shuffled)) == parse("+".join(texts))


@given(steps)
def test_yaml_and_json_hold_the_same_stack(texts: tuple[str, ...]) -> None:
    stack = parse("+".join(texts))
    assert parse(json.loads(json.dumps(stack.to_data()))) == stack


def test_the_example_of_the_grammar_is_put_into_order() -> None:
    stack = parse("grax2:form=rank2+grad+nodepad:capacity=3000")
    assert str(stack) == "grad+nodepad:capacity=3000+grax2:form=rank2"
    assert stack.names == ("grad", "nodepad", "grax2")


@pytest.mark.parametrize("text", ["", "none", " None ", None, [], "none+none"])
def test_the_empty_stack_is_called_none(text) -> None:
    assert str(parse(text)) == NONE == "none"
    assert len(parse(text)) == 0


def test_a_setting_at_its_default_is_not_written() -> None:
    assert str(parse("grax2:form=literal+quantgr:inputs=int8+grasp:features=on")) == "grax2+quantgr+grasp"


def test_all_techniques_are_there_with_their_words() -> None:
    first = ["graphsplit", "preg", "stagr", "grad", "nodepad", "effop", "grax1", "grax2", "grax3"]
    expected = [*first, "quantgr", "grasp", "symg", "cacheg"]
    assert [name for name in technique_names() if name in expected] == expected
    for name in technique_names():
        technique = get(name)
        assert (
            technique.summary.endswith(".") and technique.rationale and technique.numerics and technique.needs
        )


@pytest.mark.parametrize(
    ("text", "meant"),
    [("stager", "stagr"), ("cachg", "cacheg"), ("grax4", "grax"), ("node-pad:capacity=3", "nodepad")],
)
def test_an_unknown_technique_is_refused_with_the_nearest_one(text: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"did you mean `{meant}"):
        parse(text)


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match="setting of nodepad `capcity`; did you mean `capacity`"):
        parse("nodepad:capcity=3000")


@pytest.mark.parametrize(
    "text",
    [
        "nodepad:capacity=0",
        "nodepad:capacity=-3",
        "nodepad:capacity=3.5",
        "nodepad:capacity=many",
        "grax2:form=rank3",
        "grasp:features=perhaps",
        "stagr+stagr",
        "nodepad:capacity",
        "nodepad:=3",
        "nodepad:capacity=3:capacity=4",
    ],
)
def test_an_impossible_stack_is_refused(text: str) -> None:
    with pytest.raises(IllegalTechniqueError):
        parse(text)


@pytest.mark.parametrize(
    "data",
    [
        [{"nodepad": {"capacity": 0}}],
        [{"nodepad": 3}],
        [{"stagr": None, "symg": None}],
        [3],
        ["stagr", "stagr"],
    ],
)
def test_data_that_is_no_stack_is_refused(data) -> None:
    with pytest.raises(IllegalTechniqueError):
        parse(data)


def test_a_refused_value_is_shown_with_what_is_allowed() -> None:
    with pytest.raises(
        IllegalTechniqueError, match=r"nodepad:capacity=0.*greater than or equal to 1.*found `0`"
    ):
        parse("nodepad:capacity=0")
    with pytest.raises(IllegalTechniqueError, match="'literal', 'source' or 'rank2', found `rank3`"):
        parse("grax2:form=rank3")


def test_the_shipped_stacks_are_canonical_and_begin_with_the_baseline() -> None:
    named = stacks()
    assert {"storage", "paper", "all"} <= set(named)
    for chosen in named.values():
        assert str(chosen[0]) == NONE
        assert len(set(map(str, chosen))) == len(chosen)
    assert {name for stack in named["all"] for name in stack.names} == set(technique_names())


def test_a_broken_file_of_stacks_names_file_and_key(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("stacks:\n  mine: [none, stager]\n")
    with pytest.raises(Exception, match=r"mine\.yaml.*stacks\.mine\.1.*stagr"):
        stacks(path)
