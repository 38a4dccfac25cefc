"""Write docs/techniques.md: each technique with the operator graph of a layer before and after it.

python scripts/technique_pages.py > docs/techniques.md
"""

from __future__ import annotations

import sys

import npusim
from npusim.graph.difference import GraphDifference, OperatorSummary, TensorSummary
from npusim.techniques import TECHNIQUES, Technique

EXAMPLES = {
    "graphsplit": ("gcn-cora", "none", "graphsplit"),
    "preg": ("gcn-cora", "none", "preg"),
    "stagr": ("gcn-cora", "none", "stagr"),
    "grad": ("gcn-cora", "none", "grad"),
    "nodepad": ("gcn-cora", "grad", "grad+nodepad:capacity=3000"),
    "effop": ("gat-cora", "stagr", "stagr+effop"),
    "grax1": ("gat-cora", "stagr+effop", "stagr+effop+grax1"),
    "grax2": ("gat-cora", "stagr+effop", "stagr+effop+grax2"),
    "grax3": ("sage-max-cora", "stagr", "stagr+grax3"),
    "feature-decomposition": ("gcn-cora", "none", "feature-decomposition:chunks=2"),
    "quantgr": ("gcn-cora", "stagr", "stagr+quantgr"),
    "grasp": ("gcn-cora", "stagr", "stagr+grasp"),
    "symg": ("gcn-cora", "stagr", "stagr+symg"),
    "cacheg": ("gcn-cora", "stagr", "stagr+cacheg"),
}
"""Network, stack before and stack after that show each technique by itself."""
LONGEST = 14
"""Operators shown of each kind; the page names the command that lists all."""

_HEAD = """\
# Techniques, before and after

A technique is a pass over the operator graph. Each section shows what one pass changes in the first layer
of a network: lines with `-` are operators that it removes or changes, lines with `+` are what replaces them.
An operator reads `result = Type(inputs)`; a tensor carries its shape, its number format (an input only where
it differs from the result's), and its storage where that is not dense.
`npusim show NETWORK --techniques STACK --after STACK` prints the same for any network; with `-o page.html`
it draws both graphs. This page is written by `python scripts/technique_pages.py > docs/techniques.md`.
"""


def main() -> None:
    """Print the page."""
    sys.stdout.write(page())


def page() -> str:
    """Return the page: a section for each registered technique, in the order of a stack."""
    techniques = sorted(TECHNIQUES.values(), key=lambda technique: technique.stage)
    return "\n".join([_HEAD, *(_section(technique) for technique in techniques)])


def _section(technique: Technique) -> str:
    if technique.name not in EXAMPLES:
        return (
            f"## {technique.name}\n\n{technique.summary}\n\n{technique.rationale}\n\n"
            f"**Results.** {technique.numerics}\n\nIt needs the values of edges, which a module "
            f"brings along: `npusim show model.py:net --after {technique.name}` (docs/advice.md).\n"
        )
    network, before, after = EXAMPLES[technique.name]
    difference = npusim.show(network, techniques=before, after=after)
    base = "" if before == "none" else f" --techniques {before}"
    results = f"**Results.** {technique.numerics}"
    source = f" Source: {technique.source}." if technique.source else ""
    return "\n".join(
        [
            f"## {technique.name}\n",
            f"{technique.summary}\n",
            f"{technique.rationale}\n",
            f"{results}{source}\n",
            f"`npusim show {network}{base} --after {after}`\n",
            "```diff",
            *_lines(difference),
            "```\n",
            _totals(difference),
        ]
    )


def _lines(difference: GraphDifference) -> list[str]:
    """Return the operators of the first layer that differ, as lines of a diff."""
    removed = [operator for operator in difference.removed if _is_first(operator)]
    added = [operator for operator in difference.added if _is_first(operator)]
    changed = [change for change in difference.changed if _is_first(change.before)]
    lines = _limited([f"- {_operator(operator)}" for operator in removed])
    lines += _limited([f"+ {_operator(operator)}" for operator in added])
    for change in changed[:LONGEST]:
        lines += [f"- {_operator(change.before)}", f"+ {_operator(change.after)}"]
    return lines


def _limited(lines: list[str]) -> list[str]:
    rest = len(lines) - LONGEST
    return lines if rest <= 0 else [*lines[:LONGEST], f"{lines[0][0]} ... and {rest} more"]


def _is_first(operator: OperatorSummary) -> bool:
    """Return whether an operator belongs to the first layer, or to no layer."""
    return not operator.name.startswith(("layer1", "layer2"))


def _operator(operator: OperatorSummary) -> str:
    device = f" on {operator.device}" if operator.device else ""
    formats = {tensor.dtype for tensor in operator.outputs}
    inputs = ", ".join(_tensor(tensor, formats) for tensor in operator.inputs)
    outputs = ", ".join(_tensor(tensor, set()) for tensor in operator.outputs)
    return f"{outputs} = {operator.type}({inputs}){device}"


def _tensor(tensor: TensorSummary, known_formats: set[str]) -> str:
    """Return name, shape, number format (unless the result's), storage and residency of a tensor."""
    dtype = "" if tensor.dtype in known_formats else f" {tensor.dtype}"
    storage = "" if tensor.storage == "dense" else f" {tensor.storage}"
    resident = " resident" if tensor.resident else ""
    return f"{tensor.name} {tensor.shape}{dtype}{storage}{resident}"


def _totals(difference: GraphDifference) -> str:
    rows = [
        "| whole network | operators | MACs | bytes read and written, stored dense |",
        "| --- | ---: | ---: | ---: |",
    ]
    for totals in (difference.before, difference.after):
        rows.append(
            f"| {totals.techniques} | {totals.operators:,} | {totals.macs / 1e6:,.0f} M "
            f"| {totals.bytes / 1e6:,.1f} MB |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
