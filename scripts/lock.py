r"""Write lock file and bill of materials from pip's report: versions, and hashes of the files that pip chose.

    python -m pip install --dry-run --ignore-installed --quiet --no-build-isolation -c constraints.txt \
        --report report.json ".[openvino,search,cluster,learn,frames]"
    python scripts/lock.py report.json

Neither file names where pip got the files from. The bill (CycloneDX 1.6) is a part of the wheel.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LOCK, BILL = ROOT / "requirements.lock", ROOT / "sbom.cdx.json"
_HEAD = """\
# What npusim needs, with hashes: pip install --require-hashes -r requirements.lock
# Made by scripts/lock.py for Python {python} on {system} {machine}; another platform makes its own.
# torch is not here (extra gnn): its file depends on the graphics card.
"""


class Locked(NamedTuple):
    """One package: its name, version and the SHA-256 of its file."""

    name: str
    version: str
    sha256: str


def locked(report: dict[str, Any]) -> list[Locked]:
    """Return the packages of a report by name; a `ValueError` names one whose file has no hash."""
    packages = []
    for entry in report["install"]:
        name, info = entry["metadata"]["name"], entry["download_info"]
        if "dir_info" in info:  # npusim itself
            continue
        hashes = info.get("archive_info", {}).get("hashes", {})
        if "sha256" not in hashes:
            raise ValueError(f"{name}: pip tells no SHA-256 of its file")
        packages.append(Locked(name, entry["metadata"]["version"], hashes["sha256"]))
    return sorted(packages, key=lambda package: package.name.lower())


def lock_of(report: dict[str, Any]) -> str:
    """Return the text of the lock file."""
    environment = report["environment"]
    head = _HEAD.format(
        python=environment["python_version"],
        system=environment["platform_system"],
        machine=environment["platform_machine"],
    )
    return head + "".join(f"{name}=={version} --hash=sha256:{sha}\n" for name, version, sha in locked(report))


def bill_of(report: dict[str, Any]) -> str:
    """Return the bill of materials as CycloneDX JSON."""
    components = [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name.lower().replace('_', '-')}@{version}",
            "hashes": [{"alg": "SHA-256", "content": sha}],
        }
        for name, version, sha in locked(report)
    ]
    about = {"component": {"type": "application", "name": "npusim"}}
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": about}
    lines = ",\n".join(map(json.dumps, components))
    return json.dumps(bill | {"components": []})[:-2] + f"\n{lines}\n]}}\n"


if __name__ == "__main__":
    whole = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    LOCK.write_text(lock_of(whole), encoding="utf-8")
    BILL.write_text(bill_of(whole), encoding="utf-8")
