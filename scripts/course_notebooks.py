"""Write the labs as Jupyter and marimo notebooks into a folder.

    python scripts/course_notebooks.py FOLDER

The labs are percent scripts, which VS Code, PyCharm and Spyder run cell by cell as they are, and Jupyter with
jupytext. marimo converts the Jupyter form itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

LABS = Path(__file__).parents[1] / "docs" / "course" / "labs"


def notebook(script: str) -> dict[str, object]:
    """Return a percent script as a Jupyter notebook (nbformat 4.5)."""
    cells: list[dict[str, object]] = []
    for number, (kind, source) in enumerate(
        re.findall(r"(?ms)^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", script)
    ):
        text = re.sub(r"(?m)^# ?", "", source) if kind else source
        cell: dict[str, object] = {"id": f"cell-{number}", "metadata": {}, "source": text.strip()}
        code = {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append(cell | ({"cell_type": "markdown"} if kind else code))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main(folder: Path, pattern: str = "*.py") -> None:
    """Write both forms of each lab whose file matches."""
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(LABS.glob(pattern)):
        jupyter, marimo = folder / f"{script.stem}.ipynb", folder / f"{script.stem}_marimo.py"
        cells = notebook(script.read_text(encoding="utf-8"))
        jupyter.write_text(json.dumps(cells, indent=1), encoding="utf-8")
        command = [sys.executable, "-m", "marimo", "-q", "convert", str(jupyter), "-o", str(marimo)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
