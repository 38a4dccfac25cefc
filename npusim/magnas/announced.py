"""What this package adds to npusim's registries."""

from npusim.report.pages import DocumentKind

TRAINING = DocumentKind(
    "magnas-training", "npusim.magnas.document:SupernetTraining", "npusim.magnas.page:training_page"
)
SCORES = DocumentKind("magnas-scores", "npusim.magnas.stored_scores:SubnetScores")
FIGURES = DocumentKind(
    "magnas-figures", "npusim.magnas.figures_document:MappingFigures", "npusim.magnas.page:figures_page"
)
SEARCH = DocumentKind(
    "magnas-search",
    "npusim.magnas.architecture_document:ArchitectureSearch",
    "npusim.magnas.page:search_page",
)
