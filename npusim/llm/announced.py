"""What this package adds to npusim's registries."""

from npusim.report.pages import DocumentKind

DOCUMENT = DocumentKind("llm", "npusim.llm.study:LanguageModels", "npusim.llm.page:language_page")
