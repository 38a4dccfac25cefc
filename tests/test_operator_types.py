"""Operator types are declared once: a made-up one is imported, costed, fused, listed; no trait is missing."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import npusim
from npusim.cost.lowering.execution import Execution, execution_of
from npusim.errors import GraphError, NpusimError
from npusim.frontends.openvino_ir import graph_of_model
from npusim.graph import Editor, Graph
from npusim.ops import OPERATORS, DType, Family, Int8Use, OpType, RowUse, Settings, WorkClass, op_type

PACKAGE = """
from npusim.cost.lowering.execution import Execution
from npusim.ops import Family, Int8Use, OpType, RowUse, Settings
from npusim.ops.catalogue import unchanged
from npusim.ops.operator import element_work

GATE = OpType(
    name="MadeUpGate",
    family=Family.ACTIVATION,
    work=element_work,
    rows=RowUse.SAME,
    int8=Int8Use.NEEDS_FLOAT,
    settings=Settings(attributes=("steepness",)),
    shape=unchanged,
    is_identity=False,
    execution=Execution(
        dsp_kernel="sigmoid",
        dpu=None,
        dma=False,
        element="sigmoid",
        row=None,
        computes=True,
        listed_as="prelu",  # whoever applies a PReLU on the way out applies a gate, too
    ),
)
"""
"""All that another package writes; its entry point in the group `npusim.operators` names `GATE`."""


@pytest.fixture
def gate() -> Iterator[OpType]:
    space: dict[str, OpType] = {}
    exec(PACKAGE, space)
    yield OPERATORS.register(space["GATE"])
    OPERATORS.remove("MadeUpGate")


def gated_product(rows: int = 256) -> Graph:
    """Return two gates: one on an input, one behind a product."""
    editor = Editor("gated")
    x = editor.add("MadeUpGate", (editor.input("x", (rows, 64)),), "first", steepness=2.0)
    weight = editor.constant("weight", (64, 32))
    editor.outputs = [editor.add("MadeUpGate", (editor.matmul(x, weight, "product"),), "second")]
    return editor.finish()


def test_the_declaration_is_short() -> None:
    assert len(PACKAGE.strip().splitlines()) < 30


@pytest.mark.parametrize("engine", ["analytical", "event"])
@pytest.mark.parametrize("device", ["npu", "cpu", "gpu"])
def test_a_made_up_operator_is_costed_and_fused_everywhere(gate: OpType, device: str, engine: str) -> None:
    small, large = (
        npusim.estimate(gated_product(rows), "core-ultra-series2", device=device, engine=engine)
        for rows in (256, 1 << 16)
    )
    assert 0 < small.latency_s < large.latency_s
    first, product = small.operators
    assert (first.name, product.name, product.fused) == ("first", "product", ["second"])
    assert first.unit == {"npu": "npu.dsp"}.get(device, device)
    assert not any("not know" in warning or "unknown" in warning for warning in small.warnings)


def test_a_made_up_operator_is_imported_with_its_attributes(gate: OpType) -> None:
    openvino = pytest.importorskip("openvino")

    class MadeUpGate(openvino.Op):
        def __init__(self, inputs: list) -> None:
            super().__init__(self, inputs)

        def validate_and_infer_types(self) -> None:
            self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

        def visit_attributes(self, visitor) -> bool:
            visitor.on_attributes({"steepness": 2.0})
            return True

    parameter = openvino.opset15.parameter([4, 8], openvino.Type.f32)
    parameter.set_friendly_name("x")
    node = MadeUpGate([parameter.output(0)])
    graph = graph_of_model(openvino.Model([node.output(0)], [parameter], "gated"), "gated")
    (op,) = graph
    assert (op.type, op.family, op.traits.known) == ("MadeUpGate", Family.ACTIVATION, True)
    assert graph.work(op).elements == 32 and op.attrs == {"steepness": 2.0}


def test_a_made_up_operator_of_an_installed_package_is_listed(tmp_path: Path) -> None:
    (tmp_path / "gates.py").write_text(PACKAGE)
    info = tmp_path / "gates-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gates\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[npusim.operators]\ngate = gates:GATE\n")
    path = os.pathsep.join([str(tmp_path), str(Path(npusim.__file__).parents[1])])
    command = [sys.executable, "-m", "npusim", "list", "ops", "--format", "json"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert '"MadeUpGate"' in done.stdout


# --- completeness


def test_every_type_has_every_trait_and_an_execution() -> None:
    for name in OPERATORS:
        declared = op_type(name)
        assert declared.name == name and callable(declared.work) and declared.known
        assert isinstance(declared.family.work_class, WorkClass)
        assert isinstance(declared.rows, RowUse) and isinstance(declared.int8, Int8Use)
        assert isinstance(declared.settings, Settings)
        execution = execution_of(declared)
        on_npu = execution.dpu is not None or execution.dsp_kernel or declared.work_class is WorkClass.STATE
        assert on_npu or execution.host_only  # why it runs on hosts alone


@pytest.mark.parametrize(
    ("declaration", "trait"),
    [
        (declaration, field.name)
        for declaration in (OpType, Execution)
        for field in dataclasses.fields(declaration)
        if field.default is dataclasses.MISSING
    ],
)
def test_a_missing_trait_is_an_error_where_the_type_is_declared(
    gate: OpType, declaration: type, trait: str
) -> None:
    whole = gate if declaration is OpType else gate.execution
    traits = {field.name: getattr(whole, field.name) for field in dataclasses.fields(declaration)}
    del traits[trait]
    with pytest.raises(TypeError, match=trait):
        declaration(**traits)


def test_a_type_without_an_execution_is_no_guess(gate: OpType) -> None:
    with pytest.raises(NpusimError, match=r"MadeUpGate: its declaration brings no Execution"):
        execution_of(dataclasses.replace(gate, execution=None))


def test_a_type_without_a_shape_rule_says_so() -> None:
    editor = Editor("transposed")
    x = editor.input("x", (2, 3), DType.FP16)
    with pytest.raises(GraphError, match=r"'turned' \(Transpose\): the type has no shape rule"):
        editor.add("Transpose", (x,), "turned")


def test_a_name_is_declared_once() -> None:
    with pytest.raises(NpusimError, match="'Add': there is one of that name already"):
        OPERATORS.register(op_type("Add"))
