"""Exported mappings read by the tools themselves, each in an environment of its own.

Run with ZIGZAG_PYTHON and ACCELFORGE_PYTHON: interpreters of environments with zigzag-dse and accelforge.
"""

import json
import os
import subprocess
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from npusim.mapping import FORMATS, product_nests
from npusim.scenario import Scenario

READERS = {
    "zigzag": """
import json, sys
import yaml
from zigzag.parser.mapping_factory import MappingFactory
from zigzag.parser.mapping_validator import MappingValidator
validator = MappingValidator(yaml.safe_load(open(sys.argv[1])))
assert validator.validate()
data, found = validator.normalized_data, []
for entry in data[:-1]:
    made = MappingFactory(entry["name"], "", data)
    loops = [[str(name), size] for name, size in made.create_temporal_ordering().data]
    spatial = made.create_spatial_mapping().data.values()
    found.append([loops, sorted([str(name), size] for axis in spatial for name, size in axis.items())])
print(json.dumps(found))
""",
    "accelforge": """
import json, sys
from accelforge import Mapping
found = []
for text in open(sys.argv[1]).read().split("---\\n"):
    keys = ("component", "rank_variable", "tile_shape")
    open(sys.argv[1] + ".part.yaml", "w").write(text)
    mapping = Mapping.from_yaml(sys.argv[1] + ".part.yaml", top_key="mapping")
    nodes = [[type(each).__name__, *(getattr(each, key, None) for key in keys)] for each in mapping.nodes]
    found.append(nodes)
print(json.dumps(found))
""",
}
CASES = [("gcn-cora", {"techniques": "stagr"}), ("mobilenet-v2", {})]


def read_by(tool: str, network: str, how: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    """Return the nests of an export, and what the tool's own parser makes of the file."""
    python = os.environ.get(f"{tool.upper()}_PYTHON")
    if not python:
        pytest.skip(f"no {tool.upper()}_PYTHON")
    mapped = Scenario(network, **how).mapped
    file = folder / "mapping.yaml"
    file.write_text(FORMATS[tool](mapped), encoding="utf-8")
    command = [python, "-c", READERS[tool], str(file)]
    read = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return list(product_nests(mapped)), json.loads(read.stdout.splitlines()[-1])


@pytest.mark.parametrize(("network", "how"), CASES)
def test_zigzag_reads_the_loops(network: str, how: dict[str, Any], tmp_path: Path) -> None:
    """Temporal loops from the inside out and spatial loops have the turns of the nest."""
    nests, found = read_by("zigzag", network, how, tmp_path)
    assert len(nests) == len(found)
    for nest, (temporal, spatial) in zip(nests, found, strict=True):
        is_spatial = [loop.level in ("tiles", "lanes") for loop in nest.loops]
        turns = [loop.turns for loop in nest.loops]
        inward = [count for count, beside in zip(turns, is_spatial, strict=True) if not beside]
        assert [size for _, size in temporal] == inward[::-1]
        side = sorted(count for count, beside in zip(turns, is_spatial, strict=True) if beside)
        assert sorted(size for _, size in spatial) == side


@pytest.mark.parametrize(("network", "how"), CASES)
def test_accelforge_reads_the_loops(network: str, how: dict[str, Any], tmp_path: Path) -> None:
    """Loops come from the outside in, with storage between their levels and the computation inside."""
    nests, found = read_by("accelforge", network, how, tmp_path)
    assert len(nests) == len(found)
    for nest, nodes in zip(nests, found, strict=True):
        loops = [(kind, shape) for kind, _, _, shape in nodes if kind in ("Spatial", "Temporal")]
        wanted = [
            ("Spatial" if loop.level in ("tiles", "lanes") else "Temporal", loop.size) for loop in nest.loops
        ]
        assert loops == wanted
        stores = [component for kind, component, *_ in nodes if kind == "Storage"]
        assert stores == ["DRAM", "SRAM", "Registers"] and nodes[-1][0] == "Compute"


def test_sizes_of_turns_multiply_to_the_whole() -> None:
    """Each loop cuts the elements of the loop of its dimension outside it into its turns."""
    for nest in product_nests(Scenario("gcn-cora", techniques="stagr").mapped):
        inside: dict[str, int] = {}
        for loop in nest.loops:
            if loop.over in inside:
                assert loop.turns == ceil(inside[loop.over] / loop.size)
            inside[loop.over] = loop.size
        assert all(size == 1 for size in inside.values())
