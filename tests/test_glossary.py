"""docs/glossary.md: every reference exists in code, every word of the architecture page has an entry."""

import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = re.compile(r"`(npusim[\w.]*):(\w+)(?:\.(\w+))?`")


def entries() -> dict[str, list[str]]:
    """Return the cells of each row of the glossary by its terms, in lower case."""
    found: dict[str, list[str]] = {}
    for line in (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 5 and cells[0] not in ("term", "---"):
            found |= {term.strip().lower(): cells for term in cells[0].split(",")}
    return found


ENTRIES = entries()


def test_the_glossary_has_about_forty_terms_each_with_a_meaning() -> None:
    assert len(ENTRIES) >= 40
    assert [term for term, cells in ENTRIES.items() if not cells[3]] == []


@pytest.mark.parametrize("term", sorted(ENTRIES))
def test_every_term_lives_where_the_glossary_says(term: str) -> None:
    references = REFERENCE.findall(ENTRIES[term][4])
    assert references and len(references) == ENTRIES[term][4].count("`") // 2
    for module, name, attribute in references:
        held = getattr(import_module(module), name)
        if attribute:
            own = (vars(base).get("__annotations__", {}) for base in held.__mro__)
            fields = getattr(held, "model_fields", {}) or set().union(*own)
            assert attribute in fields or hasattr(held, attribute), f"{module}:{name} has no {attribute}"


def test_every_word_of_the_architecture_page_has_an_entry() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    words = re.findall(r"(?<!\*)\*([A-Za-z][\w -]*)\*(?!\*)", page)
    assert words
    assert [word for word in words if word.lower() not in ENTRIES] == []


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in sorted(DOCS.glob("*.md")) if f"docs/{page.name}" not in readme] == []
