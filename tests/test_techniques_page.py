"""The page of techniques shows what the passes do today."""

import importlib.util
from pathlib import Path


def test_the_page_is_what_the_script_writes(repository: Path) -> None:
    spec = importlib.util.spec_from_file_location("pages", repository / "scripts" / "technique_pages.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.page() == (repository / "docs" / "techniques.md").read_text(encoding="utf-8")
