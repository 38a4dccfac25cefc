"""Print every figure of some 300 scenarios that differs between a revision and the work tree.

    python scripts/replay.py REVISION [--every N] [--limit N]

Scenarios combine networks, machines, technique stacks, schedules and both engines; small sweeps follow. No
difference (exit status 0) proves that a refactoring changed no figure; otherwise the exit status is 1.
Figures of a commit are kept in the repository's git folder. `--every 10` takes each tenth scenario.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
"""Figures of a scenario by their path in the document, or the message of a refusal."""

GNNS = ("gcn-cora", "gat-cora", "sage-mean-cora", "sage-max-citeseer")
CNNS = ("resnet-50", "mobilenet-v2", "yolov8n", "unet-camvid", "ssd-mobilenet-v1", "yolo-v3-tiny")
TRANSFORMERS = ("bert-base", "vit")
NPUS = ("core-ultra-series1", "core-ultra-series2", "core-ultra-series3")
ARRAYS = ("eyeriss", "gemmini", "nvdla-large", "rk3588", "tpu-v1", "three-arrays")
STACKS = {
    "gcn-cora": (
        "none",
        "graphsplit",
        "preg",
        "padded",
        "csr",
        "blocks",
        "tiles",
        "stagr",
        "grad+nodepad",
        "stagr+quantgr",
        "stagr+grasp",
        "stagr+symg",
        "stagr+cacheg",
        "stagr+quantgr+symg+cacheg",
        "graphsplit+grad+nodepad+grasp",
        "feature-decomposition:chunks=8",
    ),
    "gat-cora": (
        "none",
        "stagr",
        "stagr+effop",
        "effop+grax1",
        "stagr+effop+grax1+grax2:form=rank2",
        "graphsplit+stagr+effop+quantgr",
    ),
    "sage-mean-cora": ("none", "stagr", "stagr+quantgr"),
    "sage-max-citeseer": ("none", "effop", "stagr+grax3"),
}
SCHEDULES = (
    ["npu.schedule.prefetch=true"],
    ["npu.schedule.resident_weights=true"],
    ["npu.schedule.depth_first=true"],
    ["npu.schedule.objective=energy"],
    ["npu.schedule.objective=edp"],
    ["npu.tiles=1", "npu.sram.per_tile=512KiB"],
    ["dram.bandwidth=30GB/s", "npu.dma.engines=1"],
)
SPACES: dict[str, dict[str, Any]] = {
    "rates": {
        "workload": "gcn-cora",
        "axes": {
            "npu.tiles": {"values": [2, 4]},
            "npu.sram.per_tile": {"from": "512KiB", "to": "2MiB", "count": 4},
            "dram.bandwidth": {"from": "40 GB/s", "to": "130 GB/s", "count": 3},
        },
    },
    "grids": {
        "workload": "mobilenet-v2",
        "axes": {
            "npu.dpu.grid.vpe": {"values": [4, 8]},
            "npu.dpu.grid.mpe": {"values": [2, 4]},
            "npu.dma.engines": {"values": [1, 2]},
        },
    },
    "stacks": {"workload": "gcn-cora", "axes": {"techniques": {"values": ["none", "stagr", "stagr+symg"]}}},
}


def scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and keyword arguments of each estimate."""
    for engine in ("analytical", "event"):
        for network, stacks in STACKS.items():
            for soc in NPUS if engine == "analytical" else NPUS[:2]:
                for stack in stacks:
                    yield _named(network, soc, engine=engine, techniques=stack)
    for network in (*CNNS, *TRANSFORMERS):
        for soc in NPUS:
            for hint in ("latency", "throughput"):
                yield _named(network, soc, hint=hint)
        for soc in ("generic-cpu", "core-ultra-7-265k", "two-npus", "jetson-agx-xavier"):
            yield _named(network, soc)
        yield _named(network, NPUS[1], device="gpu")
    for network in ("resnet-50", "mobilenet-v2", "bert-base", "gcn-cora"):
        for soc in ARRAYS:
            yield _named(network, soc)
        for settings in SCHEDULES:
            yield _named(network, NPUS[1], settings=settings)
        yield _named(network, NPUS[0], settings=["workload.precision=int8"])
        yield _named(
            network, NPUS[1], settings=["workload.batch=3"] if network != "gcn-cora" else [], tiles="all"
        )
        yield _named(network, NPUS[1], swap_operands="search")
        yield _named(network, NPUS[1], interval=True)
    for network, soc in (
        ("mobilenet-v2", NPUS[1]),
        ("resnet-50", NPUS[0]),
        ("gcn-cora", "three-arrays"),
        ("gcn-cora", "gemmini"),
        ("vit", NPUS[1]),
    ):
        yield _named(network, soc, engine="event")
    for settings in SCHEDULES:
        yield _named("mobilenet-v2", NPUS[1], engine="event", settings=settings)


def _named(network: str, soc: str, **how: Any) -> tuple[str, dict[str, Any]]:
    words = [
        network,
        soc,
        *(f"{key}={','.join(value) if isinstance(value, list) else value}" for key, value in how.items()),
    ]
    return " ".join(words), {"network": network, "soc": soc, **how}


def figures_here(every: int) -> dict[str, Figures]:
    """Return the figures of all scenarios as the npusim that can be imported computes them."""
    import npusim

    results: dict[str, Figures] = {}
    wanted = list(scenarios())[::every]
    for i, (name, arguments) in enumerate(wanted):
        print(f"\r{i + 1}/{len(wanted)} {name[:60]:60}", end="", file=sys.stderr, flush=True)
        try:
            document = json.loads(npusim.estimate(**arguments).to_json())
        except npusim.NpusimError as error:
            results[name] = {"refused": str(error)}
        else:
            results[name] = dict(_flat(document))
    for name, space in SPACES.items():
        results[f"sweep {name}"] = _swept(
            {"schema": "npusim.space/1", "title": name, "soc": NPUS[1], "keep": "all", **space}
        )
    print(file=sys.stderr)
    return results


def _swept(space: dict[str, Any]) -> Figures:
    """Return each column of each point of a small space."""
    import npusim

    with tempfile.TemporaryDirectory() as folder:
        npusim.sweep({"minimise": ["latency_s", "energy_j"], **space}, folder)
        rows = npusim.query(folder, "SELECT * FROM points ORDER BY ALL")
        return dict(_flat(rows.to_pylist()))


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of each leaf of a JSON document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{place}]")
    else:
        yield path, value


def figures_at(revision: str, every: int) -> dict[str, Figures]:
    """Return the figures of a commit, computed once and kept in the git folder."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()

    commit = git("rev-parse", f"{revision}^{{commit}}")
    kept = (
        Path(git("rev-parse", "--path-format=absolute", "--git-common-dir"))
        / "replay"
        / f"{commit}-{every}.json"
    )
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
            figures = _in_tree(Path(folder), every)
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(figures))
    return json.loads(kept.read_text())


def _in_tree(tree: Path, every: int) -> dict[str, Figures]:
    """Return the figures that the npusim of a source tree computes, in a process of its own."""
    with tempfile.NamedTemporaryFile(suffix=".json") as output:
        command = [
            sys.executable,
            str(Path(__file__).resolve()),
            "--collect",
            output.name,
            "--every",
            str(every),
        ]
        subprocess.run(command, check=True, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)})
        return json.loads(Path(output.name).read_text())


def differences(before: dict[str, Figures], after: dict[str, Figures]) -> Iterator[str]:
    """Yield one line for each figure that differs, appeared or went."""
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, {}), after.get(name, {})
        for path in sorted(old.keys() | new.keys()):
            if old.get(path) != new.get(path) or (path in old) != (path in new):
                yield f"{name}: {path}: {old.get(path, 'absent')} -> {new.get(path, 'absent')}"


def main() -> int:
    """Compare the work tree with a revision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision", nargs="?", default="HEAD", help="the revision to compare with")
    parser.add_argument("--every", type=int, default=1, help="take each N-th scenario only")
    parser.add_argument("--limit", type=int, default=40, help="print at most N differences")
    parser.add_argument("--collect", metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.collect:
        Path(arguments.collect).write_text(json.dumps(figures_here(arguments.every)))
        return 0
    before = figures_at(arguments.revision, arguments.every)
    after = _in_tree(Path(__file__).resolve().parents[1], arguments.every)
    lines = list(differences(before, after))
    print("\n".join(lines[: arguments.limit]))
    print(
        f"{len(lines)} figures differ in {len({line.split(': ')[0] for line in lines})} "
        f"of {len(after)} scenarios"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
