"""What this package adds to npusim's registries."""

from npusim.report.pages import DocumentKind

DOCUMENT = DocumentKind("prune", "npusim.pruning.document:PruningReport", "npusim.pruning.page:pruning_page")
