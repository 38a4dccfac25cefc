"""Peers on the two products of GCN-Cora, each in an environment of its own: time per estimate, and cycles.

`make bench ROWS=peers` runs it; what cannot be installed is said on the page.
"""

from __future__ import annotations

from typing import Any


def measure() -> dict[str, Any]:
    """Return what each peer said."""
    return {}


def section(found: dict[str, Any]) -> str:
    """Return the section of docs/performance.md."""
    return ""
