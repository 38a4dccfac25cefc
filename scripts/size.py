"""Print code lines, files and tokens a line of each package, with the difference to a revision.

    python scripts/size.py [REVISION] [--markdown]

A code line holds at least one token that is neither a comment nor part of the docstring of a module, class or
function (the docstring of an attribute counts as code). Tokens a line is the mean over code lines, so that a
package does not look smaller by denser lines.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "npusim"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Size:
    """Size of a package folder, or of the whole package."""

    files: int = 0
    lines: int = 0
    """All lines, with blank lines, comments and docstrings."""
    code_lines: int = 0
    tokens: int = 0

    def add(self, other: Size) -> None:
        """Add the size of another file or folder."""
        self.files += other.files
        self.lines += other.lines
        self.code_lines += other.code_lines
        self.tokens += other.tokens

    @property
    def tokens_per_line(self) -> float:
        """Mean number of tokens in a code line."""
        return self.tokens / self.code_lines if self.code_lines else 0.0


def size_of(text: str) -> Size:
    """Return the size of one source file."""
    docstring_lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring_lines.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code_lines: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _LAYOUT or token.start[0] in docstring_lines:
            continue
        tokens += 1
        code_lines.update(range(token.start[0], token.end[0] + 1))
    return Size(1, text.count("\n"), len(code_lines), tokens)


def sizes_now() -> dict[str, Size]:
    """Return the size of each package folder in the work tree."""
    return _by_folder((str(path), path.read_text()) for path in Path(PACKAGE).rglob("*.py"))


def sizes_at(revision: str) -> dict[str, Size]:
    """Return the size of each package folder at a revision."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout

    names = git("ls-tree", "-r", "--name-only", revision, "--", PACKAGE).splitlines()
    return _by_folder((name, git("show", f"{revision}:{name}")) for name in names if name.endswith(".py"))


def _by_folder(sources) -> dict[str, Size]:  # type: ignore[no-untyped-def]
    sizes: dict[str, Size] = defaultdict(Size)
    for name, text in sources:
        parts = Path(name).parts
        sizes[parts[1] if len(parts) > 2 else "(files beside the folders)"].add(size_of(text))
    return dict(sizes)


def _total(sizes: dict[str, Size]) -> Size:
    whole = Size()
    for size in sizes.values():
        whole.add(size)
    return whole


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("revision", nargs="?", help="a revision to compare with")
    parser.add_argument("--markdown", action="store_true", help="print a table for docs/")
    arguments = parser.parse_args()
    now = sizes_now()
    before = sizes_at(arguments.revision) if arguments.revision else {}
    rows = sorted(now.keys() | before.keys(), key=lambda name: -now.get(name, Size()).code_lines)
    header = ["folder", "files", "lines", "code lines", "tokens a line"]
    if before:
        header += ["files +-", "code lines +-"]
    table = [header]
    for name in [*rows, "all"]:
        size = _total(now) if name == "all" else now.get(name, Size())
        old = _total(before) if name == "all" else before.get(name, Size())
        row = [name, str(size.files), str(size.lines), str(size.code_lines), f"{size.tokens_per_line:.2f}"]
        if before:
            row += [f"{size.files - old.files:+d}", f"{size.code_lines - old.code_lines:+d}"]
        table.append(row)
    if arguments.markdown:
        table.insert(1, ["---", *["---:"] * (len(header) - 1)])
        print("\n".join("| " + " | ".join(row) + " |" for row in table))
    else:
        widths = [max(len(row[i]) for row in table) for i in range(len(header))]
        for row in table:
            print(
                row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
